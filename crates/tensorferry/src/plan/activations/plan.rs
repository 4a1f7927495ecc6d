//! What is to be done with each tensor, and what that should come to.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::profile::{Profile, VERSION};
use crate::error::{Error, Result};
use crate::plan::activations::simulate::Simulator;
use crate::plan::document::{self, PLAN_AGAIN, stale};

/// Who decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Planner {
    /// The two phases of the paper.
    Paper,
    /// The least stall that is found in the simulator.
    #[default]
    Timeline,
}

/// Where a tensor spends the time between forward and backward.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Place {
    /// In memory.
    Keep,
    /// On disk.
    Offload {
        /// Made smaller on the way.
        encoded: bool,
    },
}

/// One tensor's place, and the reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Choice {
    /// Where it goes.
    pub place: Place,
    /// For people.
    pub why: String,
}

/// What to do with every tensor of a profile.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// [`VERSION`].
    pub version: u32,
    /// Who made it.
    pub planner: Planner,
    /// Bytes of activations that may be in memory.
    pub budget: u64,
    /// One for each tensor, in the order of the profile.
    pub choices: Vec<Choice>,
    /// Offloaded tensors in the order in which backward first needs them.
    pub fetch_order: Vec<usize>,
    /// What the simulator makes of it.
    pub predicted: Prediction,
}

/// What a step comes to.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prediction {
    /// Seconds that forward waits for writes.
    pub forward_stall: f64,
    /// Seconds that backward waits for reads.
    pub backward_stall: f64,
    /// Seconds of the step, stalls included.
    pub seconds: f64,
    /// The most bytes of activations in memory at once.
    pub peak_bytes: u64,
    /// To disk.
    pub written_bytes: u64,
    /// From disk.
    pub read_bytes: u64,
}

impl Planner {
    /// Every planner.
    pub const ALL: [Self; 2] = [Self::Timeline, Self::Paper];

    /// The name, the same in every language.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Paper => "paper",
            Self::Timeline => "timeline",
        }
    }
}

impl fmt::Display for Planner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Planner {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|planner| planner.name() == name).ok_or_else(|| {
            Error::invalid(format!("{name:?} is no planner; choose \"timeline\" or \"paper\""))
        })
    }
}

impl Place {
    /// Whether it leaves memory.
    pub const fn is_offloaded(self) -> bool {
        matches!(self, Self::Offload { .. })
    }

    /// Whether it leaves memory and is made smaller on the way.
    pub const fn is_encoded(self) -> bool {
        matches!(self, Self::Offload { encoded: true })
    }
}

impl Prediction {
    /// Seconds that compute waits.
    pub fn stall(&self) -> f64 {
        self.forward_stall + self.backward_stall
    }
}

impl Plan {
    /// What it comes to with the times of another profile of the same step; nothing if it can't be
    /// carried out there.
    pub fn foresee(&self, profile: &Profile) -> Option<Prediction> {
        let places: Vec<Place> = self.choices.iter().map(|choice| choice.place).collect();
        if places.len() != profile.tensors.len() {
            return None;
        }
        Simulator::new(profile, self.budget).predict(&places)
    }

    /// Reads a plan and judges it beside the profile it was made from.
    pub fn parse(json: &str, profile: &Profile) -> Result<Self> {
        let plan: Self = document::read(json, "plan", check_version)?;
        plan.check(profile)?;
        Ok(plan)
    }

    /// What [`parse`](Self::parse) reads.
    pub fn to_json(&self) -> Result<String> {
        document::write(self, "plan")
    }

    /// Whether it fits the profile: a plan may come from a file.
    pub fn check(&self, profile: &Profile) -> Result<()> {
        profile.check()?;
        check_version(self.version)?;
        let (choices, tensors) = (self.choices.len(), profile.tensors.len());
        if choices != tensors {
            let what = format!("the plan is for {choices} tensors, the profile has {tensors}");
            return Err(stale(&what));
        }
        if self.fetch_order != fetch_order(profile, &self.places()) {
            return Err(stale("the plan fetches in another order than the profile needs"));
        }
        let Prediction { forward_stall, backward_stall, seconds, .. } = self.predicted;
        if ![forward_stall, backward_stall, seconds].iter().all(|each| each.is_finite()) {
            return Err(stale("the plan predicts what is no time"));
        }
        Ok(())
    }

    /// The place of each tensor.
    pub fn places(&self) -> Vec<Place> {
        self.choices.iter().map(|choice| choice.place).collect()
    }
}

fn check_version(version: u32) -> Result<()> {
    document::check_version("plan", version, VERSION, PLAN_AGAIN)
}

/// Offloaded tensors in the order in which backward first needs them; those that it never needs are not
/// fetched.
pub(super) fn fetch_order(profile: &Profile, places: &[Place]) -> Vec<usize> {
    let mut order = Vec::new();
    let mut is_seen = vec![false; places.len()];
    for use_ in &profile.uses {
        let seen = std::mem::replace(&mut is_seen[use_.tensor], true);
        if !seen && places[use_.tensor].is_offloaded() {
            order.push(use_.tensor);
        }
    }
    order
}
