//! The `tensorferry` command inside the wheel.

use std::ffi::OsString;
use std::path::PathBuf;

use pyo3::prelude::*;
use tensorferry_cli::Env;

use crate::guard::guarded;

/// Runs the command line `args`, whose first item is the program's name; gives its exit code.
///
/// `python` is the interpreter to ask about torch: the one that runs this package.
#[pyfunction]
#[pyo3(signature = (args, python=None))]
pub fn cli_main(py: Python<'_>, args: Vec<OsString>, python: Option<PathBuf>) -> PyResult<u8> {
    guarded(py, move || Ok(tensorferry_cli::run(args, &Env { python })))
}
