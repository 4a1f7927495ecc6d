//! The core's errors as Python exceptions.
//!
//! The classes are defined in `tensorferry/_errors.py`, one for each [`Kind`] and named like it.

use std::error::Error as _;
use std::fmt;

use pyo3::exceptions::PyException;
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
    let raised = error.source().and_then(|cause| cause.downcast_ref::<Raised>());
    let raised = raised.map(|raised| raised.exception.clone_ref(py));
    if let Some(raised) = &raised
        && !raised.is_instance_of::<PyException>(py)
    {
        // Who interrupts or ends the program is not to be caught as an error of ours.
        return Ok(raised.clone_ref(py));
    }
    let class = py.import("tensorferry._errors")?.getattr(error.kind().name())?;
    let context = PyDict::new(py);
    for (name, value) in error.context() {
        context.set_item(name, value)?;
    }
    let named = PyDict::new(py);
    named.set_item("retryable", error.is_retryable())?;
    named.set_item("context", context)?;
    named.set_item("errno", os_code(error))?;
    let made = PyErr::from_value(class.call((error.to_string(),), Some(&named))?);
    if raised.is_some() {
        made.set_cause(py, raised);
    }
    Ok(made)
}

/// An exception of the user's that went through the core; `__cause__` of the one that comes out.
///
/// Its text is made at once: the core may want it under a lock, where nobody may wait for the GIL.
#[derive(Debug)]
pub struct Raised {
    exception: PyErr,
    text: String,
}

impl Raised {
    pub fn new(py: Python<'_>, exception: PyErr) -> Self {
        // Under the GIL already: nothing is waited for.
        let text = exception.value(py).to_string();
        let kind =
            exception.get_type(py).name().map_or_else(|_| String::new(), |it| it.to_string());
        Self { text: format!("{kind}: {text}"), exception }
    }
}

impl fmt::Display for Raised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Raised {}

/// The operating system's number for the failure, if one lies underneath.
fn os_code(error: &Error) -> Option<i32> {
    error.source()?.downcast_ref::<std::io::Error>()?.raw_os_error()
}

/// The exception for what the operating system has refused by this number.
#[pyfunction]
pub fn os_error(py: Python<'_>, code: i32, message: String) -> Py<PyAny> {
    let error = Error::from_io(std::io::Error::from_raw_os_error(code), message);
    exception(py, &error).into_value(py).into_any()
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
