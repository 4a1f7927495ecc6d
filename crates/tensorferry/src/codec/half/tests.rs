//! Halves against a slow reference that is obviously right, and every level against the portable
//! one.

use std::ops::RangeInclusive;

use proptest::prelude::*;

use super::*;
use crate::error::Kind;

/// The value of a positive half; an infinity counts as the next power of two, as it does when
/// numbers are rounded to it.
fn value(format: Format, half: u16) -> f64 {
    let (fraction_bits, bias) = match format {
        Format::F16 => (10, 15),
        Format::Bf16 => (7, 127),
    };
    let exponent = i32::from(half >> fraction_bits);
    let fraction = f64::from(half & ((1 << fraction_bits) - 1)) / f64::from(1 << fraction_bits);
    if exponent == 0 {
        fraction * 2f64.powi(1 - bias)
    } else {
        (1.0 + fraction) * 2f64.powi(exponent - bias)
    }
}

fn infinity(format: Format) -> u16 {
    match format {
        Format::F16 => 0x7c00,
        Format::Bf16 => 0x7f80,
    }
}

/// The bits of the positive `f32`s that round to a positive half: from the middle between it and
/// the one below to the middle between it and the one above, with the middles if it is even. The
/// middles are `f32`s, since they have only one bit more than halves.
fn rounds_to(format: Format, half: u16) -> RangeInclusive<u32> {
    let middle = |below: u16| {
        let middle = f64::midpoint(value(format, below), value(format, below + 1));
        let exact = middle as f32;
        assert_eq!(f64::from(exact).to_bits(), middle.to_bits());
        exact.to_bits()
    };
    let odd = u32::from(half % 2);
    let first = if half == 0 { 0 } else { middle(half - 1) + odd };
    let last = if half == infinity(format) { f32::INFINITY.to_bits() } else { middle(half) - odd };
    first..=last
}

/// Rounding, by definition: searches the half whose range holds the number.
fn reference(format: Format, bits: u32) -> u16 {
    let sign = (bits >> 16) as u16 & 0x8000;
    let magnitude = bits & 0x7fff_ffff;
    if f32::from_bits(bits).is_nan() {
        return match format {
            Format::F16 => sign | 0x7e00 | (magnitude >> 13) as u16 & 0x03ff,
            Format::Bf16 => (bits >> 16) as u16 | 0x0040,
        };
    }
    let (mut low, mut high) = (0, infinity(format));
    while low < high {
        let middle = u16::midpoint(low, high);
        if magnitude <= *rounds_to(format, middle).end() { high = middle } else { low = middle + 1 }
    }
    sign | low
}

fn narrowed(level: Level, format: Format, numbers: &[u32]) -> Vec<u16> {
    let src: Vec<u8> = numbers.iter().flat_map(|bits| bits.to_le_bytes()).collect();
    let mut dst = vec![0; src.len() / 2];
    narrow_at(level, format, &src, &mut dst).unwrap();
    dst.as_chunks().0.iter().map(|half| u16::from_le_bytes(*half)).collect()
}

fn widened(level: Level, format: Format, halves: &[u16]) -> Vec<u32> {
    let src: Vec<u8> = halves.iter().flat_map(|half| half.to_le_bytes()).collect();
    let mut dst = vec![0; src.len() * 2];
    widen_at(level, format, &src, &mut dst).unwrap();
    dst.as_chunks().0.iter().map(|number| u32::from_le_bytes(*number)).collect()
}

fn is_nan(format: Format, half: u16) -> bool {
    half & 0x7fff > infinity(format)
}

#[test]
fn every_half_is_widened_to_its_value_at_every_level() {
    let halves: Vec<u16> = (0..=u16::MAX).collect();
    for (level, format) in Level::available().flat_map(|level| Format::ALL.map(|f| (level, f))) {
        for (half, bits) in halves.iter().zip(widened(level, format, &halves)) {
            let number = f32::from_bits(bits);
            assert_eq!(number.is_sign_negative(), half >> 15 == 1);
            if is_nan(format, *half) {
                let expected = match format {
                    Format::F16 => {
                        u32::from(half & 0x8000) << 16
                            | 0x7fc0_0000
                            | (u32::from(*half) & 0x3ff) << 13
                    }
                    Format::Bf16 => u32::from(*half) << 16,
                };
                assert_eq!(bits, expected, "{level} {format:?} {half:#x}");
            } else if half & 0x7fff == infinity(format) {
                assert!(number.is_infinite(), "{level} {format:?} {half:#x}");
            } else {
                let magnitude = value(format, half & 0x7fff);
                assert_eq!(f64::from(number.abs()).to_bits(), magnitude.to_bits(), "{half:#x}");
            }
        }
    }
}

