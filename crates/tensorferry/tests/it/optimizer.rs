//! Optimizer state on SSD: the same steps as in memory, and never a mixture of two.

mod crash;

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use proptest::prelude::*;
use tensorferry::codec::adam::{Run, Settings};
use tensorferry::dtype::Dtype;
use tensorferry::io::{self, Choice, Effect, Engine, Fault, Faults, On};
use tensorferry::parameters::optimizer::{self, CHUNK_BYTES, Contents, Shape, Store, Tensor, Work};
use tensorferry::{Kind, Result};

/// Elements of a chunk without masters.
const CHUNK: usize = CHUNK_BYTES / 8;

const SETTINGS: Settings = Settings {
    lr: 0.01,
    betas: (0.9, 0.99),
    eps: 1e-8,
    weight_decay: 0.1,
    decoupled: true,
    maximize: false,
};

/// A model in memory: parameters, and state as the memory keeper has it.
#[derive(Clone, PartialEq)]
struct Model(Vec<Weight>);

#[derive(Clone, PartialEq)]
struct Weight {
    dtype: Dtype,
    parameter: Vec<u8>,
    state: [Vec<u8>; 3],
}

impl Weight {
    fn new(elements: usize, dtype: Dtype) -> Self {
        let master = if dtype == Dtype::F32 { 0 } else { elements * 4 };
        let state = [vec![0; elements * 4], vec![0; elements * 4], vec![0; master]];
        Self { dtype, parameter: vec![0; elements * dtype.bytes() as usize], state }
    }

    fn elements(&self) -> usize {
        self.state[0].len() / 4
    }
}

impl Model {
    fn of(sizes: &[usize]) -> Self {
        let dtypes = [Dtype::F32, Dtype::Bf16, Dtype::F32, Dtype::F16];
        let weights = sizes.iter().zip(dtypes.into_iter().cycle());
        Self(weights.map(|(elements, dtype)| Weight::new(*elements, dtype)).collect())
    }

    fn shapes(&self) -> Vec<Shape> {
        let shape = |(number, weight): (usize, &Weight)| Shape {
            name: format!("w{number}"),
            elements: weight.elements() as u64,
            master: weight.dtype != Dtype::F32,
        };
        self.0.iter().enumerate().map(shape).collect()
    }

    fn parameters(&self) -> Vec<&[u8]> {
        self.0.iter().map(|weight| &*weight.parameter).collect()
    }
}

/// Gradients of a step for every element, as `f32`.
fn gradient(elements: usize, step: usize) -> Vec<u8> {
    let number = |at: usize| ((at * 7 + step * 131) % 97) as f32 / 48.0 - 1.0;
    (0..elements).flat_map(|at| number(at).to_le_bytes()).collect()
}

/// Which tensors have a gradient in a step.
fn moves(number: usize, step: usize) -> bool {
    !(number + step).is_multiple_of(5)
}

fn step_in_memory(model: &mut Model, step: usize) {
    let gradients: Vec<_> = model.0.iter().map(|it| gradient(it.elements(), step)).collect();
    let weights = model.0.iter_mut().zip(&gradients).enumerate();
    let tensors =
        weights.filter(|(number, _)| moves(*number, step)).map(|(_, (weight, gradient))| {
            let [first, second, master] = &mut weight.state;
            let run = Run {
                dtype: weight.dtype,
                parameter: &mut weight.parameter,
                gradient_dtype: Dtype::F32,
                gradient,
                first,
                second,
                master,
            };
            Tensor { name: "w", factors: SETTINGS.at(step as f64), run }
        });
    optimizer::step(tensors.collect(), 1).unwrap();
}

fn step_on_disk(store: &mut Store, model: &mut Model, step: usize, threads: usize) -> Result<()> {
    let gradients: Vec<_> = model.0.iter().map(|it| gradient(it.elements(), step)).collect();
    let weights = model.0.iter_mut().zip(&gradients).enumerate();
    let work =
        weights.filter(|(number, _)| moves(*number, step)).map(|(tensor, (weight, gradient))| {
            Work {
                tensor,
                step: step as f64,
                factors: SETTINGS.at(step as f64),
                dtype: weight.dtype,
                parameter: &mut weight.parameter,
                gradient_dtype: Dtype::F32,
                gradient,
            }
        });
    store.step(work.collect(), threads)
}

