//! What a dictionary is asked, and what it is told.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::tool::{Tool, Tools};
use crate::error::{Error, Result};

/// Which seconds a choice is to save.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Goal {
    /// Those of writing.
    #[serde(rename = "w")]
    Write,
    /// Those of reading what was written.
    #[serde(rename = "r")]
    Read,
    /// Both.
    #[serde(rename = "w+r")]
    Both,
}

impl Goal {
    /// Every goal.
    pub const ALL: [Self; 3] = [Self::Write, Self::Read, Self::Both];

    /// The name: `w`, `r` or `w+r`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Write => "w",
            Self::Read => "r",
            Self::Both => "w+r",
        }
    }

    /// Whether seconds of writing count.
    pub const fn writes(self) -> bool {
        matches!(self, Self::Write | Self::Both)
    }

    /// Whether seconds of reading count.
    pub const fn reads(self) -> bool {
        matches!(self, Self::Read | Self::Both)
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Goal {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        let found = Self::ALL.into_iter().find(|goal| goal.name() == name);
        found.ok_or_else(|| {
            Error::invalid(format!("{name:?} is no goal; choose \"w\", \"r\" or \"w+r\""))
        })
    }
}

/// To or from a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// To a file.
    Write,
    /// From a file.
    Read,
}

/// What a write must have reached when it counts as done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Writing {
    /// The device: the bytes outlive a crash.
    Durable,
    /// The kernel.
    Relaxed,
}

/// Where a read is expected to find its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reading {
    /// On the device.
    Cold,
    /// In the page cache.
    Warm,
}

/// What decides, beside size and tool, how long an operation takes. Times of one situation say
/// nothing of another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "`Writing` and `Reading` say it")]
pub enum Situation {
    Durable,
    Relaxed,
    Cold,
    Warm,
}

impl Situation {
    /// Every situation.
    pub const ALL: [Self; 4] = [Self::Durable, Self::Relaxed, Self::Cold, Self::Warm];

    /// The name, the same in every language.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Durable => "durable",
            Self::Relaxed => "relaxed",
            Self::Cold => "cold",
            Self::Warm => "warm",
        }
    }

    /// Whether it is one of writing or of reading.
    pub const fn direction(self) -> Direction {
        match self {
            Self::Durable | Self::Relaxed => Direction::Write,
            Self::Cold | Self::Warm => Direction::Read,
        }
    }

    /// Whether `tool` can be met in it: nothing is written with a mapping.
    pub const fn admits(self, tool: Tool) -> bool {
        matches!(self.direction(), Direction::Read) || tool.writes()
    }
}

impl From<Writing> for Situation {
    fn from(writing: Writing) -> Self {
        match writing {
            Writing::Durable => Self::Durable,
            Writing::Relaxed => Self::Relaxed,
        }
    }
}

impl From<Reading> for Situation {
    fn from(reading: Reading) -> Self {
        match reading {
            Reading::Cold => Self::Cold,
            Reading::Warm => Self::Warm,
        }
    }
}

impl fmt::Display for Situation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// An object is about to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Save {
    /// Its bytes.
    pub size: u64,
    /// How it is written.
    pub writing: Writing,
    /// How it will be read, as far as is known.
    pub reading: Reading,
    /// The tools that can move it, for writing and for reading it later.
    pub eligible: Tools,
}

impl Save {
    /// The tools that can write it; there must be one.
    pub(super) fn writers(&self) -> Result<Tools> {
        let writers = self.eligible.writing();
        if writers.is_empty() {
            let message = "no eligible tool can write; add direct, buffered, torch or numpy";
            return Err(Error::invalid(message).with("eligible", self.eligible));
        }
        Ok(writers)
    }
}

/// An object is about to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    /// Its bytes.
    pub size: u64,
    /// How it is read.
    pub reading: Reading,
    /// The tool that wrote it; [`Format::tool`](super::Format::tool) where only the format is known.
    pub written_with: Tool,
    /// The tools that may read it; those of other formats are passed over.
    pub eligible: Tools,
}

