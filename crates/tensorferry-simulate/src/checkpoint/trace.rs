//! A recorded trace: the times of every tool, side by side, in the order in which they were taken.
//!
//! ```json
//! {"machine": "...", "phases": ["idle", "busy"], "steps": [
//!   {"phase": "idle", "mount": "disk", "size": 4096, "situation": ["durable", "cold"],
//!    "write": {"direct": 0.0004, "buffered": 0.0005, "torch": 0.0009, "numpy": 0.0006},
//!    "read": {"direct": 0.0001, "buffered": 0.0001, "mapped": 0.0002, "torch": 0.0004}}]}
//! ```
//!
//! A trace mixes situations and file systems; of one alone, `mount` may be left out. A tool that can't
//! move an object is left out of its step; a step without `read` serves the goal `w`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use tensorferry::error::{Error, Kind, Result};
use tensorferry::plan::checkpoint::{Goal, Reading, Writing};
use tensorferry::plan::checkpoint::{Tool, Tools};
use tensorferry::plan::data::order::{Mt19937, randperm};

/// Seconds by tool.
pub type Times = BTreeMap<Tool, f64>;

/// Recorded times of every tool.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Trace {
    /// Where it was recorded.
    pub machine: String,
    /// What the machine did meanwhile, in order.
    pub phases: Vec<String>,
    /// In the order of time.
    pub steps: Vec<Step>,
}

/// One object, written and read with every tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// One of the trace's.
    pub phase: String,
    /// The file system that it lay on; what is learned on one tells nothing of another.
    #[serde(default)]
    pub mount: String,
    /// Bytes of the object.
    pub size: u64,
    /// Seconds to write it.
    pub write: Times,
    /// Seconds to read it.
    #[serde(default)]
    pub read: Times,
    /// How it was written and read.
    pub situation: (Writing, Reading),
}

/// A trace whose steps are not looked at yet, so that a bad one can be named.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    machine: String,
    phases: Vec<String>,
    steps: Vec<Value>,
}

impl Trace {
    /// Reads and judges a trace.
    pub fn parse(json: &str) -> Result<Self> {
        let raw: Raw = serde_json::from_str(json)
            .map_err(|error| Error::new(Kind::Corrupt, "this is no trace").caused_by(error))?;
        let mut steps = Vec::with_capacity(raw.steps.len());
        for (number, value) in raw.steps.into_iter().enumerate() {
            let wrong =
                |error| Error::new(Kind::Corrupt, "a step is not as it must be").caused_by(error);
            let step: Step =
                serde_json::from_value(value).map_err(|error| wrong(error).with("step", number))?;
            step.check(&raw.phases).map_err(|error| error.with("step", number))?;
            steps.push(step);
        }
        if steps.is_empty() {
            return Err(Error::new(Kind::Corrupt, "the trace has no steps"));
        }
        Ok(Self { machine: raw.machine, phases: raw.phases, steps })
    }

    /// The same for longer: what was recorded of a phase happens `times` in a row, each time
    /// beginning with another step. A recording of an hour tells what tools cost, a training of days
    /// pays for a first look at them once.
    #[must_use]
    pub fn longer(&self, times: usize) -> Self {
        let mut steps = Vec::with_capacity(self.steps.len() * times);
        for phase in self.steps.chunk_by(|one, next| one.phase == next.phase) {
            for round in 0..times {
                let (late, early) = phase.split_at(round * phase.len() / times);
                steps.extend(early.iter().chain(late).cloned());
            }
        }
        Self { machine: self.machine.clone(), phases: self.phases.clone(), steps }
    }

    /// The same in another order: that of the phases, and of the steps within each. What a policy loses in one
    /// order is a single draw: one look at a large object, or one time that a disk stalled, moves it.
    pub fn reordered(&self, seed: u64) -> Result<Self> {
        let mut generator = Mt19937::new(seed);
        let phases = permuted(&self.phases, &mut generator)?;
        let mut steps = Vec::with_capacity(self.steps.len());
        for phase in &phases {
            let own: Vec<_> = self.steps.iter().filter(|step| step.phase == *phase).collect();
            steps.extend(permuted(&own, &mut generator)?.into_iter().cloned());
        }
        Ok(Self { machine: self.machine.clone(), phases, steps })
    }

    /// Whether every step has what the goal needs.
    pub(super) fn check_goal(&self, goal: Goal) -> Result<()> {
        let lacks = |step: &Step| {
            let readable = |tool: Tool| !step.tools().reading(tool.format()).is_empty();
            goal.reads() && !step.write.keys().all(|tool| readable(*tool) && step.is_read(*tool))
        };
        match self.steps.iter().position(lacks) {
            None => Ok(()),
            Some(number) => {
                let message = "a step has no time to read what one of its tools wrote";
                let error = Error::new(Kind::Corrupt, message).with("step", number);
                Err(error.with("goal", goal))
            }
        }
    }
}

fn permuted<T: Clone>(items: &[T], generator: &mut Mt19937) -> Result<Vec<T>> {
    let order = randperm(items.len() as u64, generator)?;
    Ok(order.into_iter().map(|at| items[at as usize].clone()).collect())
}

impl Step {
    /// The tools of which there are times.
    pub(super) fn tools(&self) -> Tools {
        self.write.keys().chain(self.read.keys()).copied().collect()
    }

    /// The tools of which there are times to read.
    pub(super) fn readers(&self) -> Tools {
        self.read.keys().copied().collect()
    }

    fn is_read(&self, writer: Tool) -> bool {
        !self.readers().reading(writer.format()).is_empty()
    }

    fn check(&self, phases: &[String]) -> Result<()> {
        let wrong = |why: String| Err(Error::new(Kind::Corrupt, why));
        if !phases.contains(&self.phase) {
            return wrong(format!("the phase {:?} is not one of the trace's", self.phase));
        }
        if self.write.is_empty() {
            return wrong("no tool has a time to write".into());
        }
        for (direction, times) in [("write", &self.write), ("read", &self.read)] {
            for (tool, seconds) in times {
                if direction == "write" && !tool.writes() {
                    return wrong(format!("{tool} does not write"));
                }
                if !(seconds.is_finite() && *seconds > 0.0) {
                    return wrong(format!("the seconds to {direction} with {tool} are {seconds}"));
                }
            }
        }
        Ok(())
    }
}
