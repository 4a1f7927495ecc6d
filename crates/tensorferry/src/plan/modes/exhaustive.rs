//! The best plan there is, by trying them all: the judge of the exact planner.

use super::plan::{Gradient, Mode};
use super::profile::Profile;
use crate::error::{Error, Result};
use crate::plan::simulate::parameters::{Clocks, Cost, Simulator};

/// Three modes for each of so many layers are half a million plans.
pub const LAYERS_MAX: usize = 12;

/// Seconds of the best plan within the budget, which is at least the minimum.
pub fn best_seconds(profile: &Profile, gradients: &[Gradient], budget: u64) -> Result<f64> {
    profile.check()?;
    let layers = profile.layers.len();
    if gradients.len() != layers {
        let places = gradients.len();
        let message = format!("{places} places of gradients for {layers} layers");
        return Err(Error::invalid(message + "; give one for each"));
    }
    if layers > LAYERS_MAX {
        let message = format!("{layers} layers are too many to try all plans");
        return Err(Error::invalid(format!("{message}; at most {LAYERS_MAX} can be")));
    }
    let simulator = Simulator::new(profile, gradients);
    let room = budget.saturating_sub(simulator.resident_bytes());
    let mut all = All { costs: simulator.costs(), modes: Vec::new(), best: f64::INFINITY };
    all.go_on(Clocks::default(), room);
    Ok(all.best)
}

struct All<'a> {
    costs: &'a [Cost],
    modes: Vec<Mode>,
    best: f64,
}

impl All<'_> {
    fn go_on(&mut self, clocks: Clocks, room: u64) {
        let Some(cost) = self.costs.get(self.modes.len()) else {
            return self.turn(clocks);
        };
        for mode in Mode::ALL {
            let bytes = if mode.is_copied() { cost.bytes } else { 0 };
            let mut clocks = clocks;
            if bytes <= room {
                clocks.forward(cost, mode);
                self.modes.push(mode);
                self.go_on(clocks, room - bytes);
                self.modes.pop();
            }
        }
    }

    fn turn(&mut self, mut clocks: Clocks) {
        for (cost, mode) in self.costs.iter().zip(&self.modes).rev() {
            clocks.backward(cost, *mode);
        }
        self.best = self.best.min(clocks.update);
    }
}
