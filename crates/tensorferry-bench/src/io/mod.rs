//! The engine against fio: the same file, the same blocks, the same depth, turn by turn.

pub(crate) mod fio;
mod idle;
mod workload;

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;
use tensorferry::io::{Choice, Facts};
use tensorferry::{Error, Kind, Result, Size};

use crate::machine::Machine;
use crate::sample::Samples;
use fio::Fio;
use workload::Workbench;

/// What to run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// A directory on the disk to measure; the file made there is removed.
    pub directory: PathBuf,
    /// Which backend.
    pub choice: Choice,
    /// Length of the file.
    pub file_bytes: u64,
    /// Length of one sample.
    pub sample: Duration,
    /// Samples of each case.
    pub repetitions: usize,
    /// Measure fio too, where it is installed.
    pub compare: bool,
}

/// One way to use a disk.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Case {
    /// Reading or writing.
    pub write: bool,
    /// At random offsets, or one after the other.
    pub random: bool,
    /// Bytes in one operation.
    pub block_bytes: usize,
    /// Operations under way at once.
    pub depth: usize,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let order = if self.random { "random" } else { "sequential" };
        let verb = if self.write { "write" } else { "read" };
        write!(f, "{order} {verb}, {}, depth {}", Size(self.block_bytes as u64), self.depth)
    }
}

/// The standard cases: the two that the project promises figures for, and what is around them.
pub const CASES: [Case; 10] = {
    const fn large(write: bool, depth: usize) -> Case {
        Case { write, random: false, block_bytes: 1 << 20, depth }
    }
    const fn small(write: bool, depth: usize) -> Case {
        Case { write, random: true, block_bytes: 4096, depth }
    }
    [
        large(false, 1),
        large(false, 4),
        large(false, 16),
        large(true, 1),
        large(true, 4),
        large(true, 16),
        small(false, 1),
        small(false, 64),
        small(true, 1),
        small(true, 64),
    ]
};

/// What came out.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Where.
    pub machine: Machine,
    /// On which directory.
    pub directory: PathBuf,
    /// With which engine.
    pub engine: Facts,
    /// Whether transfers went around the page cache: otherwise its speed was measured.
    pub direct: bool,
    /// fio's version and settings, or why it did not take part.
    pub rival: Rival,
    /// Milliseconds to open an engine.
    pub open_ms: Samples,
    /// Share of one processor that an engine uses while nothing is asked of it.
    pub idle_cpu: f64,
    /// A row a case.
    pub rows: Vec<Row>,
}

/// The other side.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Rival {
    /// Took part: version and settings.
    Fio(String),
    /// Did not, for this reason.
    None(String),
}

/// One case, measured.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// What was done.
    pub case: Case,
    /// Bytes a second, by tensorferry.
    pub ours: Samples,
    /// Bytes a second, by fio.
    pub fio: Option<Samples>,
    /// The ratio of the medians.
    pub ratio: Option<f64>,
}

/// Runs the plan; `progress` hears what is done next and how much of the whole is done.
pub fn run(plan: &Plan, cases: &[Case], progress: &mut dyn FnMut(&str, f64)) -> Result<Report> {
    check(plan)?;
    progress("writing the file to measure with", 0.0);
    let bench = Workbench::set_up(plan)?;
    let fio = find_rival(plan, &bench);
    let mut rows = Vec::new();
    for (number, case) in cases.iter().enumerate() {
        let done = number as f64 / cases.len() as f64;
        let share = 1.0 / cases.len() as f64;
        let mut tell = |round: usize, who: &str| {
            let done = done + share * round as f64 / plan.repetitions as f64;
            progress(&format!("{case}: {who}"), done);
        };
        rows.push(measure(plan, &bench, *case, fio.as_ref().ok(), &mut tell)?);
    }
    progress("opening and idling", 1.0);
    let open_ms = idle::open_ms(plan.choice)?;
    let idle_cpu = idle::cpu_share(plan.choice, Duration::from_secs(2))?;
    Ok(Report {
        machine: Machine::here(),
        directory: plan.directory.clone(),
        engine: bench.facts(),
        direct: bench.is_direct(),
        rival: fio.map_or_else(Rival::None, |fio| Rival::Fio(fio.to_string())),
        open_ms,
        idle_cpu,
        rows,
    })
}

