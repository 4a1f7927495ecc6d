//! The core's errors as Python exceptions.
//!
//! The classes are defined in `tensorferry/_errors.py`, one for each [`Kind`] and named like it.

use std::error::Error as _;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use tensorferry::{Error, Kind};

use crate::guard::guarded;

/// The exception for `error`: the class of its kind, with message, context and error number.
///
/// When even that fails (a package without its `_errors.py`, no memory), the caller gets the
/// failure to build it, chained to nothing: there is no better class left.
pub fn exception(py: Python<'_>, error: &Error) -> PyErr {
    build(py, error).unwrap_or_else(|failure| failure)
}

fn build(py: Python<'_>, error: &Error) -> PyResult<PyErr> {
    let class = py.import("tensorferry._errors")?.getattr(error.kind().name())?;
    let context = PyDict::new(py);
    for (name, value) in error.context() {
        context.set_item(name, value)?;
    }
    let named = PyDict::new(py);
    named.set_item("retryable", error.is_retryable())?;
    named.set_item("context", context)?;
    named.set_item("errno", os_code(error))?;
    Ok(PyErr::from_value(class.call((error.to_string(),), Some(&named))?))
}

/// The operating system's number for the failure, if one lies underneath.
fn os_code(error: &Error) -> Option<i32> {
    error.source()?.downcast_ref::<std::io::Error>()?.raw_os_error()
}

/// Fails with the error of this kind, so that a test can see what Python gets.
#[pyfunction]
#[pyo3(signature = (kind, message, errno=None))]
pub fn _error_for_tests(
    py: Python<'_>,
    kind: &str,
    message: String,
    errno: Option<i32>,
) -> PyResult<()> {
    let kind = Kind::ALL.into_iter().find(|known| known.name() == kind);
    guarded(py, move || {
        let kind = kind.ok_or_else(|| Error::invalid("no such kind"))?;
        let error = Error::new(kind, message).with("file", "/scratch/a").with("offset", 4096);
        Err(match errno {
            Some(code) => error.caused_by(std::io::Error::from_raw_os_error(code)),
            None => error,
        })
    })
}