fn contents<'a>(model: &'a mut Model, steps: &[f64]) -> Vec<Contents<'a>> {
    let weights = model.0.iter_mut().zip(steps).enumerate();
    let one = |(tensor, (weight, step)): (usize, (&'a mut Weight, &f64))| {
        let [first, second, master] = &mut weight.state;
        Contents { tensor, step: *step, first, second, master }
    };
    weights.map(one).collect()
}

/// The model with the state of a store.
fn read(store: &Store, model: &Model) -> Result<Model> {
    let mut read = model.clone();
    store.read(contents(&mut read, &vec![0.0; model.0.len()]), 2)?;
    Ok(read)
}

fn engine(choice: Choice, faults: &Faults) -> Arc<dyn Engine> {
    io::open(&io::Config { faults: Some(faults.clone()), ..io::Config::of(choice) }).unwrap()
}

fn store(engine: &Arc<dyn Engine>, directory: &Path, model: &Model) -> Store {
    let mut store = Store::create(engine, directory).unwrap();
    assert_eq!(store.add(model.shapes()).unwrap(), 0);
    store
}

const SIZES: [usize; 6] = [2 * CHUNK + 77, CHUNK, 5, CHUNK / 2, 1, 300];

#[test]
fn steps_on_disk_are_those_in_memory_bit_for_bit_on_every_engine() {
    for (choice, faults, threads) in [
        (Choice::Auto, Faults::new(), 1),
        (Choice::Auto, Faults::new(), 4),
        (Choice::Threads, Faults::new(), 2),
        (Choice::Threads, Faults::chaos(7), 2),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let (mut there, mut here) = (Model::of(&SIZES), Model::of(&SIZES));
        let mut store = store(&engine(choice, &faults), directory.path(), &there);
        for step in 1..6 {
            step_on_disk(&mut store, &mut there, step, threads).unwrap();
            step_in_memory(&mut here, step);
        }
        assert!(read(&store, &there).unwrap() == here);
        let report = store.report();
        assert_eq!((report.steps, report.read_bytes), (5, report.written_bytes));
    }
}

#[test]
fn tensors_that_come_later_are_added_behind() {
    let directory = tempfile::tempdir().unwrap();
    let (mut there, mut here) = (Model::of(&[]), Model::of(&[]));
    let mut store = store(&engine(Choice::Auto, &Faults::new()), directory.path(), &there);
    for step in 1..4 {
        let more = Model::of(&[100 * step, CHUNK, 7]);
        store.add(more.shapes()).unwrap();
        there.0.extend(more.0.clone());
        here.0.extend(more.0);
        step_on_disk(&mut store, &mut there, step, 2).unwrap();
        step_in_memory(&mut here, step);
    }
    assert!(read(&store, &there).unwrap() == here);
}

#[test]
fn what_is_loaded_is_what_the_next_step_goes_on_from() {
    let directory = tempfile::tempdir().unwrap();
    let mut here = Model::of(&SIZES);
    (1..4).for_each(|step| step_in_memory(&mut here, step));
    let other = Model::of(&[10, CHUNK]);
    let mut store = store(&engine(Choice::Auto, &Faults::new()), directory.path(), &other);
    store.load(here.shapes(), contents(&mut here, &[3.0; SIZES.len()]), 2).unwrap();
    assert!(store.tensors().all(|(_, step)| step.to_bits() == 3f64.to_bits()));
    let mut there = here.clone();
    step_on_disk(&mut store, &mut there, 4, 2).unwrap();
    step_in_memory(&mut here, 4);
    assert!(read(&store, &there).unwrap() == here);
}

#[test]
fn a_state_is_resumed_with_its_own_parameters_only() {
    let directory = tempfile::tempdir().unwrap();
    let engine = engine(Choice::Auto, &Faults::new());
    let (mut there, mut here) = (Model::of(&SIZES), Model::of(&SIZES));
    let mut first = store(&engine, directory.path(), &there);
    for step in 1..3 {
        step_on_disk(&mut first, &mut there, step, 2).unwrap();
        step_in_memory(&mut here, step);
    }
    let busy = Store::resume(&engine, directory.path()).err().unwrap();
    assert_eq!(busy.kind(), Kind::NotFound);
    drop(first);
    let mut second = Store::resume(&engine, directory.path()).unwrap();
    let shapes: Vec<_> = second.tensors().map(|(shape, _)| shape.clone()).collect();
    assert_eq!(shapes, there.shapes());
    assert!(step_on_disk(&mut second, &mut there.clone(), 3, 2).is_err(), "not looked at yet");
    let mut other = there.clone();
    other.0[1].parameter[2 * CHUNK / 3] ^= 1;
    let error = second.belongs_to(&other.parameters()).unwrap_err();
    assert!(error.to_string().contains("parameter: w1"), "{error}");
    assert!(second.belongs_to(&other.parameters()[1..]).is_err());
    second.belongs_to(&there.parameters()).unwrap();
    step_on_disk(&mut second, &mut there, 3, 2).unwrap();
    step_in_memory(&mut here, 3);
    assert!(read(&second, &there).unwrap() == here);
    drop(second);
    let file = directory.path().join("optimizer-0.state");
    std::fs::OpenOptions::new().write(true).open(&file).unwrap().set_len(4096).unwrap();
    assert_eq!(Store::resume(&engine, directory.path()).err().unwrap().kind(), Kind::Truncated);
}

