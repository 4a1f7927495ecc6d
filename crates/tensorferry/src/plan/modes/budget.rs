//! The least device memory with which an iteration can be carried out at all.

use super::plan::{Mode, Planner};
use super::profile::Profile;
use crate::plan::simulate::parameters::Simulator;

/// The least budget: work, the gradients that the reserve keeps, and for a planner that copies everything, all
/// parameters. The profile must hold together.
pub fn minimum_budget(profile: &Profile, gradient_reserve: u64, planner: Planner) -> u64 {
    let gradients = super::places(profile, gradient_reserve);
    least(&Simulator::new(profile, &gradients), planner)
}

/// The same, when the gradients have their places.
pub(super) fn least(simulator: &Simulator, planner: Planner) -> u64 {
    let mode = if planner == Planner::Copy { Mode::Gfgb } else { Mode::Dha };
    simulator.device_bytes(&vec![mode; simulator.costs().len()])
}
