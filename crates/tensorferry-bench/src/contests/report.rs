//! A run, as data and as text.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use serde::Serialize;
use tensorferry::Size;

use super::Suite;
use super::curves::Curves;
use super::table::Table;
use crate::machine::Machine;

/// A run.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Of what.
    #[serde(skip)]
    pub suite: Suite,
    /// Where.
    pub machine: Machine,
    /// When.
    pub date: String,
    /// How it was called.
    pub command: Vec<String>,
    /// On which directory.
    pub directory: PathBuf,
    /// How much of everything.
    pub set: String,
    /// Of Python and its packages; none for what is not installed.
    pub versions: BTreeMap<String, Option<String>>,
    /// A table a contest.
    pub tables: Vec<Table>,
    /// Figures of values that follow one another.
    pub curves: Vec<Curves>,
}

impl Report {
    /// The machine in one line.
    pub(super) fn place(&self) -> String {
        let Machine { processor, processors, memory_bytes, kernel, .. } = &self.machine;
        let memory = Size(memory_bytes >> 20 << 20);
        format!("{processor}, {processors} processors, {memory}, Linux {kernel}")
    }

    /// The programs in one line; those that are missing are named.
    pub(super) fn programs(&self) -> String {
        let program = |(name, version): (&String, &Option<String>)| match version {
            Some(version) => format!("{name} {version}"),
            None => format!("{name} not installed"),
        };
        self.versions.iter().map(program).collect::<Vec<_>>().join(", ")
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.place())?;
        writeln!(f, "{}", self.programs())?;
        writeln!(f, "directory: {}, set: {}, {}", self.directory.display(), self.set, self.date)?;
        write!(f, "medians, turns alternate; ratio: the first row's figure over this row's")?;
        self.tables.iter().try_for_each(|table| write!(f, "\n\n{table}"))?;
        self.curves.iter().try_for_each(|curves| write!(f, "\n\n{curves}"))
    }
}
