//! Steps against a reference in `f64`, and every level against the portable one.

use proptest::prelude::*;

use super::*;
use crate::codec::half::{Format, narrow_one, widen_one};

const DTYPES: [Dtype; 3] = [Dtype::F32, Dtype::F16, Dtype::Bf16];

const USUAL: Settings = Settings {
    lr: 1e-3,
    betas: (0.9, 0.999),
    eps: 1e-8,
    weight_decay: 1e-2,
    decoupled: true,
    maximize: false,
};

/// Memory of a run, which starts at any place.
#[derive(Clone, PartialEq, Debug)]
struct Held {
    dtypes: [Dtype; 2],
    elements: usize,
    /// Parameter, gradient, first, second, master.
    bytes: [Vec<u8>; 5],
    skew: usize,
}

fn bytes_of(dtype: Dtype, numbers: &[f32]) -> Vec<u8> {
    let half = |format| move |number: &f32| narrow_one(format, *number).to_le_bytes();
    match dtype {
        Dtype::F16 => numbers.iter().flat_map(half(Format::F16)).collect(),
        Dtype::Bf16 => numbers.iter().flat_map(half(Format::Bf16)).collect(),
        _ => numbers.iter().flat_map(|number| number.to_le_bytes()).collect(),
    }
}

fn numbers_of(dtype: Dtype, bytes: &[u8]) -> Vec<f32> {
    let half = |format| move |half: &[u8; 2]| widen_one(format, u16::from_le_bytes(*half));
    match dtype {
        Dtype::F16 => bytes.as_chunks().0.iter().map(half(Format::F16)).collect(),
        Dtype::Bf16 => bytes.as_chunks().0.iter().map(half(Format::Bf16)).collect(),
        _ => bytes.as_chunks().0.iter().map(|number| f32::from_le_bytes(*number)).collect(),
    }
}

impl Held {
    /// Parameter, gradient and moments, in turn, from these numbers.
    fn of(dtypes: [Dtype; 2], numbers: &[[f32; 4]], skew: usize) -> Self {
        let column = |at: usize| numbers.iter().map(|row| row[at]).collect::<Vec<_>>();
        let squares: Vec<f32> = column(3).iter().map(|number| number.abs()).collect();
        let master = if dtypes[0] == Dtype::F32 { vec![] } else { column(0) };
        let skewed = |bytes: Vec<u8>| [vec![0x55; skew], bytes].concat();
        let bytes = [
            bytes_of(dtypes[0], &column(0)),
            bytes_of(dtypes[1], &column(1)),
            bytes_of(Dtype::F32, &column(2)),
            bytes_of(Dtype::F32, &squares),
            bytes_of(Dtype::F32, &master),
        ];
        Self { dtypes, elements: numbers.len(), bytes: bytes.map(skewed), skew }
    }

    fn run(&mut self) -> Run<'_> {
        let skew = self.skew;
        let [parameter, gradient, first, second, master] = &mut self.bytes;
        Run {
            dtype: self.dtypes[0],
            parameter: &mut parameter[skew..],
            gradient_dtype: self.dtypes[1],
            gradient: &gradient[skew..],
            first: &mut first[skew..],
            second: &mut second[skew..],
            master: &mut master[skew..],
        }
    }

    fn numbers(&self, which: usize) -> Vec<f32> {
        let dtype = [self.dtypes[0], self.dtypes[1], Dtype::F32, Dtype::F32, Dtype::F32][which];
        numbers_of(dtype, &self.bytes[which][self.skew..])
    }

    /// The parameter at its full width.
    fn exact(&self) -> Vec<f32> {
        self.numbers(if self.dtypes[0] == Dtype::F32 { 0 } else { 4 })
    }

    fn stepped(&self, level: Level, settings: &Settings, step: f64) -> Self {
        let mut after = self.clone();
        step_at(level, &settings.at(step), after.run()).unwrap();
        after
    }
}

/// The textbook's step: parameter and moments.
fn reference(settings: &Settings, step: f64, [p, g, m, v]: [f64; 4]) -> [f64; 3] {
    let (beta1, beta2) = settings.betas;
    let mut g = if settings.maximize { -g } else { g };
    let mut p = p;
    if settings.decoupled {
        p *= 1.0 - settings.lr * settings.weight_decay;
    } else {
        g += settings.weight_decay * p;
    }
    let m = beta1 * m + (1.0 - beta1) * g;
    let v = beta2 * v + (1.0 - beta2) * g * g;
    let (first, second) = (m / (1.0 - beta1.powf(step)), v / (1.0 - beta2.powf(step)));
    [p - settings.lr * first / (second.sqrt() + settings.eps), m, v]
}

