//! Gradients' places and layers' modes together.
//!
//! The knapsack judges each gradient by itself: by how much its layer's backward is shorter. But gradients
//! share the link outwards, and one that is copied out behind its layer holds up those that later layers
//! write in place, so that keeping more of them can make an iteration longer. And what they take of the budget
//! is missing for parameters. So the reserve is a limit here and no order, and the simulator is the judge:
//!
//! ```text
//!   the knapsack ─┐
//!   less of the reserve, the first to leave, the last to leave ─┴─► one gradient after the other ──► the best
//! ```
//!
//! *Bounds.* Where there are few layers, each of these gets modes of its own. [`SEARCHES_LAYERS`] limits that;
//! beyond it they are judged under the modes of the best so far, at most [`STEPS_MAX`] layers of them, and
//! only the last one gets its own. Where one search is too much already, the modes to judge by are a guess,
//! and the search is that last one. The plan is never worse than the paper's, and the gap that it states is
//! that of its modes for its gradients.

use super::plan::{Gradient, Mode};
use super::profile::Profile;
use super::{exact, kept_bytes, places};
use crate::plan::simulate::parameters::Simulator;

/// Layers of all searches for modes together.
const SEARCHES_LAYERS: usize = 500;
/// Simulated layers between these searches.
const STEPS_MAX: usize = 1 << 15;
/// Parts of the reserve that are tried, in eighths.
const EIGHTHS: [u64; 6] = [0, 1, 2, 4, 6, 8];
/// Parts of an iteration by which it must become shorter to count.
const ROUNDING: f64 = 1e-12;

/// What was decided, and what it comes to.
pub(super) struct Joint {
    pub(super) gradients: Vec<Gradient>,
    pub(super) modes: Vec<Mode>,
    /// Infinite while the modes are a guess.
    pub(super) gap_seconds: f64,
    seconds: f64,
}

/// The best that was found within `budget` bytes, which are enough for the work.
pub(super) fn choose(profile: &Profile, budget: u64, gradient_reserve: u64) -> Joint {
    let reserve = gradient_reserve.min(budget.saturating_sub(profile.work_bytes));
    let searches = SEARCHES_LAYERS / profile.layers.len().max(1);
    // The paper's, wherever the paper has a plan.
    let mut gradients = places(profile, gradient_reserve);
    if kept_bytes(profile, &gradients) > reserve {
        gradients = places(profile, reserve);
    }
    let best = match searches {
        0 => Joint::guessed(profile, budget, gradients),
        _ => Joint::searched(profile, budget, gradients, &[]),
    };
    let mut look = Look {
        profile,
        budget,
        reserve,
        // One is for the end.
        searches: searches.saturating_sub(1),
        steps: STEPS_MAX,
        best,
        promised: None,
    };
    for gradients in look.candidates() {
        look.judge(gradients);
    }
    look.climb();
    look.finish()
}

impl Joint {
    /// The best modes for these gradients, which fit. They are no slower than `known` ones, if these fit.
    fn searched(profile: &Profile, budget: u64, gradients: Vec<Gradient>, known: &[Mode]) -> Self {
        let simulator = Simulator::new(profile, &gradients);
        let capacity = budget - simulator.resident_bytes();
        let (modes, gap_seconds) = exact::choose(&simulator, capacity, known);
        let seconds = simulator.seconds(&modes);
        Self { gradients, modes, gap_seconds, seconds }
    }

    /// Good modes for these gradients, which fit.
    fn guessed(profile: &Profile, budget: u64, gradients: Vec<Gradient>) -> Self {
        let simulator = Simulator::new(profile, &gradients);
        let modes = exact::guess(&simulator, budget - simulator.resident_bytes());
        let seconds = simulator.seconds(&modes);
        Self { gradients, modes, gap_seconds: f64::INFINITY, seconds }
    }
}

struct Look<'a> {
    profile: &'a Profile,
    budget: u64,
    reserve: u64,
    /// For modes, that may still be made.
    searches: usize,
    /// That may still be simulated.
    steps: usize,
    /// With modes of its own, searched or guessed.
    best: Joint,
    /// Better gradients, and what they come to under the modes of the best.
    promised: Option<(f64, Vec<Gradient>)>,
}

