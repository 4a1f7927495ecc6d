//! The Python process that measures, and tells what it does by lines of JSON.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use tensorferry::Result;

use super::table::Told;
use super::{Curves, Plan};
use crate::python::{Python, sweep};

/// Between two lines lies at most one turn of one contestant.
const STEP_LIMIT: Duration = Duration::from_mins(30);

pub(super) struct Worker {
    process: Python,
    hello: Hello,
}

/// What it says first.
#[derive(Debug, Clone, Deserialize)]
struct First {
    hello: Hello,
}

/// Who it is.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Hello {
    /// Where it makes its files.
    pub(super) directory: PathBuf,
    /// Of Python and the packages; none for what is not there.
    pub(super) versions: BTreeMap<String, Option<String>>,
}

/// What it says then.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Message {
    /// What is done next, and which part of the whole is behind.
    Step { what: String, done: f64 },
    /// What a contest came to.
    Table(Told),
    /// Values that follow one another.
    Curves(Curves),
    /// That was all.
    End {},
}

impl Worker {
    pub(super) fn start(plan: &Plan) -> Result<Self> {
        let mut arguments: Vec<OsString> = vec!["--path".into(), plan.directory.clone().into()];
        arguments.extend(["--set".into(), plan.set.clone().into()]);
        for name in &plan.only {
            arguments.extend(["--only".into(), name.into()]);
        }
        let mut process = Python::start(&plan.python, plan.suite.module, arguments)?;
        let First { hello } = process.greet(&plan.python)?;
        Ok(Self { process, hello })
    }

    pub(super) fn hello(&self) -> &Hello {
        &self.hello
    }

    pub(super) fn next(&mut self) -> Result<Message> {
        self.process.receive(STEP_LIMIT)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.process.end();
        sweep(&self.hello.directory);
    }
}
