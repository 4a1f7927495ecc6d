//! Contests that are held in Python: loaders, training with activations on disk, optimizers.
//!
//! Python does all of the work, because that is where batches and gradients are used: it makes the
//! files, lets the contestants take turns in processes of their own, and tells raw samples. This
//! side starts it, shows how far it is, and makes medians and ratios of what it tells.
//!
//! ```text
//!   worker   the Python process        table   rows, medians, ratios
//!   report   the run, as a document    curves  values that follow one another
//!   chart    the report as figures
//! ```

mod chart;
mod curves;
mod report;
mod table;
mod worker;

use std::path::{Path, PathBuf};

use tensorferry::{Error, Kind, Result};

use crate::date::today;
use crate::machine::Machine;
pub use curves::{Curve, Curves};
pub use report::Report;
pub use table::{Better, Cell, Finding, Measure, Role, Row, Table, Unit};
use worker::{Message, Worker};

/// A package of workloads.
#[derive(Debug, Clone, Copy)]
pub struct Suite {
    /// What its figure is called.
    pub title: &'static str,
    module: &'static str,
}

/// tensorferry's loader against torch's, DALI, SPDL and `WebDataset`.
pub const DATA: Suite = Suite { title: "Data loaders", module: "tensorferry_bench.data" };

/// Training with activations on disk, against plain training and files written by hand.
pub const ACTIVATIONS: Suite =
    Suite { title: "Activations on disk", module: "tensorferry_bench.activations" };

/// Steps of the optimizer, against torch's and `DeepSpeed`'s, and with state on disk; models that do
/// not fit on their device.
pub const PARAMETERS: Suite =
    Suite { title: "Parameters and optimizer state", module: "tensorferry_bench.parameters" };

/// What to run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Of which package.
    pub suite: Suite,
    /// A directory for files; what is made there is removed.
    pub directory: PathBuf,
    /// The interpreter that has torch, tensorferry and the rivals.
    pub python: PathBuf,
    /// How this was called, for the record.
    pub command: Vec<String>,
    /// How much of everything, by a name that Python knows.
    pub set: String,
    /// Which workloads; all if there are none.
    pub only: Vec<String>,
}

/// Runs the plan; `progress` hears what is done next and how much of the whole is done.
pub fn run(plan: &Plan, progress: &mut dyn FnMut(&str, f64)) -> Result<Report> {
    check(&plan.directory)?;
    progress("starting Python", 0.0);
    let mut worker = Worker::start(plan)?;
    let versions = worker.hello().versions.clone();
    if versions.get("torch").is_none_or(Option::is_none) {
        let error = Error::new(Kind::Unsupported, "torch is missing; pip install torch");
        return Err(error.with("python", plan.python.display()));
    }
    let (mut tables, mut curves) = (Vec::new(), Vec::new());
    loop {
        match worker.next()? {
            Message::Step { what, done } => progress(&what, done),
            Message::Table(told) => tables.push(Table::of(told)),
            Message::Curves(told) => curves.push(told),
            Message::End {} => break,
        }
    }
    Ok(Report {
        suite: plan.suite,
        machine: Machine::here(),
        date: today(),
        command: plan.command.clone(),
        directory: plan.directory.clone(),
        set: plan.set.clone(),
        versions,
        tables,
        curves,
    })
}

fn check(directory: &Path) -> Result<()> {
    if directory.is_dir() {
        return Ok(());
    }
    let error = Error::new(Kind::NotFound, "the directory to measure does not exist");
    Err(error.with("directory", directory.display()))
}
