//! The least device memory with which an iteration can be carried out at all.

use super::plan::Planner;
use super::profile::Profile;
use crate::plan::gradients;

/// The least budget: work, the gradients that the reserve keeps, and for a planner that copies everything, all
/// parameters. The profile must hold together.
pub fn minimum_budget(profile: &Profile, gradient_reserve: u64, planner: Planner) -> u64 {
    let kept = gradients::keep(profile, gradient_reserve);
    let kept = profile.layers.iter().zip(kept).filter(|(_, kept)| *kept);
    let kept: u64 = kept.map(|(layer, _)| layer.gradient_bytes).sum();
    let copied = if planner == Planner::Copy { profile.parameter_bytes() } else { 0 };
    profile.work_bytes + kept + copied
}