fn settings() -> impl Strategy<Value = Settings> {
    let betas =
        prop_oneof![Just((0.9, 0.999)), Just((0.3, 0.9)), Just((0.0, 0.5)), Just((0.5, 0.95))];
    let decay = prop_oneof![Just(0.0), Just(1e-2), Just(0.3)];
    (betas, decay, 1e-5..1e-1, prop_oneof![Just(1e-8), Just(1e-3)], any::<[bool; 2]>()).prop_map(
        |(betas, weight_decay, lr, eps, [decoupled, maximize])| Settings {
            lr,
            betas,
            eps,
            weight_decay,
            decoupled,
            maximize,
        },
    )
}

/// Numbers as networks have them, and some that are small or nothing.
fn number() -> impl Strategy<Value = f32> {
    prop_oneof![4 => -2f32..2.0, 2 => -1e-4f32..1e-4, 1 => Just(0.0), 1 => -3e4f32..3e4]
}

fn numbers(most: usize) -> impl Strategy<Value = Vec<[f32; 4]>> {
    prop::collection::vec([number(), number(), number(), number()], 0..most)
}

/// Few units in the last place of what went into a result: sums can cancel.
fn assert_close(found: f32, expected: f64, parts: f64, what: &str) {
    let limit =
        f64::from(f32::EPSILON) * 4.0 * (parts + expected.abs()) + f64::from(f32::MIN_POSITIVE);
    assert!((f64::from(found) - expected).abs() <= limit, "{what}: {found} and not {expected}");
}

proptest! {
    #[test]
    fn a_step_is_the_textbooks_to_the_last_few_units(
        settings in settings(), step in 1u32..5000, numbers in numbers(40),
    ) {
        let step = f64::from(step);
        let before = Held::of([Dtype::F32, Dtype::F32], &numbers, 0);
        let after = before.stepped(Level::detect(), &settings, step);
        let all = |held: &Held| [0, 1, 2, 3].map(|which| held.numbers(which));
        let (old, new) = (all(&before), all(&after));
        for at in 0..numbers.len() {
            let given = [0, 1, 2, 3].map(|which: usize| f64::from(old[which][at]));
            let [p, m, v] = reference(&settings, step, given);
            let pull = if settings.decoupled { 0.0 } else { settings.weight_decay * given[0].abs() };
            let scale = given[1].abs() + pull + given[2].abs();
            assert_close(new[2][at], m, scale, "first moment");
            assert_close(new[3][at], v, (given[1].abs() + pull).powi(2), "second moment");
            // What is uncertain about the moments is uncertain about the way.
            let way = settings.lr / (1.0 - settings.betas.0.powf(step)) * scale
                / ((v / (1.0 - settings.betas.1.powf(step))).sqrt() + settings.eps);
            assert_close(new[0][at], p, given[0].abs() + way * 4.0, "parameter");
        }
    }

    #[test]
    fn every_level_gives_the_same_bits_at_any_alignment(
        settings in settings(), step in 1u32..100, numbers in numbers(100), skew in 0usize..64,
    ) {
        for dtype in DTYPES {
            for gradient in DTYPES {
                let before = Held::of([dtype, gradient], &numbers, skew);
                let expected = before.stepped(Level::Portable, &settings, f64::from(step));
                prop_assert_eq!(&expected.bytes[1], &before.bytes[1]);
                for level in Level::available() {
                    let found = before.stepped(level, &settings, f64::from(step));
                    prop_assert!(found == expected, "{} {:?} {:?}", level, dtype, gradient);
                }
            }
        }
    }

    #[test]
    fn a_run_that_is_cut_takes_the_same_step(
        numbers in numbers(200), cut in any::<prop::sample::Index>(),
    ) {
        let cut = cut.index(numbers.len() + 1);
        for dtype in DTYPES {
            let whole = Held::of([dtype, dtype], &numbers, 0).stepped(Level::detect(), &USUAL, 3.0);
            let parts = [&numbers[..cut], &numbers[cut..]]
                .map(|part| Held::of([dtype, dtype], part, 0).stepped(Level::detect(), &USUAL, 3.0));
            for which in 0..5 {
                let joined = [&parts[0].bytes[which][..], &parts[1].bytes[which]].concat();
                prop_assert!(joined == whole.bytes[which]);
            }
        }
    }

    #[test]
    fn a_half_is_its_master_rounded_and_steps_as_the_master_would_alone(numbers in numbers(60)) {
        for dtype in [Dtype::F16, Dtype::Bf16] {
            let before = Held::of([dtype, Dtype::F32], &numbers, 0);
            let after = before.stepped(Level::detect(), &USUAL, 7.0);
            let alone = Held::of([Dtype::F32, Dtype::F32], &numbers, 0);
            let alone = alone.stepped(Level::detect(), &USUAL, 7.0);
            prop_assert_eq!(&after.bytes[4], &alone.bytes[0]);
            prop_assert_eq!(&after.bytes[0], &bytes_of(dtype, &after.exact()));
        }
    }
}

