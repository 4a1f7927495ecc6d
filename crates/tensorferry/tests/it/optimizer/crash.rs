//! A process that takes steps is killed at any moment: its state is that of a whole step, or is
//! refused.

use std::path::PathBuf;
use std::time::Duration;

use tensorferry::Kind;
use tensorferry::io::{Choice, Config, Faults, open};
use tensorferry::parameters::optimizer::Store;

use super::{CHUNK, Model, engine, read, step_in_memory, step_on_disk, store};
use crate::victim::start_and_kill;

const KILLS: usize = 60;

/// What is killed.
const CHILD: &str = "optimizer::crash::takes_steps_until_it_is_killed";

/// Where the child keeps its state.
const DIRECTORY: &str = "TENSORFERRY_TEST_OPTIMIZER";

fn model() -> Model {
    Model::of(&[2 * CHUNK, CHUNK, 1000])
}

#[test]
fn a_process_that_is_killed_at_any_moment_leaves_a_whole_state_or_an_error() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (mut random, mut whole, mut refused) = (0x5EED_u64, 0, 0);
    for _ in 0..KILLS {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let moment = Duration::from_micros((random >> 33) % 150_000);
        start_and_kill(CHILD, (DIRECTORY, directory.path()), "stepped", moment);
        let engine = engine(Choice::Auto, &Faults::new());
        match Store::resume(&engine, directory.path()) {
            Ok(mut left) => {
                let steps = left.tensors().map(|(_, step)| step as usize).max().unwrap();
                let mut here = model();
                (1..=steps).for_each(|step| step_in_memory(&mut here, step));
                left.belongs_to(&here.parameters()).unwrap();
                let mut there = here.clone();
                assert!(read(&left, &there).unwrap() == here, "the state of step {steps}");
                step_on_disk(&mut left, &mut there, steps + 1, 2).unwrap();
                whole += 1;
            }
            Err(error) => {
                assert_eq!(error.kind(), Kind::Corrupt, "{error}");
                assert!(error.to_string().contains("middle of a step"), "{error}");
                refused += 1;
            }
        }
    }
    eprintln!("{whole} states were whole, {refused} refused");
    assert!(whole > 0 && refused > 0, "both must have been tried: {whole} and {refused}");
}

#[test]
#[ignore = "for a process of its own: a_process_that_is_killed_at_any_moment_leaves_a_whole_state_or_an_error"]
fn takes_steps_until_it_is_killed() {
    let directory = PathBuf::from(std::env::var_os(DIRECTORY).expect("a directory"));
    let (engine, mut model) = (open(&Config::default()).unwrap(), model());
    let mut store = store(&engine, &directory, &model);
    for step in 1.. {
        step_on_disk(&mut store, &mut model, step, 2).unwrap();
        if step == 1 {
            println!("stepped");
        }
    }
}
