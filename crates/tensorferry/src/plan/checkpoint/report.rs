//! What was done, with which tools, and how much of the best it reached.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::ask::{Direction, Observed, Situation};
use super::class::SizeClass;
use super::tool::Tool;
use crate::error::{Error, Kind, Result};
use crate::size::Size;

/// By situation and size class.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Report {
    /// In the order of situations, then of sizes.
    pub rows: Vec<Row>,
}

/// One situation and size class.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// Writing or reading, and how.
    pub situation: Situation,
    /// The fewest bytes of the class; it ends half an octave further.
    pub size: u64,
    /// How many there were.
    pub operations: u64,
    /// Bytes of all.
    pub bytes: u64,
    /// Seconds of all.
    pub seconds: f64,
    /// Seconds of processors of all.
    pub cpu_seconds: f64,
    /// What each tool did.
    pub tools: BTreeMap<Tool, Used>,
    /// The tool believed best.
    pub best: Tool,
    /// Seconds that the tool believed best at the time would have taken, over those taken. An
    /// estimate: what a tool that was not used would have taken is believed, not known.
    pub oracle_share_estimated: f64,
    /// Bytes a second.
    pub bandwidth: f64,
    /// Processors kept busy on average.
    pub utilisation: f64,
    /// Bandwidth over utilisation (the paper's equation 1); nothing where no processor time was told.
    pub io_ef: Option<f64>,
}

/// What one tool did.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Used {
    /// How often.
    pub operations: u64,
    /// How long, on average.
    pub mean_seconds: f64,
}

/// Sums of one situation and size class.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Sums {
    tools: BTreeMap<Tool, ToolSums>,
    bytes: u64,
    cpu_seconds: f64,
    best_seconds: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ToolSums {
    operations: u64,
    seconds: f64,
    bytes: u64,
}

impl ToolSums {
    fn seconds_per_byte(&self) -> f64 {
        self.seconds / self.bytes.max(1) as f64
    }
}

/// What a report is made of.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(try_from = "Listed", into = "Listed")]
pub(super) struct Tally(BTreeMap<(Situation, SizeClass), Sums>);

/// A tally as JSON holds it.
type Listed = Vec<(Situation, SizeClass, Sums)>;

impl Tally {
    /// Counts an operation. `best_share` is what the best tool is believed to take, over what this one
    /// is; where nothing is believed, the means so far tell.
    pub(super) fn record(&mut self, observed: &Observed, best_share: Option<f64>) {
        let Observed { situation, tool, size, seconds, cpu_seconds } = *observed;
        let sums = self.0.entry((situation, SizeClass::of(size))).or_default();
        let used = sums.tools.entry(tool).or_default();
        used.operations += 1;
        used.seconds = (used.seconds + seconds).min(f64::MAX);
        used.bytes = used.bytes.saturating_add(size);
        sums.bytes = sums.bytes.saturating_add(size);
        sums.cpu_seconds = (sums.cpu_seconds + cpu_seconds).min(f64::MAX);
        let share = best_share.unwrap_or_else(|| sums.best_share(situation, tool));
        sums.best_seconds = (sums.best_seconds + share * seconds).min(f64::MAX);
    }

    /// `best` names the tool believed best where that is known better than from the means.
    pub(super) fn report(&self, best: impl Fn(Situation, u64) -> Option<Tool>) -> Report {
        let row = |(key, sums): (&(Situation, SizeClass), &Sums)| {
            let size = key.1.start();
            sums.row(key.0, size, best(key.0, size))
        };
        Report { rows: self.0.iter().map(row).collect() }
    }

    /// The situation of this direction in which most was done.
    pub(super) fn busiest(&self, direction: Direction) -> Option<Situation> {
        let operations = |situation: &Situation| -> u64 {
            let found = self.0.iter().filter(|((found, _), _)| found == situation);
            found.flat_map(|(_, sums)| sums.tools.values()).map(|used| used.operations).sum()
        };
        let situations = Situation::ALL.into_iter().filter(|one| one.direction() == direction);
        situations.filter(|one| operations(one) > 0).max_by_key(operations)
    }
}

impl Sums {
    fn best_share(&self, situation: Situation, tool: Tool) -> f64 {
        let is_rival = |other: Tool| {
            situation.direction() == Direction::Write || other.format() == tool.format()
        };
        let rivals = self.tools.iter().filter(|(other, _)| is_rival(**other));
        let least = rivals.map(|(_, used)| used.seconds_per_byte()).fold(f64::INFINITY, f64::min);
        let own = self.tools.get(&tool).map_or(0.0, ToolSums::seconds_per_byte);
        if own > 0.0 { (least / own).min(1.0) } else { 1.0 }
    }

