//! A Python process that does one case each time it is asked, by lines of JSON.
//!
//! The first worker owns the directory that files go to and removes it when its input ends,
//! however this process ends: an interrupt reaches both, and a kill closes the pipe. Should that
//! worker be the one that is killed, this side removes the directory.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tensorferry::{Error, Kind, Result};

use crate::python::{Python, sweep};

/// A case moves gigabytes, perhaps over a network.
const ANSWER_LIMIT: Duration = Duration::from_mins(30);

pub(super) struct Worker {
    process: Python,
    hello: Hello,
    owner: bool,
}

/// What a worker says first.
#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct Hello {
    pub(super) directory: PathBuf,
    /// Where each contestant's file lies.
    pub(super) files: BTreeMap<String, PathBuf>,
    /// Of Python and the packages; none for what is not there.
    pub(super) versions: BTreeMap<String, Option<String>>,
}

/// What to do.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Request {
    pub(super) case: &'static str,
    pub(super) bytes: u64,
    pub(super) tensors: u64,
    /// Tell how much more memory was in use at the most.
    pub(super) memory: bool,
}

/// What came of it.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Answer {
    pub(super) seconds: f64,
    pub(super) cpu_seconds: Option<f64>,
    pub(super) bytes: u64,
    pub(super) count: Option<u64>,
    pub(super) total_seconds: Option<f64>,
    pub(super) extra_bytes: Option<u64>,
    pub(super) error: Option<String>,
}

impl Worker {
    /// Starts the worker that makes a directory under `path`, and owns it.
    pub(super) fn under(python: &Path, path: &Path) -> Result<Self> {
        Self::start(python, "--under", path)
    }

    /// Starts another one that works in the directory of the first.
    pub(super) fn beside(python: &Path, owner: &Self) -> Result<Self> {
        Self::start(python, "--in", &owner.hello.directory)
    }

    fn start(python: &Path, option: &str, path: &Path) -> Result<Self> {
        let arguments = [option.as_ref(), path.as_os_str()];
        let mut process = Python::start(python, "tensorferry_bench.checkpoint", arguments)?;
        let hello = process.greet(python)?;
        Ok(Self { process, hello, owner: option == "--under" })
    }

    pub(super) fn hello(&self) -> &Hello {
        &self.hello
    }

    /// Lets the worker do a case.
    pub(super) fn ask(&mut self, request: Request) -> Result<Answer> {
        let mut line = serde_json::to_vec(&request).map_err(|error| {
            Error::new(Kind::Internal, "can't write a request as JSON").caused_by(error)
        })?;
        line.push(b'\n');
        self.process.send(&line);
        self.process.receive(ANSWER_LIMIT).map_err(|error| error.with("case", request.case))
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.process.end();
        if self.owner {
            sweep(&self.hello.directory);
        }
    }
}