#[test]
fn a_fault_names_the_parameter_and_no_step_follows_until_a_checkpoint_is_loaded() {
    for (on, effect, kind) in [
        (On::Read, Effect::Fail(libc::EIO), Kind::Io),
        (On::Write, Effect::Fail(libc::EIO), Kind::Io),
        (On::Write, Effect::Fail(libc::ENOSPC), Kind::OutOfSpace),
        (On::Write, Effect::Tear(CHUNK_BYTES as u64 + 1000), Kind::Io),
    ] {
        for after in [0, 1, 4] {
            let directory = tempfile::tempdir().unwrap();
            let faults = Faults::new();
            let engine = engine(Choice::Threads, &faults);
            let (mut there, mut here) = (Model::of(&SIZES), Model::of(&SIZES));
            let mut store = store(&engine, directory.path(), &there);
            step_on_disk(&mut store, &mut there, 1, 2).unwrap();
            step_in_memory(&mut here, 1);
            faults.add(Fault::new(on, effect).after(after));
            let torn = matches!(effect, Effect::Tear(_));
            if torn && after > 0 {
                continue;
            }
            let error = step_on_disk(&mut store, &mut there, 2, 2).unwrap_err();
            assert_eq!(error.kind(), kind, "{error}");
            assert!(error.to_string().contains("half changed"), "{error}");
            assert!(error.to_string().contains("parameter: w"), "{error}");
            assert!(!error.is_retryable());
            for _ in 0..2 {
                let later = step_on_disk(&mut store, &mut there, 2, 2).unwrap_err();
                assert_eq!(later.kind(), Kind::Corrupt, "{later}");
                assert!(later.to_string().contains("earlier step"), "{later}");
            }
            assert!(read(&store, &there).is_err());
            if torn {
                // Nothing works with this engine any more.
                continue;
            }
            let shapes = here.shapes();
            faults.add(Fault::new(On::Write, Effect::Fail(libc::EIO)));
            assert!(
                store.load(shapes.clone(), contents(&mut here, &[1.0; SIZES.len()]), 2).is_err()
            );
            assert!(step_on_disk(&mut store, &mut there, 2, 2).is_err());
            store.load(shapes, contents(&mut here, &[1.0; SIZES.len()]), 2).unwrap();
            let mut again = here.clone();
            step_on_disk(&mut store, &mut again, 2, 2).unwrap();
            step_in_memory(&mut here, 2);
            assert!(read(&store, &again).unwrap() == here);
        }
    }
}

#[test]
fn a_step_that_failed_can_not_be_resumed() {
    let directory = tempfile::tempdir().unwrap();
    let faults = Faults::new();
    let engine = engine(Choice::Threads, &faults);
    let mut model = Model::of(&SIZES);
    let mut store = store(&engine, directory.path(), &model);
    step_on_disk(&mut store, &mut model, 1, 2).unwrap();
    faults.add(Fault::new(On::Write, Effect::Fail(libc::EIO)).after(2));
    step_on_disk(&mut store, &mut model, 2, 2).unwrap_err();
    drop(store);
    let error = Store::resume(&engine, directory.path()).err().unwrap();
    assert_eq!(error.kind(), Kind::Corrupt);
    assert!(error.to_string().contains("middle of a step"), "{error}");
    drop(Store::create(&engine, directory.path()).unwrap());
    assert_eq!(Store::resume(&engine, directory.path()).unwrap().tensors().count(), 0);
}

