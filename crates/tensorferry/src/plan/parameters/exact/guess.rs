//! Good plans in a fraction of the time: what a search begins with.
//!
//! Places of gradients come from the knapsack, from parts of the reserve, the first to leave or the last to
//! leave, and from what the bounds find best; each gets modes, and the best is improved one layer at a time.

use super::bound::Start;
use super::{Decided, Problem};
use crate::plan::parameters::plan::{Gradient, Mode};
use crate::plan::parameters::profile::Profile;
use crate::plan::parameters::simulate::Simulator;
use crate::plan::parameters::{kept_bytes, paper, places};

/// Parts of the reserve that are tried, in eighths.
const EIGHTHS: [u64; 6] = [0, 1, 2, 4, 6, 8];
/// Simulated layers on the way from one choice to the next.
pub(in crate::plan::parameters) const STEPS_MAX: usize = 1 << 15;
/// Parts of an iteration by which it must become shorter to count.
const ROUNDING: f64 = 1e-12;

/// The best of all guesses. The paper's plan is among them, wherever the paper has one.
pub(super) fn best(
    profile: &Profile,
    problem: &Problem,
    start: &Start<'_>,
    gradient_reserve: u64,
) -> Decided {
    let mut gradients = places(profile, gradient_reserve);
    if kept_bytes(profile, &gradients) > problem.reserve {
        gradients = places(profile, problem.reserve);
    }
    let mut guess = Guess { profile, problem, best: None };
    guess.fill(&gradients);
    for choices in start.guesses() {
        let (modes, mut gradients): (Vec<_>, Vec<_>) = choices.into_iter().unzip();
        guess.fit_gradients(&mut gradients);
        guess.judge(&gradients, modes);
    }
    for gradients in guess.candidates() {
        guess.fill(&gradients);
    }
    guess.climb()
}

struct Guess<'a> {
    profile: &'a Profile,
    problem: &'a Problem,
    best: Option<Decided>,
}

impl Guess<'_> {
    /// Tries modes for places that fit.
    fn fill(&mut self, gradients: &[Gradient]) {
        let simulator = Simulator::new(self.profile, gradients);
        let capacity = self.problem.capacity - kept_bytes(self.profile, gradients);
        let plain = [Mode::Gfgb, Mode::Dha].map(|mode| vec![mode; gradients.len()]);
        let known =
            self.best.as_ref().map(|best| best.choices.iter().map(|choice| choice.0).collect());
        let papers = paper::modes(&simulator, capacity);
        for modes in plain.into_iter().chain(known).chain([papers]) {
            self.judge(gradients, modes);
        }
    }

    /// Takes a plan over if it is better, once it fits.
    fn judge(&mut self, gradients: &[Gradient], mut modes: Vec<Mode>) {
        let simulator = Simulator::new(self.profile, gradients);
        let capacity = self.problem.capacity - kept_bytes(self.profile, gradients);
        paper::fit(simulator.costs(), &mut modes, capacity);
        let seconds = simulator.seconds(&modes);
        if self.best.as_ref().is_none_or(|best| seconds < best.seconds) {
            let choices = modes.into_iter().zip(gradients.iter().copied()).collect();
            self.best = Some(Decided { choices, seconds });
        }
    }

    /// Places within the reserve, without any twice.
    fn candidates(&self) -> Vec<Vec<Gradient>> {
        let layers = &self.profile.layers;
        let leaves_last: Vec<usize> = (0..layers.len()).collect();
        let leaves_first: Vec<usize> = leaves_last.iter().rev().copied().collect();
        let orders = [self.by_worth(), leaves_last, leaves_first];
        let mut candidates: Vec<Vec<Gradient>> = Vec::new();
        for order in &orders {
            for part in EIGHTHS {
                let gradients = self.keep(order, self.problem.reserve / 8 * part);
                if !candidates.contains(&gradients) {
                    candidates.push(gradients);
                }
            }
        }
        candidates
    }

    /// The layers whose gradients save most for a byte, first.
    fn by_worth(&self) -> Vec<usize> {
        let rate = |layer: usize| {
            let layer = &self.profile.layers[layer];
            layer.direct_gradient_seconds / layer.gradient_bytes.max(1) as f64
        };
        let mut order: Vec<usize> = (0..self.profile.layers.len()).collect();
        order.sort_by(|a, b| rate(*b).total_cmp(&rate(*a)));
        order
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

    /// Gives up the places of those that save least, until the others fit.
    fn fit_gradients(&self, gradients: &mut [Gradient]) {
        let order = self.by_worth();
        let mut kept = kept_bytes(self.profile, gradients);
        for layer in order.into_iter().rev() {
            if kept <= self.problem.reserve {
                return;
            }
            if gradients[layer] == Gradient::Device {
                gradients[layer] = Gradient::Host;
                kept -= self.profile.layers[layer].gradient_bytes;
            }
        }
    }

    /// Changes one choice after the other, as long as that helps.
    fn climb(mut self) -> Decided {
        let mut best = self.best.take().unwrap_or_else(|| Decided::new(self.profile, Vec::new()));
        let (mut since, mut layer, mut steps) = (0, 0, STEPS_MAX);
        while since < best.choices.len() && steps > best.choices.len() {
            since += 1;
            for cost in self.problem.layers[layer].all() {
                for mode in Mode::ALL {
                    let mut choices = best.choices.clone();
                    choices[layer] = (mode, cost.gradient);
                    if choices == best.choices || !self.fits(&choices) {
                        continue;
                    }
                    steps = steps.saturating_sub(choices.len());
                    let other = Decided::new(self.profile, choices);
                    if other.seconds < best.seconds * (1.0 - ROUNDING) {
                        (best, since) = (other, 0);
                    }
                }
            }
            layer = (layer + 1) % best.choices.len();
        }
        best
    }

    fn fits(&self, choices: &[(Mode, Gradient)]) -> bool {
        let (mut bytes, mut kept) = (0, 0);
        for ((mode, gradient), layer) in choices.iter().zip(&self.profile.layers) {
            bytes += if mode.is_copied() { layer.parameter_bytes } else { 0 };
            kept += if *gradient == Gradient::Device { layer.gradient_bytes } else { 0 };
        }
        kept <= self.problem.reserve && bytes + kept <= self.problem.capacity
    }
}