#[test]
fn every_half_comes_back_from_f32_as_it_was_but_for_quieted_nans() {
    let halves: Vec<u16> = (0..=u16::MAX).collect();
    for (level, format) in Level::available().flat_map(|level| Format::ALL.map(|f| (level, f))) {
        let back = narrowed(level, format, &widened(level, format, &halves));
        let quiet = match format {
            Format::F16 => 0x0200,
            Format::Bf16 => 0x0040,
        };
        for (half, back) in halves.iter().zip(back) {
            let expected = if is_nan(format, *half) { half | quiet } else { *half };
            assert_eq!(back, expected, "{level} {format:?} {half:#x}");
        }
    }
}

/// The last number that rounds down, the middle and the first that rounds up, around every half.
#[test]
fn numbers_at_every_boundary_round_to_nearest_even_at_every_level() {
    for format in Format::ALL {
        let near = |half: u16| {
            let range = rounds_to(format, half);
            [range.start().saturating_sub(1), *range.start(), *range.end(), range.end() + 1]
        };
        let numbers: Vec<u32> = (0..=infinity(format))
            .flat_map(near)
            .flat_map(|bits| [bits, bits | 0x8000_0000])
            .collect();
        let expected: Vec<u16> = numbers.iter().map(|bits| reference(format, *bits)).collect();
        for level in Level::available() {
            assert!(narrowed(level, format, &numbers) == expected, "{level} {format:?}");
        }
    }
}

#[test]
fn nans_stay_nans_and_infinities_stay_infinities() {
    let nans = [0x7f80_0001, 0x7fbf_ffff, 0x7fc0_0000, 0x7fff_ffff, 0x7f80_2000, 0x7f81_0000];
    let nans: Vec<u32> = nans.iter().flat_map(|bits| [*bits, bits | 0x8000_0000]).collect();
    for (level, format) in Level::available().flat_map(|level| Format::ALL.map(|f| (level, f))) {
        for (bits, half) in nans.iter().zip(narrowed(level, format, &nans)) {
            assert!(is_nan(format, half), "{level} {format:?} {bits:#x}");
            assert_eq!(half, reference(format, *bits), "{level} {format:?} {bits:#x}");
        }
        let infinities = [f32::INFINITY.to_bits(), f32::NEG_INFINITY.to_bits(), 0, 0x8000_0000];
        let expected = [infinity(format), infinity(format) | 0x8000, 0, 0x8000];
        assert_eq!(narrowed(level, format, &infinities), expected, "{level} {format:?}");
    }
}

#[test]
fn well_known_numbers_have_their_well_known_halves() {
    for (number, f16, bf16) in [
        (1.0, 0x3c00, 0x3f80),
        (-2.0, 0xc000, 0xc000),
        (65504.0, 0x7bff, 0x4780),
        (65519.996, 0x7bff, 0x4780),
        (65520.0, 0x7c00, 0x4780),
        (f32::MAX, 0x7c00, 0x7f80),
        (5.960_464_5e-8, 0x0001, 0x3380),
        (2.980_232_2e-8, 0x0000, 0x3300),
        (f32::from_bits(1), 0x0000, 0x0000),
        (0.1, 0x2e66, 0x3dcd),
    ] {
        assert_eq!(narrow_one(Format::F16, number), f16, "{number}");
        assert_eq!(narrow_one(Format::Bf16, number), bf16, "{number}");
    }
    assert_eq!(widen_one(Format::F16, 0x3555).to_bits(), 0x3eaa_a000);
    assert_eq!(widen_one(Format::Bf16, 0x3f80).to_bits(), 1.0f32.to_bits());
}

