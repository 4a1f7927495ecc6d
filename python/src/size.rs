//! Sizes in arguments: `"8GiB"` or a number of bytes.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyInt, PyString};
use tensorferry::{Error, Size};

use crate::errors::exception;

/// A size as Python callers give it; write it as the type of a function's argument.
#[derive(Clone, Copy)]
pub struct SizeArgument(pub Size);

impl<'a, 'py> FromPyObject<'a, 'py> for SizeArgument {
    type Error = PyErr;

    fn extract(value: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(text) = value.cast::<PyString>() {
            let size = text.to_str()?.parse().map_err(|error| exception(value.py(), &error))?;
            return Ok(Self(size));
        }
        // True is an int to Python, but nobody means one byte by it. Integers of other libraries
        // (numpy's) come through `__index__`, which floats do not have.
        if value.is_instance_of::<PyBool>() {
            return Err(wrong_type(&value));
        }
        match value.call_method0("__index__") {
            Ok(whole) if whole.is_instance_of::<PyInt>() => bytes(&whole),
            _ => Err(wrong_type(&value)),
        }
    }
}

fn bytes(whole: &Bound<'_, PyAny>) -> PyResult<SizeArgument> {
    whole.extract().map(|bytes| SizeArgument(Size(bytes))).map_err(|_| {
        let reason = if whole.lt(0).unwrap_or(false) { "negative" } else { "more than 2**64 - 1" };
        exception(whole.py(), &Error::invalid(format!("a size can't be {reason}: {whole}")))
    })
}

fn wrong_type(value: &Bound<'_, PyAny>) -> PyErr {
    let kind = value.get_type().name().map_or_else(|_| "?".to_owned(), |name| name.to_string());
    let shown = value.repr().map_or_else(|_| "?".to_owned(), |repr| repr.to_string());
    PyTypeError::new_err(format!(
        "a size is an int of bytes or a str with a unit such as \"8GiB\", not {kind}: {shown}"
    ))
}

/// The number of bytes in a size such as "8GiB", "500MB" or 4096.
#[pyfunction]
pub fn parse_size(size: SizeArgument) -> u64 {
    size.0.0
}
