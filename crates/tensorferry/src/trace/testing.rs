//! What the tests of several files need: turns, and the file read back.

use std::fs;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::Value;

use super::Trace;

/// The trace is one for the process, and so is this lock: tests that turn it on take turns.
static TURN: Mutex<()> = Mutex::new(());

pub(super) fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn written(trace: &Trace) -> Value {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("trace.json");
    trace.write_to(&path).unwrap();
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "only the trace is left");
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// The records of a category of ours: tests beside this one may be traced too.
pub(super) fn records<'a>(json: &'a Value, category: &'a str) -> impl Iterator<Item = &'a Value> {
    let all = json["traceEvents"].as_array().unwrap().iter();
    all.filter(move |record| record["cat"] == category)
}

pub(super) fn time(record: &Value) -> f64 {
    record["ts"].as_f64().unwrap()
}