#[test]
fn lengths_that_do_not_match_are_refused() {
    for (from, to) in [(3, 1), (4, 4), (8, 3), (0, 2), (2, 1)] {
        let error = narrow(Format::F16, &vec![0; from], &mut vec![0; to]).unwrap_err();
        assert_eq!(error.kind(), Kind::InvalidInput, "{from} {to}");
    }
    for (from, to) in [(1, 2), (2, 2), (2, 5), (0, 1), (4, 9)] {
        let error = widen(Format::Bf16, &vec![0; from], &mut vec![0; to]).unwrap_err();
        assert_eq!(error.kind(), Kind::InvalidInput, "{from} {to}");
    }
}

#[test]
fn levels_that_this_processor_lacks_are_refused() {
    for level in Level::ALL.into_iter().filter(|level| !level.is_available()) {
        let error = narrow_at(level, Format::F16, &[0; 4], &mut [0; 2]).unwrap_err();
        assert_eq!(error.kind(), Kind::Unsupported);
        assert!(widen_at(level, Format::F16, &[0; 2], &mut [0; 4]).is_err());
    }
}

/// Goes through all 2^32 numbers by the ranges that round to each half.
#[test]
#[ignore = "all 2^32 numbers at every level: a minute in a release build"]
fn every_f32_rounds_to_nearest_even_at_every_level() {
    for (level, format) in Level::available().flat_map(|level| Format::ALL.map(|f| (level, f))) {
        let mut next = 0;
        for half in 0..=infinity(format) {
            let range = rounds_to(format, half);
            assert_eq!(*range.start(), next);
            next = range.end() + 1;
            let range: Vec<u32> = range.collect();
            for part in range.chunks(1 << 16) {
                assert!(narrowed(level, format, part).iter().all(|got| *got == half));
                let negative: Vec<u32> = part.iter().map(|bits| bits | 0x8000_0000).collect();
                let got = narrowed(level, format, &negative);
                assert!(got.iter().all(|got| *got == half | 0x8000), "{level} {half:#x}");
            }
        }
        assert_eq!(next, 0x7f80_0001);
        let nans: Vec<u32> = (next..0x8000_0000).flat_map(|n| [n, n | 0x8000_0000]).collect();
        for part in nans.chunks(1 << 16) {
            let expected = part.iter().map(|bits| reference(format, *bits));
            assert!(narrowed(level, format, part).into_iter().eq(expected), "{level} {format:?}");
        }
    }
}

proptest! {
    #[test]
    fn random_numbers_round_as_the_reference_does(bits in any::<u32>()) {
        for format in Format::ALL {
            prop_assert_eq!(narrow_one(format, f32::from_bits(bits)), reference(format, bits));
        }
    }

    /// Lengths on both sides of where outputs are streamed, and any alignment.
    #[test]
    fn every_level_agrees_with_the_portable_one_at_any_alignment(
        numbers in prop::collection::vec(any::<u32>(), 0..4000),
        src_skew in 0usize..64,
        dst_skew in 0usize..64,
    ) {
        let mut src = vec![0; src_skew];
        src.extend(numbers.iter().flat_map(|bits| bits.to_le_bytes()));
        let src = &src[src_skew..];
        for format in Format::ALL {
            for level in Level::available() {
                let mut expected = vec![0; src.len() / 2];
                narrow_at(Level::Portable, format, src, &mut expected).unwrap();
                let mut dst = vec![0x77; dst_skew + expected.len() + 64];
                let out = &mut dst[dst_skew..][..expected.len()];
                narrow_at(level, format, src, out).unwrap();
                prop_assert!(*out == expected, "{} {:?}", level, format);
                prop_assert!(dst[dst_skew + expected.len()..].iter().all(|byte| *byte == 0x77));
                prop_assert!(dst[..dst_skew].iter().all(|byte| *byte == 0x77));

                let mut expected = vec![0; src.len() * 2];
                widen_at(Level::Portable, format, src, &mut expected).unwrap();
                let mut dst = vec![0x77; dst_skew + expected.len() + 64];
                let out = &mut dst[dst_skew..][..expected.len()];
                widen_at(level, format, src, out).unwrap();
                prop_assert!(*out == expected, "{} {:?}", level, format);
                prop_assert!(dst[dst_skew + expected.len()..].iter().all(|byte| *byte == 0x77));
                prop_assert!(dst[..dst_skew].iter().all(|byte| *byte == 0x77));
            }
        }
    }
}