#[test]
fn a_file_that_can_not_grow_shows_before_anything_has_changed() {
    let directory = tempfile::tempdir().unwrap();
    let mut model = Model::of(&[1000]);
    let mut store = store(&engine(Choice::Auto, &Faults::new()), directory.path(), &model);
    step_on_disk(&mut store, &mut model, 1, 2).unwrap();
    // 4 TiB: more than disks that run tests have to spare, and few enough chunks to be listed.
    let huge = Shape { name: "huge".into(), elements: 1 << 39, master: false };
    let error = store.add(vec![huge]).unwrap_err();
    assert!(error.to_string().contains("state of the optimizer"), "{error}");
    assert_eq!(store.tensors().count(), 1);
    step_on_disk(&mut store, &mut model, 2, 2).unwrap();
}

#[test]
fn tensors_that_could_not_be_written_down_are_not_there_and_can_be_added_again() {
    let (faults, directory) = (Faults::new(), tempfile::tempdir().unwrap());
    let engine = engine(Choice::Auto, &faults);
    let mut model = Model::of(&[300]);
    let mut store = store(&engine, directory.path(), &model);
    step_on_disk(&mut store, &mut model, 1, 1).unwrap();
    let (ledger, aside) = (store.path().with_extension("ledger"), directory.path().join("aside"));
    std::fs::rename(&ledger, &aside).unwrap();
    std::fs::create_dir(&ledger).unwrap();
    let shapes = || Model::of(&[700]).shapes();
    store.add(shapes()).unwrap_err();
    assert_eq!(store.tensors().count(), 1);
    std::fs::remove_dir(&ledger).unwrap();
    std::fs::rename(&aside, &ledger).unwrap();
    assert_eq!(store.add(shapes()).unwrap(), 1);
    drop(store);
    let resumed = Store::resume(&engine, directory.path()).unwrap();
    assert_eq!(resumed.tensors().map(|(_, steps)| steps).collect::<Vec<_>>(), [1.0, 0.0]);
}

/// Flips one bit of the state file.
fn flip(directory: &Path, at: u64) {
    let path = directory.join("optimizer-0.state");
    let file = std::fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 16], at).unwrap();
    file.sync_all().unwrap();
}

#[test]
fn a_flipped_bit_is_noticed_and_named() {
    for (at, name) in [(1000, "w0"), (CHUNK_BYTES as u64 + 9, "w0")] {
        let directory = tempfile::tempdir().unwrap();
        let mut model = Model::of(&SIZES);
        let engine = engine(Choice::Auto, &Faults::new());
        let mut store = store(&engine, directory.path(), &model);
        step_on_disk(&mut store, &mut model, 1, 2).unwrap();
        flip(directory.path(), at);
        let error = read(&store, &model).err().unwrap();
        assert_eq!(error.kind(), Kind::Corrupt);
        assert!(error.to_string().contains(&format!("parameter: {name}")), "{error}");
        let error = step_on_disk(&mut store, &mut model, 2, 2).unwrap_err();
        assert_eq!(error.kind(), Kind::Corrupt);
    }
}

#[test]
fn work_that_does_not_fit_is_refused_and_breaks_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let mut model = Model::of(&[100, 100]);
    let mut store = store(&engine(Choice::Auto, &Faults::new()), directory.path(), &model);
    let mut wrong = Model::of(&[100, 101]);
    assert!(step_on_disk(&mut store, &mut wrong, 1, 2).is_err());
    let mut wrong = Model::of(&[100, 100, 100]);
    assert!(step_on_disk(&mut store, &mut wrong, 1, 2).is_err());
    wrong.0.remove(0);
    assert!(step_on_disk(&mut store, &mut wrong, 1, 2).is_err(), "other dtypes");
    let mut short = Model::of(&[100, 99]);
    assert!(store.read(contents(&mut short, &[0.0; 2]), 1).is_err());
    step_on_disk(&mut store, &mut model, 1, 2).unwrap();
    assert!(read(&store, &model).is_ok());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_model_takes_the_same_steps_on_disk_as_in_memory(
        batches in prop::collection::vec(
            prop::collection::vec(prop_oneof![0usize..2000, 100_000..400_000usize], 0..5), 1..4),
        threads in 1usize..5,
    ) {
        let directory = tempfile::tempdir().unwrap();
        let (mut there, mut here) = (Model::of(&[]), Model::of(&[]));
        let mut store = store(&engine(Choice::Auto, &Faults::new()), directory.path(), &there);
        for (step, sizes) in batches.iter().enumerate() {
            let more = Model::of(sizes);
            store.add(more.shapes()).unwrap();
            there.0.extend(more.0.clone());
            here.0.extend(more.0);
            step_on_disk(&mut store, &mut there, step + 1, threads).unwrap();
            step_in_memory(&mut here, step + 1);
        }
        prop_assert!(read(&store, &there).unwrap() == here);
    }
}
