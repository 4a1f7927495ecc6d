//! Where each layer's parameters and gradient are used, and what that should come to.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::profile::{Profile, VERSION};
use crate::error::{Error, Result};
use crate::plan::document::{self, PLAN_AGAIN, stale};

/// Who decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Planner {
    /// The shortest iteration that a search finds, as the simulator counts it, and by how much others could be
    /// shorter at most.
    #[default]
    Exact,
    /// The paper's forward algorithm with backtracking, and its greedy step for backward.
    Paper,
    /// Every layer is copied in, as ZeRO-Offload does.
    Copy,
}

/// Where a layer's parameters are when it computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Copied in, then on the device in forward and backward.
    Gfgb,
    /// In host memory in both, read over the link.
    Dha,
    /// In host memory in forward; copied in meanwhile, on the device in backward.
    Dfgb,
}

/// Where backward puts a layer's gradient. The optimizer gets it on the host in either case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Gradient {
    /// There is none.
    None,
    /// In a buffer on the device, from which it is copied out while backward goes on.
    Device,
    /// Straight into host memory.
    Host,
}

/// One layer's places, and the reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Choice {
    /// Of its parameters.
    pub mode: Mode,
    /// Of its gradient.
    pub gradient: Gradient,
    /// For people.
    pub why: String,
}

/// What to do with every layer of a profile.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// [`VERSION`].
    pub version: u32,
    /// Who made it.
    pub planner: Planner,
    /// Bytes that may be on the device.
    pub budget: u64,
    /// Bytes of it that gradients may take.
    pub gradient_reserve: u64,
    /// One for each layer, in the order of the profile.
    pub choices: Vec<Choice>,
    /// Layers that are copied in, in the order in which they go over the link.
    pub copy_order: Vec<usize>,
    /// What the simulator makes of it.
    pub predicted: Prediction,
    /// No plan is faster by more than this, with these places of gradients or with others within the reserve:
    /// zero if it is known to be the best. Only the exact planner knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gap_seconds: Option<f64>,
}

/// What an iteration comes to.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prediction {
    /// From the start of forward to the end of the last update.
    pub seconds: f64,
    /// Of these, seconds in which the device computes.
    pub compute_seconds: f64,
    /// In which forward waits for copies.
    pub forward_wait: f64,
    /// In which backward waits for copies, or for gradients to leave.
    pub backward_wait: f64,
    /// From the end of backward on: gradients that still leave, and updates.
    pub tail_seconds: f64,
    /// On the device: work, copied layers and gradients, each in a buffer of its own all the time.
    pub device_bytes: u64,
    /// Copied in.
    pub copied_bytes: u64,
    /// Read over the link in place.
    pub direct_bytes: u64,
}

impl Planner {
    /// Every planner.
    pub const ALL: [Self; 3] = [Self::Exact, Self::Paper, Self::Copy];

    /// The name, the same in every language.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Paper => "paper",
            Self::Copy => "copy",
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
            let known = "choose \"exact\", \"paper\" or \"copy\"";
            Error::invalid(format!("{name:?} is no planner; {known}"))
        })
    }
}

impl Mode {
    /// Every mode.
    pub const ALL: [Self; 3] = [Self::Gfgb, Self::Dha, Self::Dfgb];

    /// The paper's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gfgb => "GFGB",
            Self::Dha => "DHA",
            Self::Dfgb => "DFGB",
        }
    }

    /// Whether forward reads the parameters over the link.
    pub const fn is_direct_in_forward(self) -> bool {
        matches!(self, Self::Dha | Self::Dfgb)
    }

    /// Whether they are copied in, sooner or later.
    pub const fn is_copied(self) -> bool {
        matches!(self, Self::Gfgb | Self::Dfgb)
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Prediction {
    /// The share of the iteration in which the device does not compute.
    pub fn idle_share(&self) -> f64 {
        if self.seconds > 0.0 { 1.0 - self.compute_seconds / self.seconds } else { 0.0 }
    }
}

impl Plan {
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
        let (choices, layers) = (self.choices.len(), profile.layers.len());
        if choices != layers {
            let what = format!("the plan is for {choices} layers, the profile has {layers}");
            return Err(stale(&what));
        }
        let mut both = self.choices.iter().zip(&profile.layers);
        let differs = |(choice, layer): (&Choice, &super::Layer)| {
            (choice.gradient == Gradient::None) != (layer.gradient_bytes == 0)
        };
        if let Some(layer) = both.position(differs) {
            let what = format!("layer {layer} has a gradient in one and none in the other");
            return Err(stale(&what));
        }
        if self.copy_order != copy_order(profile, &self.modes()) {
            return Err(stale("the plan copies in another order than the layers are needed"));
        }
        let Prediction { seconds, compute_seconds, .. } = self.predicted;
        if ![seconds, compute_seconds].iter().all(|each| each.is_finite()) {
            return Err(stale("the plan predicts what is no time"));
        }
        Ok(())
    }

    /// The mode of each layer.
    pub fn modes(&self) -> Vec<Mode> {
        self.choices.iter().map(|choice| choice.mode).collect()
    }

    /// The place of each gradient.
    pub fn gradients(&self) -> Vec<Gradient> {
        self.choices.iter().map(|choice| choice.gradient).collect()
    }
}

fn check_version(version: u32) -> Result<()> {
    document::check_version("plan", version, VERSION, PLAN_AGAIN)
}

/// Layers that are copied in the order of need: first for forward, then for backward.
pub(in crate::plan) fn copy_order(profile: &Profile, modes: &[Mode]) -> Vec<usize> {
    let of_mode = |mode: Mode| {
        let wanted = move |layer: &usize| {
            modes[*layer] == mode && profile.layers[*layer].parameter_bytes > 0
        };
        (0..modes.len()).filter(wanted)
    };
    of_mode(Mode::Gfgb).chain(of_mode(Mode::Dfgb).rev()).collect()
}
