//! What came out, as data and as a table.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use serde::Serialize;
use tensorferry::Size;

use super::Workload;
use super::contest::{Cache, Contest, Unit};
use super::measure::{Entrant, Sample};
use crate::machine::Machine;
use crate::sample::Samples;

/// More pages than this share in the wrong place are worth a word.
const MISPLACED_MAX: f64 = 0.01;

/// A run.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Where.
    pub machine: Machine,
    /// When.
    pub date: String,
    /// How it was called.
    pub command: Vec<String>,
    /// On which directory.
    pub directory: PathBuf,
    /// On which disk, where that is known.
    pub disk: Option<String>,
    /// Of Python and its packages; none for what is not installed.
    pub versions: BTreeMap<String, Option<String>>,
    /// fio's version and settings, or why it did not take part.
    pub fio: String,
    /// One after the other.
    pub measured: Vec<Measured>,
}

/// All contests over one state.
#[derive(Debug, Clone, Serialize)]
pub struct Measured {
    /// The state.
    pub workload: Workload,
    /// A table a contest.
    pub tables: Vec<Table>,
}

/// One contest.
#[derive(Debug, Clone, Serialize)]
pub struct Table {
    /// What was done.
    pub name: &'static str,
    /// What is counted; more is better.
    pub unit: Unit,
    /// Where the files that are read were.
    pub cache: Cache,
    /// A row a contestant, the first of whom is tensorferry.
    pub rows: Vec<Row>,
}

/// One contestant.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// Who.
    pub name: &'static str,
    /// In the table's unit.
    pub rate: Option<Samples>,
    /// The first row's median rate divided by this one's: how many times as fast tensorferry is.
    pub ratio: Option<f64>,
    /// How long it took.
    pub seconds: Option<Samples>,
    /// Processor time of all threads of the process.
    pub cpu_seconds: Option<Samples>,
    /// Until an asynchronous save was done.
    pub total_seconds: Option<Samples>,
    /// Share of the file in the page cache when the clock started.
    pub resident: Option<Samples>,
    /// Most memory in use beyond what there was before, in a process of its own.
    pub extra_bytes: Option<u64>,
    /// Why there are no figures.
    pub absent: Option<String>,
}

impl Table {
    pub(super) fn new(contest: &Contest, mut rows: Vec<Row>) -> Self {
        let ours = rows.first().and_then(|row| row.rate.as_ref()).map(|rate| rate.median);
        for row in &mut rows {
            row.ratio = ours.zip(row.rate.as_ref()).map(|(ours, theirs)| ours / theirs.median);
        }
        Self { name: contest.name, unit: contest.unit, cache: contest.cache, rows }
    }
}

impl Row {
    pub(super) fn of(entrant: Entrant) -> Self {
        let all = |value: &dyn Fn(&Sample) -> Option<f64>| {
            Samples::of(entrant.samples.iter().filter_map(value).collect())
        };
        Self {
            name: entrant.entry.name,
            rate: all(&|sample| Some(sample.rate)),
            ratio: None,
            seconds: all(&|sample| Some(sample.seconds)),
            cpu_seconds: all(&|sample| sample.cpu_seconds),
            total_seconds: all(&|sample| sample.total_seconds),
            resident: all(&|sample| sample.resident),
            extra_bytes: entrant.extra_bytes,
            absent: entrant.absent,
        }
    }

    /// The rate with its unit, or why there is none.
    pub(super) fn label(&self, unit: Unit) -> String {
        match (&self.rate, &self.absent) {
            (Some(rate), _) => unit.show(rate.median),
            (None, Some(reason)) => format!("absent: {reason}"),
            (None, None) => "-".into(),
        }
    }
}

impl Unit {
    pub(super) fn show(self, rate: f64) -> String {
        match self {
            Self::BytesPerSecond => format!("{:.2} GB/s", rate / 1e9),
            Self::StepsPerSecond => format!("{:.2} M/s", rate / 1e6),
        }
    }
}

impl Report {
    /// The machine in one line.
    pub(super) fn place(&self) -> String {
        let Machine { processor, processors, kernel, .. } = &self.machine;
        let disk = self.disk.as_ref().map(|disk| format!(", {disk}")).unwrap_or_default();
        format!("{processor}, {processors} processors, Linux {kernel}{disk}")
    }

    /// The versions in one line.
    pub(super) fn programs(&self) -> String {
        let shown = |(name, version): (&String, &Option<String>)| {
            format!("{name} {}", version.as_deref().unwrap_or("missing"))
        };
        let versions: Vec<_> = self.versions.iter().map(shown).collect();
        versions.join(", ")
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.place())?;
        writeln!(f, "{}", self.programs())?;
        writeln!(f, "fio: {}", self.fio)?;
        write!(f, "directory: {}, {}", self.directory.display(), self.date)?;
        for Measured { workload, tables } in &self.measured {
            write!(f, "\n\n{workload}, medians of {}, samples in turn", workload.rounds)?;
            for table in tables {
                write!(f, "\n\n{table}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, .. } = self;
        let head = ["rate", "tensorferry", "time", "CPU", "memory"];
        let [rate, ratio, time, cpu, memory] = head;
        write!(f, "{name:34}{rate:>12}{ratio:>13}{time:>11}{cpu:>10}{memory:>12}")?;
        for row in &self.rows {
            row.show(f, self)?;
        }
        let whole = |row: &Row| row.total_seconds.as_ref().map(|total| total.median);
        if let Some(total) = self.rows.first().and_then(whole) {
            write!(f, "\n  (the whole save: {})", duration(total))?;
        }
        Ok(())
    }
}

impl Row {
    fn show(&self, f: &mut fmt::Formatter<'_>, table: &Table) -> fmt::Result {
        let (name, label) = (self.name, self.label(table.unit));
        if self.rate.is_none() {
            return write!(f, "\n  {name:32}{label}");
        }
        let time = |samples: &Option<Samples>| {
            samples.as_ref().map_or_else(String::new, |samples| duration(samples.median))
        };
        let ratio = self.ratio.map_or_else(String::new, |ratio| format!("{ratio:.2} x"));
        let (seconds, cpu) = (time(&self.seconds), time(&self.cpu_seconds));
        let memory = self.extra_bytes.map_or_else(String::new, mebibytes);
        let line = format!("  {name:32}{label:>12}{ratio:>13}{seconds:>11}{cpu:>10}{memory:>12}");
        write!(f, "\n{}", line.trim_end())?;
        if let Some(share) = self.misplaced(table.cache) {
            write!(f, "  ({:.0} % was in the page cache)", share * 100.0)?;
        }
        // Some rounds went well before it failed.
        self.absent.as_ref().map_or(Ok(()), |reason| write!(f, "  (then: {reason})"))
    }

    /// The share in the page cache, where it is not what the contest is about.
    fn misplaced(&self, cache: Cache) -> Option<f64> {
        let resident = self.resident.as_ref()?;
        match cache {
            Cache::Any => None,
            Cache::Cold => Some(resident.max).filter(|share| *share > MISPLACED_MAX),
            Cache::Warm => Some(resident.min).filter(|share| *share < 1.0 - MISPLACED_MAX),
        }
    }
}

fn duration(seconds: f64) -> String {
    if seconds < 1.0 { format!("{:.1} ms", seconds * 1e3) } else { format!("{seconds:.2} s") }
}

fn mebibytes(bytes: u64) -> String {
    if bytes < 1 << 20 {
        return "< 1 MiB".into();
    }
    Size(bytes >> 20 << 20).to_string()
}
