//! Where each layer's parameters are used: copied to the device, or read in host memory over the link.
//!
//! Parameters, gradients and optimizer state do not fit on the device; host memory holds them. A layer is
//! copied in before forward needs it and stays for backward (GFGB), is computed in place over the link (DHA),
//! or first one and then the other (DFGB). Copies hide behind compute, and computing in place hides copies
//! of others, so that it depends on all layers what is best for one.
//!
//! ```text
//!   Profile ──► gradients: which stay ──► Simulator ──► paper ──┬─► Plan ──► explain
//!   budget, reserve ─┤                          ▲         ▼     │
//!                    └──────────────────────────┴──────► exact ─┘
//! ```
//!
//! | what | file |
//! |---|---|
//! | what was measured of an iteration | `profile.rs` |
//! | what a kernel reads in place | `reads.rs` |
//! | what is to be done, and what it should come to | `plan.rs`; as a table `explain.rs`, reasons `why.rs` |
//! | the least budget | `budget.rs` |
//! | the paper's algorithm | `paper.rs` |
//! | the best modes and places of gradients there are | `exact/` |
//! | which gradients stay, by the paper | `gradients/` |
//! | an iteration under a plan, in four clocks | `simulate/` |
//!
//! *Where this differs from the paper.* The paper plans forward by itself, takes it that direct access leaves
//! the link to copies, and knows no memory limit but that of gradients. Here one simulated iteration counts:
//! forward, backward, gradients and updates, on a link that kernels and copies share, within one budget.
//!
//! *States.* None: a plan is a function of profile, budget, reserve and planner.
//!
//! *Bounds.* [`STATES_MAX`](exact::STATES_MAX) limits the exact search; beyond it, the plan says how far from
//! the best it may be.

mod budget;
pub mod exact;
mod explain;
pub mod gradients;
mod paper;
mod plan;
mod profile;
mod reads;
pub mod simulate;
#[cfg(test)]
#[cfg(not(loom))]
mod tests;
mod why;

pub use budget::minimum_budget;
pub(in crate::plan) use plan::copy_order;
pub use plan::{Choice, Gradient, Mode, Plan, Planner, Prediction};
pub use profile::{Direction, LAYERS_MAX, Layer, Link, Profile, VERSION};
pub use reads::{ROWS_AT_ONCE, looked_up_bytes, read_bytes};

use self::simulate::Simulator;
use crate::error::{Error, Result};
use crate::size::Size;

/// Decides about each layer of a profile so that at most `budget` bytes are on the device, of which gradients
/// take at most `gradient_reserve`.
pub fn plan(
    profile: &Profile,
    budget: u64,
    gradient_reserve: u64,
    planner: Planner,
) -> Result<Plan> {
    profile.check()?;
    let minimum = minimum_budget(profile, gradient_reserve, planner);
    if budget < minimum {
        return Err(too_small(profile, budget, minimum, planner));
    }
    let (gradients, modes, gap_seconds) = match planner {
        Planner::Exact => {
            let (decided, gap_seconds) = exact::choose(profile, budget, gradient_reserve);
            let (modes, gradients) = decided.choices.into_iter().unzip();
            (gradients, modes, Some(gap_seconds))
        }
        Planner::Paper => {
            let gradients = places(profile, gradient_reserve);
            let simulator = Simulator::new(profile, &gradients);
            let modes = paper::modes(&simulator, budget - simulator.resident_bytes());
            (gradients, modes, None)
        }
        Planner::Copy => {
            (places(profile, gradient_reserve), vec![Mode::Gfgb; profile.layers.len()], None)
        }
    };
    let simulator = Simulator::new(profile, &gradients);
    let whys = why::explain(&simulator, &modes, budget, planner);
    let predicted = simulator.run(&modes, &mut ());
    let copy_order = copy_order(profile, &modes);
    let choices = modes.into_iter().zip(gradients).zip(whys);
    let choices = choices.map(|((mode, gradient), why)| Choice { mode, gradient, why }).collect();
    let version = VERSION;
    let plan = Plan {
        version,
        planner,
        budget,
        gradient_reserve,
        choices,
        copy_order,
        predicted,
        gap_seconds,
    };
    Ok(plan)
}

/// Where each gradient goes, within the reserve.
pub fn places(profile: &Profile, gradient_reserve: u64) -> Vec<Gradient> {
    let kept = gradients::keep(profile, gradient_reserve);
    let place = |(layer, kept): (&Layer, bool)| match (layer.gradient_bytes, kept) {
        (0, _) => Gradient::None,
        (_, true) => Gradient::Device,
        (_, false) => Gradient::Host,
    };
    profile.layers.iter().zip(kept).map(place).collect()
}

/// Bytes of the gradients that stay on the device.
pub(in crate::plan) fn kept_bytes(profile: &Profile, gradients: &[Gradient]) -> u64 {
    let kept = profile.layers.iter().zip(gradients);
    let kept = kept.filter(|(_, gradient)| **gradient == Gradient::Device);
    kept.map(|(layer, _)| layer.gradient_bytes).sum()
}

fn too_small(profile: &Profile, budget: u64, minimum: u64, planner: Planner) -> Error {
    let (budget, least, work) = (Size(budget), Size(minimum), Size(profile.work_bytes));
    let (beside, instead) = match planner {
        Planner::Exact => ("", "or make the batch smaller"),
        Planner::Paper => (", and the gradients that stay", "or reserve less for gradients"),
        Planner::Copy => {
            (", and all parameters and the gradients that stay", "or take another planner")
        }
    };
    Error::invalid(format!(
        "a budget of {budget} is too small for this iteration, which needs {least} ({minimum} bytes) \
         on the device: {work} of work{beside}; give at least that, {instead}"
    ))
}
