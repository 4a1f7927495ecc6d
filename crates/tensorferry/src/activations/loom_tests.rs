//! The store itself under loom, with its workers, over an engine that is done at once. A wake-up that
//! is missed, and whatever comes back to the lock while it is held, shows as a deadlock.
//!
//! Waiting for room looks again from time to time; here, where time stands still, it does not: every
//! wake-up must come from who gives room.

use std::sync::Arc;

use super::sizes::staging;
use super::*;
use crate::error::{Kind, Result};
use crate::io::immediate::Immediate;
use crate::memory::Buffer;
use crate::plan::activations::Planner;
use crate::size::Size;
use crate::sync::thread;

const BYTES: usize = 64;

/// Every interleaving with at most so many switches on top of those where a thread waits or ends:
/// two where two threads meet, one where there are three.
fn explore(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

/// A store with room for so many tensors in memory.
fn store(tensors: usize, workers: usize, refuses_writes: bool) -> Store {
    let budget = staging(0, Compress::None).1 + (tensors * BYTES) as u64;
    let config = Config {
        directories: vec!["/scratch".into()],
        budget: Size(budget),
        compress: Compress::None,
        planner: Planner::Timeline,
    };
    Store::with_workers(Arc::new(Immediate::new(refuses_writes)), config, workers).unwrap()
}

/// Saves a tensor.
fn save(store: &Store, value: u8) -> Result<Saved> {
    let operation = Operation { thread: 0, number: value.into() };
    let bytes = BYTES as u64;
    let tensor = Tensor { name: "a tensor", bytes, element: Element::Other, operation };
    let admission = store.admit(&tensor, None)?.unwrap();
    let buffer = Buffer::copy_of(&[value; BYTES]).unwrap();
    store.save(admission, || Ok(buffer.into()))
}

/// Waits until nothing is in memory: what a worker still reads for a tensor that is gone counts until
/// then. If any of it was lost, nobody would ever wake.
fn wait_for_all_room(store: &Store, tensors: usize) {
    store.begin().unwrap();
    let bytes = (tensors * BYTES) as u64;
    let operation = Operation { thread: 0, number: 0 };
    let tensor = Tensor { name: "all", bytes, element: Element::Other, operation };
    drop(store.admit(&tensor, None).unwrap().unwrap());
}

fn first_byte(saved: &Saved) -> u8 {
    saved.take(None).unwrap().unwrap()[0]
}

#[test]
fn loom_a_tensor_gets_the_room_of_one_that_leaves_and_both_come_back() {
    explore(2, || {
        let store = store(1, 1, false);
        store.begin().unwrap();
        let (first, second) = (save(&store, 1).unwrap(), save(&store, 2).unwrap());
        store.end(true).unwrap();
        assert_eq!(first_byte(&second), 2);
        drop(second);
        assert_eq!(first_byte(&first), 1);
    });
}

#[test]
fn loom_two_threads_share_room_for_one_tensor() {
    explore(1, || {
        let store = store(1, 1, false);
        let step = |store: &Store, value| {
            store.begin().unwrap();
            let saved = save(store, value).unwrap();
            store.end(true).unwrap();
            assert_eq!(first_byte(&saved), value);
        };
        let other = thread::spawn({
            let store = store.clone();
            move || step(&store, 1)
        });
        step(&store, 2);
        other.join().unwrap();
    });
}

#[test]
fn loom_a_graph_dropped_at_any_moment_gives_its_room_to_who_waits() {
    explore(1, || {
        let store = store(1, 1, false);
        store.begin().unwrap();
        let dropped = save(&store, 1).unwrap();
        let other = thread::spawn(move || drop(dropped));
        let kept = save(&store, 2).unwrap();
        store.end(true).unwrap();
        assert_eq!(first_byte(&kept), 2);
        drop(kept);
        other.join().unwrap();
        wait_for_all_room(&store, 1);
    });
}

#[test]
fn loom_memory_that_outlives_its_tensor_gives_its_room_to_who_waits() {
    explore(2, || {
        let store = store(1, 1, false);
        store.begin().unwrap();
        let saved = save(&store, 1).unwrap();
        store.end(true).unwrap();
        let memory = saved.take(None).unwrap();
        drop(saved);
        let other = thread::spawn(move || drop(memory));
        store.begin().unwrap();
        drop(save(&store, 2).unwrap());
        other.join().unwrap();
    });
}

#[test]
fn loom_a_tensor_on_its_way_back_can_be_dropped() {
    explore(1, || {
        let store = store(2, 1, false);
        store.begin().unwrap();
        let saved = [1, 2, 3].map(|value| save(&store, value).unwrap());
        store.end(true).unwrap();
        let [first, second, third] = saved;
        assert_eq!(first_byte(&third), 3);
        drop(third);
        // By now the others are fetched ahead.
        let other = thread::spawn(move || drop(second));
        assert_eq!(first_byte(&first), 1);
        other.join().unwrap();
        drop(first);
        wait_for_all_room(&store, 2);
    });
}

#[test]
fn loom_a_write_that_fails_is_told_to_everybody_who_waits() {
    explore(1, || {
        let store = store(1, 1, true);
        store.begin().unwrap();
        let first = save(&store, 1).unwrap();
        let other = thread::spawn({
            let store = store.clone();
            move || save(&store, 2).map(drop).unwrap_err().kind()
        });
        let error = save(&store, 3).map(drop).unwrap_err();
        assert_eq!(error.kind(), Kind::OutOfSpace);
        assert_eq!(other.join().unwrap(), Kind::OutOfSpace);
        assert_eq!(store.end(true).unwrap_err().kind(), Kind::OutOfSpace);
        drop(first);
        // The next step begins without it.
        store.begin().unwrap();
    });
}
