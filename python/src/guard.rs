//! The one door from Python into the core.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::prelude::*;
use tensorferry::error::panic_text;
use tensorferry::{Error, Kind, Result, interrupt};

use crate::errors::exception;

/// Runs `work` without the GIL; its failure, or its panic, becomes an exception of ours.
///
/// A panic that left the binding by itself would arrive as `PanicException`, a `BaseException`
/// that `except Exception` lets through and that kills a `DataLoader` worker without a word. Inline
/// it becomes `Internal`. The panic hook has printed the place on standard error by then.
pub fn guarded<T: Send>(py: Python<'_>, work: impl FnOnce() -> Result<T> + Send) -> PyResult<T> {
    // Nothing that `work` captured is looked at after a panic: the closure is consumed, and what
    // the core shares between threads is left consistent by its own locks.
    py.detach(|| catch_unwind(AssertUnwindSafe(work)))
        .unwrap_or_else(|panic| Err(internal(&*panic)))
        .map_err(|error| exception(py, &error))
}

/// Runs `work` in the same way, and lets Python's signal handlers have their turn meanwhile. If one raises,
/// so does this, soon: the core stops what it does.
pub fn interruptible<T: Send>(
    py: Python<'_>,
    work: impl FnOnce() -> Result<T> + Send,
) -> PyResult<T> {
    hearing(py, 1, work)
}

/// Runs work in the same way that would leave something useless if it were stopped: what a handler raises
/// is raised when it is done. Only a second one stops it.
pub fn to_the_end<T: Send>(py: Python<'_>, work: impl FnOnce() -> Result<T> + Send) -> PyResult<T> {
    hearing(py, 2, work)
}

/// Runs `work`, which is stopped by the exception of this number.
fn hearing<T: Send>(
    py: Python<'_>,
    stopped_by: usize,
    work: impl FnOnce() -> Result<T> + Send,
) -> PyResult<T> {
    let raised = Arc::new(Mutex::new(Vec::new()));
    let ask = {
        let raised = Arc::clone(&raised);
        move || {
            let error = Python::attach(|py| py.check_signals().err());
            let mut raised = raised.lock().unwrap_or_else(PoisonError::into_inner);
            raised.extend(error);
            raised.len() >= stopped_by
        }
    };
    let done = guarded(py, || interrupt::heard(ask, work));
    match raised.lock().unwrap_or_else(PoisonError::into_inner).pop() {
        Some(error) => Err(error),
        None => done,
    }
}

/// Raises once the caller for whom this thread works was interrupted: for what takes long in Python on behalf
/// of the core.
#[pyfunction]
pub fn check_caller(py: Python<'_>) -> PyResult<()> {
    guarded(py, interrupt::check)
}

fn internal(panic: &(dyn Any + Send)) -> Error {
    let message = panic_text(panic);
    Error::new(Kind::Internal, format!("tensorferry has a bug, please report it: {message}"))
}

/// Panics with `message` inside the core, so that a test can see what Python gets.
#[pyfunction]
pub fn _panic_for_tests(py: Python<'_>, message: String) -> PyResult<()> {
    guarded(py, move || -> Result<()> { std::panic::panic_any(message) })
}
