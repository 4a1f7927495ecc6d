//! One training iteration under a plan for its parameters and gradients.
//!
//! ```text
//!   Profile, gradients ──► Cost ─┐
//!   modes ───────────────────────┴─► Clocks: compute, in, out, update ──► Prediction, and a Timeline if wanted
//! ```
//!
//! | what | file |
//! |---|---|
//! | what a layer costs | `costs.rs` |
//! | four clocks and what a layer does to them | `clocks.rs` |
//! | an iteration | `run.rs` |
//! | what happened when, to be drawn | `timeline.rs` |
//!
//! *The rules*, which are the runtime's too:
//!
//! - Compute takes the layers one after the other, forward and then in reverse. It waits for a layer that is
//!   copied in until its copy is whole.
//! - Copies go inwards one at a time from the start of forward on, in the order in which layers are needed:
//!   GFGB layers as forward comes to them, then DFGB layers as backward does.
//! - A kernel that reads parameters in place uses the link from its start, and before copies: they wait while
//!   it reads. A runtime comes near to that if it copies in small pieces, so that a kernel waits for one of
//!   them at most. If the link is not shared, neither disturbs the other.
//! - Gradients go outwards in the order of backward. One in a device buffer leaves when its layer's backward
//!   has ended. One that is written in place leaves from the start of its layer's backward, which does not
//!   end before it has left.
//! - The optimizer takes the layers in the order of backward, each when its gradient has arrived. The iteration
//!   ends with it: the next one needs what was updated last.
//! - Each layer that is copied has a buffer for its parameters on the device, each gradient that stays has
//!   one, and they are there all the time.
//!
//! *Bounds.* A run takes time in proportion to the layers.

mod clocks;
mod costs;
mod run;
#[cfg(test)]
#[cfg(not(loom))]
mod tests;
mod timeline;

pub(in crate::plan) use clocks::Clocks;
pub(in crate::plan) use costs::{Cost, Leaving, Variants};
pub use run::Simulator;
use serde::Serialize;
pub use timeline::{Doing, Lane, Span, Timeline};

use crate::error::{Error, Result};
use crate::plan::parameters::{Gradient, Layer, Mode, Prediction, Profile, copy_order};

/// What an iteration came to.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Outcome {
    /// In numbers.
    pub prediction: Prediction,
    /// What happened when.
    pub timeline: Timeline,
}

/// Simulates one iteration with a mode and a gradient's place for each layer.
pub fn simulate(profile: &Profile, modes: &[Mode], gradients: &[Gradient]) -> Result<Outcome> {
    profile.check()?;
    let layers = profile.layers.len();
    if modes.len() != layers || gradients.len() != layers {
        let (modes, gradients) = (modes.len(), gradients.len());
        return Err(Error::invalid(format!(
            "{modes} modes and {gradients} places of gradients for {layers} layers; give one of \
             each for each"
        )));
    }
    let mut both = gradients.iter().zip(&profile.layers);
    let differs = |(gradient, layer): (&Gradient, &Layer)| {
        (*gradient == Gradient::None) != (layer.gradient_bytes == 0)
    };
    if let Some(layer) = both.position(differs) {
        let message = "give a gradient a place where there is one, and nowhere else";
        return Err(Error::invalid(message).with("layer", layer));
    }
    let simulator = Simulator::new(profile, gradients);
    let mut timeline = Timeline::default();
    let prediction = simulator.run(modes, &mut timeline);
    timeline.add_copies(&copy_order(profile, modes), simulator.costs());
    timeline.finish();
    Ok(Outcome { prediction, timeline })
}
