//! The tensorferry command.

use std::ffi::OsString;
use std::path::PathBuf;

/// What the caller knows and the command can't find out by itself.
#[derive(Debug, Clone, Default)]
pub struct Env {
    /// The Python interpreter to ask about torch; `python3` on the search path if none.
    pub python: Option<PathBuf>,
}

/// Runs.
pub fn run(_args: impl IntoIterator<Item = OsString>, _env: &Env) -> u8 {
    0
}
