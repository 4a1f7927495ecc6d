//! One face over all ways to decide: one tool, the user's own dictionary, or what was learned.
//!
//! The states of learning are those of [`paper`](super::paper) and [`rule`](super::rule); this adds
//! what both share: when everything is looked at anew, what a report says, and the JSON in which a run
//! is kept. What comes back from JSON is the same to the last bit, so that a run goes on as if it had
//! not been interrupted.

mod state;
#[cfg(test)]
#[cfg(not(loom))]
mod tests;

use std::str::FromStr;

use serde::{Deserialize, Serialize};

pub use self::state::VERSION;
use super::ask::{Direction, Goal, Load, Observed, Reading, Save, Writing};
use super::own::Own;
use super::paper::Paper;
use super::report::{Report, Tally};
use super::rule::Rule;
use super::tables::{Entry, Table, Tables};
use super::tool::Tool;
use crate::error::{Error, Result};

/// How a dictionary learns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Explore {
    /// Ours: see [`rule`](super::rule).
    #[default]
    Rule,
    /// As published: see [`paper`](super::paper).
    Paper,
}

impl FromStr for Explore {
    type Err = Error;

    /// `rule`, or `bandit`, as it was called once; or `paper`.
    fn from_str(name: &str) -> Result<Self> {
        match name {
            "rule" | "bandit" => Ok(Self::Rule),
            "paper" => Ok(Self::Paper),
            _ => {
                let choices = "choose \"rule\" or \"paper\"";
                Err(Error::invalid(format!("{name:?} is no way to explore; {choices}")))
            }
        }
    }
}

/// Decides which tool moves an object.
#[derive(Debug, Clone, PartialEq)]
pub struct Dictionary {
    mode: Mode,
    /// Operations after which everything is flushed; never, if none.
    update_every: Option<u64>,
    /// Operations since the last flush.
    since_flush: u64,
    tally: Tally,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
enum Mode {
    One { tool: Tool },
    Own { goal: Goal, tables: Own },
    Paper { goal: Goal, memory: Paper },
    Rule { goal: Goal, memory: Rule },
}

impl Dictionary {
    /// Always the same tool, where it can move the object at all.
    pub fn one(tool: Tool) -> Self {
        Self::of(Mode::One { tool })
    }

    /// What the user wrote down.
    pub fn own(tables: Own, goal: Goal) -> Self {
        Self::of(Mode::Own { goal, tables })
    }

    /// What was measured.
    pub fn aware(explore: Explore, goal: Goal) -> Self {
        Self::of(match explore {
            Explore::Rule => Mode::Rule { goal, memory: Rule::default() },
            Explore::Paper => Mode::Paper { goal, memory: Paper::default() },
        })
    }

    fn of(mode: Mode) -> Self {
        Self { mode, update_every: None, since_flush: 0, tally: Tally::default() }
    }

    /// Flushes before the first save after that many operations; never, if none.
    pub fn update_every(mut self, operations: Option<u64>) -> Result<Self> {
        if operations == Some(0) {
            return Err(Error::invalid("an update after every 0 operations would never learn")
                .with("update_every", 0));
        }
        self.update_every = operations;
        Ok(self)
    }

    /// The tool to write with.
    pub fn choose_write(&mut self, save: &Save) -> Result<Tool> {
        if self.update_every.is_some_and(|every| self.since_flush >= every) {
            self.flush();
        }
        let writers = save.writers()?;
        match &mut self.mode {
            Mode::One { tool } if writers.contains(*tool) => Ok(*tool),
            Mode::One { tool } => {
                Err(Error::invalid(format!("{tool} can't write this object"))
                    .with("eligible", writers))
            }
            Mode::Own { goal, tables } => tables.choose_write(*goal, save),
            Mode::Paper { goal, memory } => Ok(memory.save(*goal, save.size, writers)),
            Mode::Rule { goal, memory } => memory.choose_write(*goal, save),
        }
    }

    /// The tool to read with.
    pub fn choose_read(&mut self, load: &Load) -> Result<Tool> {
        match &mut self.mode {
            Mode::One { tool } if load.readers()?.contains(*tool) => Ok(*tool),
            // What another tool wrote must be read all the same.
            Mode::One { .. } => load.plainly(),
            Mode::Own { tables, .. } => tables.choose_read(load),
            Mode::Paper { memory, .. } => {
                memory.load(load.size);
                load.plainly()
            }
            Mode::Rule { memory, .. } => memory.choose_read(load),
        }
    }

    /// Learns from an operation.
    pub fn record(&mut self, observed: &Observed) -> Result<()> {
        observed.check()?;
        let Observed { situation, tool, size, seconds, .. } = *observed;
        let mut best_share = None;
        match (&mut self.mode, situation.direction()) {
            (Mode::Paper { memory, .. }, Direction::Write) => memory.wrote(size, tool, seconds),
            (Mode::Paper { memory, .. }, Direction::Read) => memory.read(size, tool, seconds),
            (Mode::Rule { memory, .. }, _) => {
                memory.record(observed)?;
                best_share = Some(memory.best_share(situation, tool, size));
            }
            (Mode::One { .. } | Mode::Own { .. }, _) => {}
        }
        self.since_flush = self.since_flush.saturating_add(1);
        self.tally.record(observed, best_share);
        Ok(())
    }

    /// Looks at everything anew: at the end of an epoch, or after a change of the machine.
    pub fn flush(&mut self) {
        self.since_flush = 0;
        match &mut self.mode {
            Mode::Paper { memory, .. } => memory.flush(),
            Mode::Rule { memory, .. } => memory.flush(),
            Mode::One { .. } | Mode::Own { .. } => {}
        }
    }

    /// The three dictionaries as plain data. Our own algorithm keeps what it saw by size class and
    /// situation: it shows each class by its fewest bytes, in the busiest situation of writing and of
    /// reading, with what the times are believed to be.
    pub fn tables(&self) -> Tables {
        match &self.mode {
            Mode::One { tool } => {
                let table = || [(1, Entry { best: Some(*tool), ..Entry::default() })].into();
                let written = if tool.writes() { table() } else { Table::new() };
                Tables { write: written.clone(), read: table(), both: written }
            }
            Mode::Own { tables, .. } => tables.tables(),
            Mode::Paper { memory, .. } => memory.tables(),
            Mode::Rule { memory, .. } => {
                let write = self.tally.busiest(Direction::Write).unwrap_or(Writing::Durable.into());
                let read = self.tally.busiest(Direction::Read).unwrap_or(Reading::Cold.into());
                memory.tables(write, read)
            }
        }
    }

    /// What was done so far, over all flushes.
    pub fn report(&self) -> Report {
        self.tally.report(|situation, size| match &self.mode {
            Mode::Rule { memory, .. } => memory.best_known(situation, size),
            _ => None,
        })
    }
}