    fn fastest(&self) -> Option<Tool> {
        let speed = |used: &ToolSums| used.seconds_per_byte();
        let order =
            |a: &(&Tool, &ToolSums), b: &(&Tool, &ToolSums)| speed(a.1).total_cmp(&speed(b.1));
        self.tools.iter().min_by(order).map(|(tool, _)| *tool)
    }

    fn row(&self, situation: Situation, size: u64, best: Option<Tool>) -> Row {
        let used = |used: &ToolSums| Used {
            operations: used.operations,
            mean_seconds: ratio(used.seconds, used.operations as f64),
        };
        let seconds = self.tools.values().map(|used| used.seconds).sum::<f64>();
        let bandwidth = ratio(self.bytes as f64, seconds);
        let utilisation = ratio(self.cpu_seconds, seconds);
        Row {
            situation,
            size,
            operations: self.tools.values().map(|used| used.operations).sum(),
            bytes: self.bytes,
            seconds,
            cpu_seconds: self.cpu_seconds,
            tools: self.tools.iter().map(|(tool, sums)| (*tool, used(sums))).collect(),
            best: best.or_else(|| self.fastest()).unwrap_or(Tool::Direct),
            oracle_share_estimated: if seconds > 0.0 { self.best_seconds / seconds } else { 1.0 },
            bandwidth,
            utilisation,
            io_ef: (utilisation > 0.0).then(|| bandwidth / utilisation),
        }
    }

    fn check(&self) -> Result<()> {
        let times = self.tools.values().map(|used| used.seconds);
        let mut times = times.chain([self.cpu_seconds, self.best_seconds]);
        if self.tools.is_empty() || times.any(|seconds| !(seconds.is_finite() && seconds >= 0.0)) {
            return Err(Error::new(Kind::Corrupt, "a sum of seconds is no length of time"));
        }
        if self.tools.values().any(|used| used.operations > 1 << 52) {
            return Err(Error::new(Kind::Corrupt, "more operations than can have been"));
        }
        Ok(())
    }
}

/// Zero where nothing was measured.
fn ratio(over: f64, under: f64) -> f64 {
    if under > 0.0 { over / under } else { 0.0 }
}

impl From<Tally> for Listed {
    fn from(tally: Tally) -> Self {
        tally.0.into_iter().map(|((situation, class), sums)| (situation, class, sums)).collect()
    }
}

impl TryFrom<Listed> for Tally {
    type Error = Error;

    fn try_from(listed: Listed) -> Result<Self> {
        let mut tally = BTreeMap::new();
        for (position, (situation, class, sums)) in listed.into_iter().enumerate() {
            let at = |error: Error| error.with("tally", position);
            sums.check().map_err(at)?;
            if !sums.tools.keys().all(|tool| situation.admits(*tool)) {
                return Err(at(Error::new(Kind::Corrupt, "a mapping does not write")));
            }
            if tally.insert((situation, class), sums).is_some() {
                return Err(at(Error::new(Kind::Corrupt, "a tally stands twice")));
            }
        }
        Ok(Self(tally))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.rows.is_empty() {
            return f.write_str("nothing was saved or loaded yet");
        }
        write!(f, "{:<9}{:>12}{:>8}", "situation", "size from", "times")?;
        write!(f, "  {:<9}{:>9}{:>9}{:>7}{:>9}", "best", "of oracle", "MB/s", "cpu", "IOef")?;
        f.write_str("  mean ms (times) by tool")?;
        self.rows.iter().try_for_each(|row| write!(f, "\n{row}"))?;
        f.write_str(
            "\n\nof oracle: estimated, from what the tool believed best would have taken; ",
        )?;
        f.write_str("IOef: MB/s for one busy processor")
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = Size(self.size).to_string();
        write!(f, "{:<9}{size:>12}{:>8}", self.situation, self.operations)?;
        let share = format!("{:.1} %", 100.0 * self.oracle_share_estimated);
        write!(f, "  {:<9}{share:>9}{:>9.1}", self.best, self.bandwidth / 1e6)?;
        write!(f, "{:>7.2}", self.utilisation)?;
        match self.io_ef {
            Some(io_ef) => write!(f, "{:>9.1} ", io_ef / 1e6)?,
            None => write!(f, "{:>9} ", "-")?,
        }
        self.tools.iter().try_for_each(|(tool, used)| {
            write!(f, " {tool} {:.3} ({})", 1e3 * used.mean_seconds, used.operations)
        })
    }
}
