//! The best plan there is, by trying them all: the judge of the exact planner.

use tensorferry::plan::parameters::simulate::Simulator;
use tensorferry::plan::parameters::{Gradient, Layer, Mode, Profile};
use tensorferry::{Error, Result};

use crate::combinations::combinations;

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
    let modes: Vec<_> = combinations(&vec![Mode::ALL.to_vec(); layers]).collect();
    let places: Vec<_> = profile.layers.iter().map(places).collect();
    let mut best = f64::INFINITY;
    for gradients in combinations(&places) {
        if kept(profile, &gradients) > gradient_reserve {
            continue;
        }
        let simulator = Simulator::new(profile, &gradients);
        let fitting = modes.iter().filter(|modes| simulator.device_bytes(modes) <= budget);
        best = fitting.map(|modes| simulator.seconds(modes)).fold(best, f64::min);
    }
    Ok(best)
}

fn places(layer: &Layer) -> Vec<Gradient> {
    match layer.gradient_bytes {
        0 => vec![Gradient::None],
        _ => vec![Gradient::Device, Gradient::Host],
    }
}

fn kept(profile: &Profile, gradients: &[Gradient]) -> u64 {
    let all = profile.layers.iter().zip(gradients);
    let kept = all.filter(|(_, gradient)| **gradient == Gradient::Device);
    kept.map(|(layer, _)| layer.gradient_bytes).sum()
}