#[test]
fn what_was_written_over_a_half_counts_and_not_its_master() {
    for level in Level::available() {
        for dtype in [Dtype::F16, Dtype::Bf16] {
            let rows: Vec<[f32; 4]> = (0..21).map(|at| [at as f32 / 7.0, 0.0, 0.0, 0.0]).collect();
            let mut held = Held::of([dtype, dtype], &rows, 0);
            held.bytes[0][2..4].copy_from_slice(&bytes_of(dtype, &[-3.5]));
            let still = Settings { weight_decay: 0.0, ..USUAL };
            let after = held.stepped(level, &still, 1.0).exact();
            for (at, (found, row)) in after.iter().zip(&rows).enumerate() {
                let expected = if at == 1 { -3.5 } else { row[0] };
                assert_eq!(found.to_bits(), expected.to_bits(), "{level} {at}");
            }
        }
    }
}

#[test]
fn a_master_without_a_value_begins_as_the_parameter() {
    let rows = [[0.7, 0.0, 0.0, 0.0], [-0.0, 0.0, 0.0, 0.0], [0.0; 4]];
    let mut held = Held::of([Dtype::Bf16, Dtype::Bf16], &rows, 0);
    held.bytes[4].fill(0);
    let after = held.stepped(Level::detect(), &Settings { weight_decay: 0.0, ..USUAL }, 1.0);
    let expected = held.numbers(0);
    assert!(after.exact().iter().zip(expected).all(|(a, b)| a.to_bits() == b.to_bits()));
}

#[test]
fn infinities_and_nans_stay_what_they_are_and_where_they_are() {
    for level in Level::available() {
        let mut rows = vec![[1.0, 0.5, 0.1, 0.1]; 19];
        rows[3][1] = f32::NAN;
        rows[17][1] = f32::INFINITY;
        let after = Held::of([Dtype::F32; 2], &rows, 0).stepped(level, &USUAL, 2.0);
        for (at, number) in after.numbers(0).iter().enumerate() {
            assert_eq!(number.is_nan(), at == 3 || at == 17, "{level} {at}: {number}");
        }
        assert_eq!(after.numbers(2)[17].to_bits(), f32::INFINITY.to_bits());
    }
}

#[test]
fn what_does_not_fit_together_is_refused_by_name() {
    let rows = [[1.0; 4]; 4];
    for (which, name) in
        [(0, "parameter"), (1, "gradient"), (2, "parameter"), (3, "second"), (4, "master")]
    {
        let mut held = Held::of([Dtype::Bf16, Dtype::F32], &rows, 0);
        held.bytes[which].truncate(8 / (1 + usize::from(which == 0)));
        let error = step(&USUAL.at(1.0), held.run()).unwrap_err();
        assert_eq!(error.kind(), Kind::InvalidInput);
        assert!(error.to_string().contains(&format!("of: {name}")), "{error}");
    }
    let mut held = Held::of([Dtype::F32; 2], &rows, 0);
    held.dtypes[1] = Dtype::F64;
    assert_eq!(step(&USUAL.at(1.0), held.run()).unwrap_err().kind(), Kind::Unsupported);
}

#[test]
fn levels_that_this_processor_lacks_are_refused() {
    for level in Level::ALL.into_iter().filter(|level| !level.is_available()) {
        let mut held = Held::of([Dtype::F32; 2], &[[1.0; 4]], 0);
        let error = step_at(level, &USUAL.at(1.0), held.run()).unwrap_err();
        assert_eq!(error.kind(), Kind::Unsupported);
    }
}
