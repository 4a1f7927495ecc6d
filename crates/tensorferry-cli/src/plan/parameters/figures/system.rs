//! How one system trains one network.

use tensorferry::Result;
use tensorferry::plan::parameters::simulate::simulate;
use tensorferry::plan::parameters::{
    Mode, Planner, Prediction, Profile, minimum_budget, places, plan,
};
use tensorferry_simulate::parameters::modelled::{self, Hardware, Shape};

/// Who trains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum System {
    /// ZeRO-Offload as published: forward begins when all parameters are there, the optimizer when all
    /// gradients are.
    Native,
    /// Every layer copied, by our engine: nothing waits for more than it needs.
    Copy,
    /// The paper's planner.
    Paper,
    /// Ours.
    Exact,
    /// Ours, with no gradient on the device.
    Offload,
}

impl System {
    pub(super) const ALL: [Self; 5] =
        [Self::Native, Self::Copy, Self::Paper, Self::Exact, Self::Offload];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Native => "zero-offload",
            Self::Copy => "all copied",
            Self::Paper => "paper",
            Self::Exact => "exact",
            Self::Offload => "exact, gradients to host",
        }
    }

    /// What an iteration comes to; nothing if it does not fit.
    pub(super) fn train(self, setup: &Setup) -> Result<Option<Prediction>> {
        let profile = setup.profile()?;
        let share = if self == Self::Offload { 0.0 } else { 1.0 };
        self.with_reserve(&profile, profile.reserve(share)?, setup.hardware.capacity_bytes)
    }

    pub(super) fn with_reserve(
        self,
        profile: &Profile,
        reserve: u64,
        budget: u64,
    ) -> Result<Option<Prediction>> {
        let came = match self {
            Self::Native => native(profile, reserve)?,
            Self::Copy => {
                let modes = vec![Mode::Gfgb; profile.layers.len()];
                simulate(profile, &modes, &places(profile, reserve))?.prediction
            }
            Self::Paper | Self::Exact | Self::Offload => {
                let planner = if self == Self::Paper { Planner::Paper } else { Planner::Exact };
                if budget < minimum_budget(profile, reserve, planner) {
                    return Ok(None);
                }
                plan(profile, budget, reserve, planner)?.predicted
            }
        };
        Ok((came.device_bytes <= budget).then_some(came))
    }
}

/// What is trained where.
#[derive(Debug, Clone, Copy)]
pub(super) struct Setup {
    pub(super) shape: Shape,
    pub(super) hardware: Hardware,
    /// Of each device.
    pub(super) batch: u64,
    /// Each with a link of its own; the host adds their gradients up.
    pub(super) devices: u64,
}

impl Setup {
    pub(super) fn new(network: &str, machine: &str, batch: u64) -> Result<Self> {
        let (shape, hardware) = (Shape::named(network)?, Hardware::named(machine)?);
        Ok(Self { shape, hardware, batch, devices: 1 })
    }

    fn profile(&self) -> Result<Profile> {
        let mut profile = modelled::profile(&self.shape, &self.hardware, self.batch)?;
        if self.devices > 1 {
            for layer in &mut profile.layers {
                let moved = (self.devices * layer.gradient_bytes) as f64;
                layer.update_seconds += moved / self.hardware.host_bytes_per_second;
            }
        }
        Ok(profile)
    }
}

/// ZeRO-Offload: parameters come in behind their updates, then forward, backward with gradients leaving
/// behind it, then updates.
fn native(profile: &Profile, reserve: u64) -> Result<Prediction> {
    let mut parts = profile.clone();
    for layer in &mut parts.layers {
        layer.copy_seconds = Some(0.0);
        layer.update_seconds = 0.0;
    }
    let modes = vec![Mode::Gfgb; profile.layers.len()];
    let mut came = simulate(&parts, &modes, &places(profile, reserve))?.prediction;
    let (mut updated, mut copied) = (0.0_f64, 0.0_f64);
    for (number, layer) in profile.layers.iter().enumerate() {
        updated += layer.update_seconds;
        copied = copied.max(updated) + profile.copy_seconds(number);
    }
    came.seconds += copied;
    Ok(came)
}
