//! The best plan there is, by trying them all: the judge of the exact planner.

use super::plan::Mode;
use super::profile::Profile;
use crate::error::{Error, Result};
use crate::plan::parameters::simulate::{Clocks, Cost, Variants};

/// Three modes and two places of a gradient for each of so many layers are more than a million plans.
pub const LAYERS_MAX: usize = 8;

/// Seconds of the best plan within the budget, which is at least the work, with at most `gradient_reserve` bytes
/// of gradients on the device.
pub fn best_seconds(profile: &Profile, gradient_reserve: u64, budget: u64) -> Result<f64> {
    profile.check()?;
    let layers = profile.layers.len();
    if layers > LAYERS_MAX {
        let message = format!("{layers} layers are too many to try all plans");
        return Err(Error::invalid(format!("{message}; at most {LAYERS_MAX} can be")));
    }
    let layers = Variants::of(profile, gradient_reserve);
    let mut all = All { layers: &layers, choices: Vec::new(), best: f64::INFINITY };
    let room = budget.saturating_sub(profile.work_bytes);
    all.go_on(Clocks::default(), room, gradient_reserve);
    Ok(all.best)
}

struct All<'a> {
    layers: &'a [Variants],
    choices: Vec<(&'a Cost, Mode)>,
    best: f64,
}

impl<'a> All<'a> {
    fn go_on(&mut self, clocks: Clocks, room: u64, reserve: u64) {
        let layers: &'a [Variants] = self.layers;
        let Some(layer) = layers.get(self.choices.len()) else {
            return self.turn(clocks);
        };
        for cost in layer.all() {
            for mode in Mode::ALL {
                let bytes = cost.kept + if mode.is_copied() { cost.bytes } else { 0 };
                if bytes <= room && cost.kept <= reserve {
                    let mut clocks = clocks;
                    clocks.forward(cost, mode);
                    self.choices.push((cost, mode));
                    self.go_on(clocks, room - bytes, reserve - cost.kept);
                    self.choices.pop();
                }
            }
        }
    }

    fn turn(&mut self, mut clocks: Clocks) {
        for (cost, mode) in self.choices.iter().rev() {
            clocks.backward(cost, *mode);
        }
        self.best = self.best.min(clocks.update);
    }
}