impl Load {
    /// The tools that can read it; there must be one.
    pub(super) fn readers(&self) -> Result<Tools> {
        let readers = self.eligible.reading(self.written_with.format());
        if readers.is_empty() {
            return Err(Error::invalid("no eligible tool reads what this tool wrote")
                .with("written with", self.written_with)
                .with("eligible", self.eligible));
        }
        Ok(readers)
    }

    /// The tool that wrote it where it is eligible, else another of the format.
    pub(super) fn plainly(&self) -> Result<Tool> {
        let readers = self.readers()?;
        let first = readers.into_iter().next().unwrap_or(self.written_with);
        Ok(if readers.contains(self.written_with) { self.written_with } else { first })
    }
}

/// An operation was done.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Observed {
    /// Writing or reading, and how.
    pub situation: Situation,
    /// With what.
    pub tool: Tool,
    /// Bytes of the object.
    pub size: u64,
    /// How long it took.
    pub seconds: f64,
    /// Seconds of processors, in user and in kernel mode, that it took.
    pub cpu_seconds: f64,
}

impl Observed {
    /// Refuses what no clock shows and no tool does.
    pub(super) fn check(&self) -> Result<()> {
        let Self { situation, tool, seconds, cpu_seconds, .. } = *self;
        if !situation.admits(tool) {
            return Err(
                Error::invalid(format!("{tool} does not write")).with("situation", situation)
            );
        }
        if !(seconds.is_finite() && seconds >= 0.0) {
            return Err(Error::invalid("seconds must be a length of time").with("seconds", seconds));
        }
        if !(cpu_seconds.is_finite() && cpu_seconds >= 0.0) {
            let message = "processor seconds must be a length of time";
            return Err(Error::invalid(message).with("seconds", cpu_seconds));
        }
        Ok(())
    }

    /// Natural logarithm of the seconds, kept off zero by what the best clock can tell apart.
    pub(super) fn ln_seconds(&self) -> f64 {
        self.seconds.clamp(1e-9, 1e9).ln()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals_are_read_by_the_names_they_show() {
        for goal in Goal::ALL {
            assert_eq!(goal.to_string().parse::<Goal>().unwrap(), goal);
            assert_eq!(serde_json::to_string(&goal).unwrap(), format!("{:?}", goal.name()));
        }
        let error = "rw".parse::<Goal>().unwrap_err();
        assert_eq!(error.to_string(), "\"rw\" is no goal; choose \"w\", \"r\" or \"w+r\"");
    }

    #[test]
    fn an_observation_that_cannot_be_is_refused() {
        let fine = Observed {
            situation: Situation::Cold,
            tool: Tool::Mapped,
            size: 1,
            seconds: 0.0,
            cpu_seconds: 0.0,
        };
        fine.check().unwrap();
        for (wrong, text) in [
            (
                Observed { situation: Situation::Durable, ..fine },
                "mapped does not write (situation: durable)",
            ),
            (
                Observed { seconds: f64::NAN, ..fine },
                "seconds must be a length of time (seconds: NaN)",
            ),
            (
                Observed { cpu_seconds: -1.0, ..fine },
                "processor seconds must be a length of time (seconds: -1)",
            ),
        ] {
            assert_eq!(wrong.check().unwrap_err().to_string(), text);
        }
    }

    #[test]
    fn a_question_without_an_answer_says_what_is_missing() {
        let save = Save {
            size: 1,
            writing: Writing::Durable,
            reading: Reading::Cold,
            eligible: Tools::default().with(Tool::Mapped),
        };
        assert_eq!(
            save.writers().unwrap_err().to_string(),
            "no eligible tool can write; add direct, buffered, torch or numpy (eligible: mapped)"
        );
        let load = Load {
            size: 1,
            reading: Reading::Cold,
            written_with: Tool::Torch,
            eligible: Tools::default().with(Tool::Mapped),
        };
        assert_eq!(
            load.readers().unwrap_err().to_string(),
            "no eligible tool reads what this tool wrote (written with: torch, eligible: mapped)"
        );
    }
}
