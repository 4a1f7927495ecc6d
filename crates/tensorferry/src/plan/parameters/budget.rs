//! The least device memory with which an iteration can be carried out at all.

use super::plan::{Mode, Planner};
use super::profile::Profile;
use crate::plan::parameters::simulate::Simulator;

/// The least budget. For the exact planner that is the work: it can leave parameters and gradients on the
/// host. The paper's keeps the gradients that the reserve has room for, and a planner that copies everything
/// has all parameters there too. The profile must hold together.
pub fn minimum_budget(profile: &Profile, gradient_reserve: u64, planner: Planner) -> u64 {
    let (mode, reserve) = match planner {
        Planner::Exact => (Mode::Dha, 0),
        Planner::Paper => (Mode::Dha, gradient_reserve),
        Planner::Copy => (Mode::Gfgb, gradient_reserve),
    };
    let gradients = super::places(profile, reserve);
    Simulator::new(profile, &gradients).device_bytes(&vec![mode; profile.layers.len()])
}