/// fio, if it is wanted, installed and able to do the work; otherwise why not.
fn find_rival(plan: &Plan, bench: &Workbench) -> Result<Fio, String> {
    if !plan.compare {
        return Err("not asked for".into());
    }
    if bench.facts().backend == "memory" {
        return Err("a disk is no rival for memory".into());
    }
    Fio::find(bench.path_for_others(), bench.facts().registered_bytes > 0)
}

fn check(plan: &Plan) -> Result<()> {
    if plan.repetitions == 0 || plan.sample.is_zero() {
        return Err(Error::invalid("a benchmark needs at least one sample of some length"));
    }
    if plan.file_bytes < 64 << 20 {
        let size = Size(plan.file_bytes);
        return Err(Error::invalid(format!("a file of {size} is too small; 64 MiB is the least")));
    }
    if !plan.directory.is_dir() {
        let error = Error::new(Kind::NotFound, "the directory to measure does not exist");
        return Err(error.with("directory", plan.directory.display()));
    }
    Ok(())
}

fn measure(
    plan: &Plan,
    bench: &Workbench,
    case: Case,
    fio: Option<&Fio>,
    tell: &mut dyn FnMut(usize, &str),
) -> Result<Row> {
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for round in 0..plan.repetitions {
        // Who goes first changes by round: the second finds the device warm.
        for turn in [round % 2, 1 - round % 2] {
            match fio {
                Some(fio) if turn == 1 => {
                    tell(round, "fio");
                    theirs.push(fio.sample(plan, case)?);
                }
                _ if turn == 0 => {
                    tell(round, "tensorferry");
                    ours.push(bench.sample(case, plan.sample)?);
                }
                _ => {}
            }
        }
    }
    let no_samples = || Error::new(Kind::Internal, "a case has no samples");
    let ours = Samples::of(ours).ok_or_else(no_samples)?;
    let rival = Samples::of(theirs);
    let ratio = rival.as_ref().map(|fio| ours.median / fio.median);
    Ok(Row { case, ours, fio: rival, ratio })
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Machine { processor, processors, kernel, .. } = &self.machine;
        writeln!(f, "{processor}, {processors} processors, Linux {kernel}")?;
        writeln!(f, "engine: {} ({})", self.engine.backend, self.engine.why)?;
        writeln!(f, "directory: {}", self.directory.display())?;
        if !self.direct {
            writeln!(
                f,
                "no direct I/O here: these are figures of the page cache, not of the disk"
            )?;
        }
        match &self.rival {
            Rival::Fio(settings) => writeln!(f, "rival: {settings}, samples in turn")?,
            Rival::None(why) => writeln!(f, "rival: none ({why})")?,
        }
        writeln!(f, "\n{:42} {:>12} {:>12} {:>6}", "", "tensorferry", "fio", "ratio")?;
        for row in &self.rows {
            let rival = row.fio.as_ref().map_or("-".into(), |fio| rate(row.case, fio.median));
            let ratio = row.ratio.map_or("-".into(), |ratio| format!("{ratio:.2}"));
            let ours = rate(row.case, row.ours.median);
            writeln!(f, "{:42} {ours:>12} {rival:>12} {ratio:>6}", row.case.to_string())?;
        }
        writeln!(f, "\nopening the engine: {:.2} ms", self.open_ms.median)?;
        write!(f, "idle engine: {:.4} % of one processor", self.idle_cpu * 100.0)
    }
}

/// Bandwidth for large blocks, operations for small ones.
fn rate(case: Case, bytes_per_second: f64) -> String {
    if case.block_bytes >= 64 << 10 {
        format!("{:.2} GB/s", bytes_per_second / 1e9)
    } else {
        format!("{:.1} k/s", bytes_per_second / case.block_bytes as f64 / 1e3)
    }
}
