//! The best plan there is, by trying them all: the judge of the planners.

use tensorferry::plan::activations::simulate::Simulator;
use tensorferry::plan::activations::{Place, Profile, Tensor};
use tensorferry::{Error, Result};

use crate::combinations::combinations;

/// Three places for each of so many tensors are half a million plans.
pub const TENSORS_MAX: usize = 12;

/// Seconds of the best plan within the budget; endless if none can be carried out.
pub fn best_seconds(profile: &Profile, budget: u64) -> Result<f64> {
    profile.check()?;
    let tensors = profile.tensors.len();
    if tensors > TENSORS_MAX {
        let message = format!("{tensors} tensors are too many to try all plans");
        return Err(Error::invalid(format!("{message}; at most {TENSORS_MAX} can be")));
    }
    let forms: Vec<_> = profile.tensors.iter().map(forms).collect();
    let mut simulator = Simulator::new(profile, budget);
    let seconds = combinations(&forms).filter_map(|places| simulator.predict(&places));
    Ok(seconds.map(|came| came.seconds).fold(f64::INFINITY, f64::min))
}

fn forms(tensor: &Tensor) -> Vec<Place> {
    let encoded = tensor.is_compressible().then_some(Place::Offload { encoded: true });
    [Place::Keep, Place::Offload { encoded: false }].into_iter().chain(encoded).collect()
}
