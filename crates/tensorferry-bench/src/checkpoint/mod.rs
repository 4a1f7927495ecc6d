//! Checkpoints: tensorferry against torch, safetensors and the disk itself.
//!
//! Each contest is one thing (saving, loading cold, loading warm, mapping, being held by an
//! asynchronous save) that several do in turn: a round lets everybody do it once, and each round
//! starts with another one. Python does the work, in one process for all of them, because that is
//! where checkpoints are saved and loaded; fio runs between them on the same disk. It writes a new
//! file, as savers do, and it overwrites a file that is there: the disk's own speed, which nobody
//! has who keeps the previous checkpoint until the next one is there.
//!
//! Memory is looked at afterwards, in a new process for each contestant: what one has left behind
//! would be another's gift.
//!
//! ```text
//!   contest   who does what            worker    the Python process
//!   cache     cold or warm             measure   rounds, turns, memory
//!   report    rows and ratios          chart     the report as a figure
//! ```

mod cache;
mod chart;
mod contest;
mod disk;
mod measure;
mod report;
mod worker;

use std::fmt;
use std::path::{Path, PathBuf};

use serde::Serialize;
use tensorferry::{Error, Kind, Result, Size};

use crate::date::today;
use crate::io::fio::Fio;
use crate::machine::Machine;
pub use contest::{Cache, Unit};
use measure::{Contestants, Steps};
pub use report::{Measured, Report, Row, Table};
use worker::Worker;

/// What to run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// A directory on the disk to measure; what is made there is removed.
    pub directory: PathBuf,
    /// The interpreter that has torch and tensorferry.
    pub python: PathBuf,
    /// How this was called, for the record.
    pub command: Vec<String>,
    /// One after the other.
    pub workloads: Vec<Workload>,
}

/// A state to save and load.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Workload {
    /// All tensors together.
    pub bytes: u64,
    /// How many there are, of about the same size.
    pub tensors: u64,
    /// How often everybody has a turn.
    pub rounds: usize,
    /// Only tensorferry, torch and the disk.
    pub short: bool,
    /// Look at peak memory too, which takes a process for each contestant.
    pub memory: bool,
}

impl Workload {
    /// The ones that published figures are from: usual, large, and many small tensors.
    pub fn full(rounds: usize, memory: bool) -> Vec<Self> {
        let usual = Self { bytes: 1 << 30, tensors: 16, rounds, short: false, memory };
        // The large one takes five times as long: half as often, but no median of fewer than five.
        let rounds = rounds.div_ceil(2).max(rounds.min(5));
        let large = Self { bytes: 5 << 30, tensors: 20, rounds, short: true, memory };
        vec![usual, large, Self { bytes: 5000 * 4096, tensors: 5000, ..usual }]
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.tensors == 1 { "tensor" } else { "tensors" };
        write!(f, "{} in {} {plural}", Size(self.bytes), self.tensors)
    }
}

/// Runs the plan; `progress` hears what is done next and how much of the whole is done.
pub fn run(plan: &Plan, progress: &mut dyn FnMut(&str, f64)) -> Result<Report> {
    check(plan)?;
    progress("starting Python", 0.0);
    let owner = Worker::under(&plan.python, &plan.directory)?;
    let versions = owner.hello().versions.clone();
    if versions.get("torch").is_none_or(Option::is_none) {
        let error = Error::new(Kind::Unsupported, "torch is missing; pip install torch");
        return Err(error.with("python", plan.python.display()));
    }
    let fio = find_fio(&owner.hello().directory);
    let disk = disk::disk_of(&owner.hello().directory);
    let told = fio.as_ref().map_or_else(Clone::clone, ToString::to_string);
    let mut contestants = Contestants { owner, fio, python: &plan.python };
    let mut steps = Steps::new(&plan.workloads, progress);
    let mut measured = Vec::new();
    for workload in &plan.workloads {
        measured.push(contestants.measure(*workload, &mut steps)?);
    }
    Ok(Report {
        machine: Machine::here(),
        date: today(),
        command: plan.command.clone(),
        directory: plan.directory.clone(),
        disk,
        versions,
        fio: told,
        measured,
    })
}

/// fio and a file for it, or why it does not take part.
fn find_fio(directory: &Path) -> Result<Fio, String> {
    let file = directory.join("fio.bin");
    std::fs::write(&file, [0; 4096]).map_err(|error| error.to_string())?;
    // Registered buffers need locked memory, which not everybody may have.
    Fio::find(file.clone(), true).or_else(|_| Fio::find(file, false))
}

fn check(plan: &Plan) -> Result<()> {
    for workload in &plan.workloads {
        let Workload { bytes, tensors, rounds, .. } = *workload;
        if rounds == 0 {
            return Err(Error::invalid("a benchmark needs at least one sample"));
        }
        if tensors == 0 || bytes / tensors < 8 {
            let message = format!("{workload}: each tensor needs at least 8 bytes");
            return Err(Error::invalid(message));
        }
    }
    if !plan.directory.is_dir() {
        let error = Error::new(Kind::NotFound, "the directory to measure does not exist");
        return Err(error.with("directory", plan.directory.display()));
    }
    let largest = plan.workloads.iter().map(|workload| workload.bytes).max().unwrap_or(0);
    check_room(&plan.directory, largest)
}

/// Everybody's file lies there at the same time, one of them twice while it is replaced; memory
/// holds the state, a copy of it and one to load into.
fn check_room(directory: &Path, bytes: u64) -> Result<()> {
    const FILES: u64 = 6;
    const COPIES: u64 = 3;
    let room = rustix::fs::statvfs(directory).map_err(|errno| {
        Error::from_errno(errno, "can't see how much room a directory has")
            .with("directory", directory.display())
    })?;
    let free = room.f_bavail.saturating_mul(room.f_frsize);
    let needed = bytes.saturating_mul(FILES);
    if free < needed {
        let message = format!("{} are free, {} are needed", Size(free), Size(needed));
        let error = Error::new(Kind::OutOfSpace, message);
        return Err(error.with("directory", directory.display()));
    }
    let memory = Machine::here().memory_bytes;
    let needed = bytes.saturating_mul(COPIES);
    if (1..needed).contains(&memory) {
        let message = format!("this machine has {}, {} are needed", Size(memory), Size(needed));
        return Err(Error::new(Kind::OutOfMemory, message).retryable(false));
    }
    Ok(())
}
