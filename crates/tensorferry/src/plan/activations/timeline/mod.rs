//! The least stall that is found in the simulator.
//!
//! Moving a tensor shifts every transfer after it, so there is no formula for what a choice costs: it is
//! tried. The search *starts* from the paper's plan and from plans that keep tensors by simple orders (last
//! saved, largest, least encodable, ...) up to some part of the budget, and *climbs* from the best: one
//! tensor moves, or one moves and others move the other way so that as much is kept as before. What makes
//! the simulated step better stays. When nothing does, it is shaken and climbs again.
//!
//! *States.* None but the best so far. Random moves come from a fixed seed, so that the same profile and
//! budget give the same plan.
//!
//! *Bounds.* [`SIMULATED_TENSORS_MAX`] over all runs, and [`RUNS`] of them.

mod climb;
mod score;
mod starts;
mod why;

use super::plan::{Choice, Place};
use super::profile::Profile;
use crate::plan::activations::simulate::Simulator;

/// Tensors of all simulated steps together: bounds the time of the search.
pub const SIMULATED_TENSORS_MAX: usize = 36_000_000;
/// Simulated steps of a search: at least, and at most. All starts fit in the least.
pub const RUNS: (usize, usize) = (128, 12_000);

/// Tensors that are tried elsewhere to say why they are where they are; of the others it is only said that
/// the search put them there.
pub const WHYS_MAX: usize = 512;

/// The best choices found, with their reasons. The budget is at least the minimum.
pub(super) fn choose(profile: &Profile, budget: u64, simulator: &mut Simulator) -> Vec<Choice> {
    let affordable = SIMULATED_TENSORS_MAX / profile.tensors.len().max(1);
    let places = search_with(profile, budget, simulator, affordable.clamp(RUNS.0, RUNS.1));
    why::explain(profile, &places, simulator, (affordable / 8).min(WHYS_MAX))
}

/// The best places found within so many simulated steps: how good a quicker plan is. The profile must hold together,
/// the budget be at least the [least](super::minimum_budget).
pub fn search(profile: &Profile, budget: u64, runs: usize) -> Vec<Place> {
    search_with(profile, budget, &mut Simulator::new(profile, budget), runs)
}

fn search_with(
    profile: &Profile,
    budget: u64,
    simulator: &mut Simulator,
    runs: usize,
) -> Vec<Place> {
    if profile.bytes() <= budget {
        return vec![Place::Keep; profile.tensors.len()];
    }
    let starts = starts::all(profile, budget, simulator);
    climb::Climb::new(profile, simulator, runs).best(starts)
}

/// The form in which a tensor is offloaded unless there is a reason for another: the one that moves faster.
fn form(profile: &Profile, tensor: usize) -> Place {
    let seconds =
        |encoded| profile.write_seconds(tensor, encoded) + profile.read_seconds(tensor, encoded);
    let smaller = profile.tensors[tensor].is_compressible();
    Place::Offload { encoded: smaller && seconds(true) <= seconds(false) }
}

/// The forms that may be best: an encoded one that moves no slower either way is the only one.
fn forms(profile: &Profile, tensor: usize) -> Vec<Place> {
    let first = form(profile, tensor);
    if !profile.tensors[tensor].is_compressible() {
        return vec![first];
    }
    let other = Place::Offload { encoded: !first.is_encoded() };
    let write = |place: Place| profile.write_seconds(tensor, place.is_encoded());
    let read = |place: Place| profile.read_seconds(tensor, place.is_encoded());
    let worse = write(other) >= write(first) && read(other) >= read(first);
    if worse && first.is_encoded() { vec![first] } else { vec![first, other] }
}
