//! What is remembered of one situation and size class.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::expected;
use crate::error::{Error, Kind, Result};
use crate::plan::checkpoint::tool::{Tool, Tools};

/// Extra seconds of looks stay below this share of the seconds spent.
pub const LOOK_SHARE: f64 = 0.01;

/// Extra seconds of looks stay below this share more while a tool is new here.
pub const FIRST_SHARE: f64 = 0.02;

/// The memory is short: older observations of a tool count for no more than so many.
pub(super) const WEIGHT_MAX: f64 = 8.0;

/// A tool with less than one observation is new.
pub(super) const KNOWN: f64 = 1.0;

/// What all tools have in common follows what is seen by this part, once it is known; more would hide that
/// the tool in use is not what it was taken for.
const LEVEL_GAIN: f64 = 0.05;

/// What is believed of a tool that is only looked at follows by at least this part: looks are few.
const LOOK_GAIN: f64 = 0.3;

/// No single observation counts for more than a factor of about 2.7: disks stall.
const STEP_MAX: f64 = 1.0;

/// Observations that are off by a factor of 1.5, in a row and on one side, say that something has changed.
const SURPRISE: f64 = 0.405;
const STREAK: i8 = 3;

/// A look at a new tool is taken to cost at least this part of an operation, at any other this one.
const NEW_COST: f64 = 0.25;
const KNOWN_COST: f64 = 0.05;

/// No look is charged with more than so many times what it was expected to take.
const OVERRUN_MAX: f64 = 10.0;

/// How one tool differs from what the rule says of it beside others.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Known {
    /// As a logarithm.
    pub(super) offset: f64,
    /// Observations behind it, as far as they still count.
    pub(super) weight: f64,
    /// The operation with which it was seen last.
    seen: u64,
}

impl Known {
    /// What it tells of a size that is near, by a part from none to one.
    pub(super) fn faded(self, near: f64) -> Self {
        Self { offset: self.offset, weight: near * self.weight, seen: 0 }
    }

    pub(super) fn is_new(self) -> bool {
        self.weight < KNOWN
    }
}

/// A look that was chosen, and is not back yet.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Look {
    pub(super) tool: Tool,
    /// Seconds that it is expected to take.
    pub(super) seconds: f64,
}

/// Tools and seconds; the level is what the tools have in common, as a logarithm beside the rule.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Cell {
    pub(super) level: f64,
    pub(super) tools: BTreeMap<Tool, Known>,
    /// Operations with the tool believed best.
    uses: u64,
    /// Surprises in a row; negative for times that were too short.
    streak: i8,
    operations: u64,
    seconds: f64,
    /// Extra seconds of looks.
    looked: f64,
    under_way: Option<Look>,
    /// The tools that could have been chosen last.
    pub(super) eligible: Tools,
    /// The operation of its situation with which it was used last.
    pub(super) tick: u64,
}

impl Cell {
    /// One that begins with what its neighbours know.
    pub(super) fn at(level: f64) -> Self {
        Self { level, ..Self::default() }
    }

    /// The part of an operation that a look is charged with at least.
    pub(super) const fn least_cost(is_new: bool) -> f64 {
        if is_new { NEW_COST } else { KNOWN_COST }
    }

    pub(super) fn affords(&self, cost: f64, is_new: bool) -> bool {
        let share = LOOK_SHARE + if is_new { FIRST_SHARE } else { 0.0 };
        self.looked + cost <= share * self.seconds
    }

    /// Operations since the tool was seen.
    pub(super) fn age(&self, tool: Tool) -> u64 {
        self.operations - self.tools.get(&tool).map_or(0, |known| known.seen)
    }

    pub(super) fn begin(&mut self, look: Look, cost: f64) {
        self.looked += cost;
        self.under_way = Some(look);
    }

    /// Counts an operation; what a look took longer than expected is charged, and the next one waits for it.
    pub(super) fn pay(&mut self, tool: Tool, seconds: f64) {
        self.operations += 1;
        self.seconds = (self.seconds + seconds).min(f64::MAX);
        let is_back = |look: &mut Look| look.tool.format() == tool.format();
        if let Some(look) = self.under_way.take_if(is_back) {
            let overrun = seconds.min(OVERRUN_MAX * look.seconds) - look.seconds;
            self.looked += overrun.max(0.0);
        }
    }

    /// Learns that a tool was off by `step` from what was believed; `is_first` where nothing was.
    pub(super) fn learn(
        &mut self,
        tool: Tool,
        from_afar: Known,
        step: f64,
        is_best: bool,
        is_first: bool,
    ) {
        let operations = self.operations;
        let known = self.tools.entry(tool).or_insert(from_afar);
        let gain = 1.0 / (expected::weight(tool) + 1.0 + known.weight);
        let gain = if is_best { gain } else { gain.max(LOOK_GAIN) };
        let cut = if known.is_new() { step } else { step.clamp(-STEP_MAX, STEP_MAX) };
        known.weight = (known.weight + 1.0).min(WEIGHT_MAX);
        known.seen = operations;
        if is_first {
            self.level += step;
        } else {
            known.offset += gain * cut;
        }
        if is_best && !is_first {
            // What a look shows is the tool's alone.
            let common = LEVEL_GAIN.max(1.0 / (self.uses as f64 + 1.0));
            self.level += common * (1.0 - gain) * cut;
            self.note(tool, step);
        }
        self.uses += u64::from(is_best);
    }

    /// Several surprises in a row: whether the machine or the tool has changed, looks at others tell. Until
    /// then the machine is taken to have, for the most part.
    fn note(&mut self, tool: Tool, step: f64) {
        let side = if step.abs() < SURPRISE { 0 } else { step.signum() as i8 };
        self.streak =
            if side != 0 && self.streak.signum() == side { self.streak + side } else { side };
        if self.streak.abs() < STREAK {
            return;
        }
        (self.streak, self.uses) = (0, 1);
        for (_, known) in self.tools.iter_mut().filter(|(other, _)| **other != tool) {
            known.weight = known.weight.min(KNOWN / 2.0);
        }
    }

    #[cfg(test)]
    #[cfg(not(loom))]
    pub(super) fn looked(&self) -> f64 {
        self.looked
    }

    #[cfg(test)]
    #[cfg(not(loom))]
    pub(super) fn seconds(&self) -> f64 {
        self.seconds
    }

    /// Judges a state that came from outside.
    pub(super) fn check(&self) -> Result<()> {
        let sane = |number: f64, most: f64| number.abs() <= most;
        let known = |known: &Known| {
            sane(known.offset, 1e3)
                && (0.0..=WEIGHT_MAX).contains(&known.weight)
                && known.seen <= self.operations
        };
        let look =
            self.under_way.is_none_or(|look| look.seconds >= 0.0 && look.seconds.is_finite());
        let sums = [self.seconds, self.looked];
        let counts = self.operations.max(self.uses).max(self.tick) <= 1 << 52;
        let fine = sane(self.level, 1e3)
            && look
            && counts
            && self.streak.abs() < STREAK
            && sums.iter().all(|sum| *sum >= 0.0 && sum.is_finite());
        if fine && self.tools.values().all(known) {
            return Ok(());
        }
        Err(Error::new(Kind::Corrupt, "what is remembered of a size is out of bounds"))
    }
}