impl Look<'_> {
    /// What they leave of the reserve, if they fit.
    fn room(&self, gradients: &[Gradient]) -> Option<u64> {
        self.reserve.checked_sub(kept_bytes(self.profile, gradients))
    }

    /// Takes over gradients, which fit, if they are better; whether they are.
    fn judge(&mut self, gradients: Vec<Gradient>) -> bool {
        if self.searches > 0 {
            self.searches -= 1;
            return self.search(gradients);
        }
        let simulator = Simulator::new(self.profile, &gradients);
        let least = self.promised.as_ref().map_or(self.best.seconds, |promised| promised.0);
        self.steps = self.steps.saturating_sub(gradients.len());
        let fits = simulator.device_bytes(&self.best.modes) <= self.budget;
        let seconds = if fits { simulator.seconds(&self.best.modes) } else { f64::INFINITY };
        let is_better = seconds < least * (1.0 - ROUNDING);
        if is_better {
            self.promised = Some((seconds, gradients));
        }
        is_better
    }

    /// The same with modes of their own.
    fn search(&mut self, gradients: Vec<Gradient>) -> bool {
        let known = &self.best.modes;
        let joint = Joint::searched(self.profile, self.budget, gradients, known);
        let is_better = joint.seconds < self.best.seconds * (1.0 - ROUNDING);
        if is_better {
            self.best = joint;
        }
        is_better
    }

    /// Changes one gradient after the other, as long as that helps.
    fn climb(&mut self) {
        let layers = &self.profile.layers;
        let mut found =
            self.promised.as_ref().map_or(&self.best.gradients, |found| &found.1).clone();
        let Some(mut room) = self.room(&found) else { return };
        let (mut since, mut layer) = (0, 0);
        while since < layers.len() && self.steps > 0 {
            let bytes = layers[layer].gradient_bytes;
            let (place, left) = match found[layer] {
                Gradient::Device => (Gradient::Host, Some(room + bytes)),
                Gradient::Host => (Gradient::Device, room.checked_sub(bytes)),
                Gradient::None => (Gradient::None, None),
            };
            since += 1;
            if let Some(left) = left {
                let before = std::mem::replace(&mut found[layer], place);
                if self.judge(found.clone()) {
                    (room, since) = (left, 0);
                } else {
                    found[layer] = before;
                }
            }
            layer = (layer + 1) % layers.len();
        }
    }

    fn finish(mut self) -> Joint {
        if let Some((_, gradients)) = self.promised.take() {
            self.search(gradients);
        }
        if self.best.gap_seconds.is_finite() {
            return self.best;
        }
        let Joint { gradients, modes, .. } = self.best;
        Joint::searched(self.profile, self.budget, gradients, &modes)
    }

    /// Without any twice.
    fn candidates(&self) -> Vec<Vec<Gradient>> {
        let layers = &self.profile.layers;
        let rate = |layer: usize| {
            let layer = &layers[layer];
            layer.direct_gradient_seconds / layer.gradient_bytes.max(1) as f64
        };
        let leaves_last: Vec<usize> = (0..layers.len()).collect();
        let leaves_first: Vec<usize> = leaves_last.iter().rev().copied().collect();
        let mut saves_most = leaves_last.clone();
        saves_most.sort_by(|a, b| rate(*b).total_cmp(&rate(*a)));
        let orders = [saves_most, leaves_last, leaves_first];
        let parts =
            |order: &Vec<usize>| EIGHTHS.map(|part| self.keep(order, self.reserve / 8 * part));
        let mut candidates: Vec<Vec<Gradient>> = Vec::new();
        for gradients in orders.iter().flat_map(parts) {
            if gradients != self.best.gradients && !candidates.contains(&gradients) {
                candidates.push(gradients);
            }
        }
        candidates
    }

    /// Keeps, in this order, what fits.
    fn keep(&self, order: &[usize], mut reserve: u64) -> Vec<Gradient> {
        let mut gradients = places(self.profile, 0);
        for &layer in order {
            let bytes = self.profile.layers[layer].gradient_bytes;
            if gradients[layer] == Gradient::Host && bytes <= reserve {
                reserve -= bytes;
                gradients[layer] = Gradient::Device;
            }
        }
        gradients
    }
}
