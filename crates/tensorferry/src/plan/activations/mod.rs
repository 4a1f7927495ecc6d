//! Which activations leave memory between forward and backward.
//!
//! Forward saves tensors for backward. Where they do not all fit, some go to disk while forward computes
//! and come back while backward does. A plan says which; the budget is what may be in memory at once.
//!
//! ```text
//!   Profile, budget ──► paper ────────────────► Plan ──► explain
//!                  │      ▼                      ▲
//!                  └──► timeline: starts ─► climb┘
//!                         ▲          ▼
//!                         └─ simulate
//! ```
//!
//! | what | file |
//! |---|---|
//! | what was measured of a step | `profile.rs` |
//! | what is to be done, and what it should come to | `plan.rs`, as a table `explain.rs` |
//! | the least budget | `budget.rs` |
//! | the paper's two phases | `paper.rs` |
//! | the least stall in the simulator: where the search starts, how it goes on | `timeline/` |
//! | a step under a plan, event by event | `simulate/` |
//!
//! *Where this differs from the paper.* The paper compares sums: bytes that are not selected with the memory,
//! seconds of all transfers with the seconds of forward. But memory is free only when a write *completes*,
//! a tensor that is saved last has no time left to leave and is needed first, and reads have their own speed
//! and their own deadline. So plans that satisfy the paper may stall, and plans that don't may not. The
//! timeline planner minimises the stall itself, as the simulator measures it. It starts from the paper's
//! plan among others, so it is never worse there; among plans that wait equally long, it takes the one that
//! writes least.
//!
//! *States.* None: a plan is a function of profile, budget and planner.
//!
//! *Bounds.* The search ends after a number of simulated tensors
//! ([`SIMULATED_TENSORS_MAX`](timeline::SIMULATED_TENSORS_MAX)), however good it is by then.

mod budget;
mod explain;
mod paper;
mod plan;
mod profile;
pub mod simulate;
#[cfg(test)]
#[cfg(not(loom))]
mod tests;
pub mod timeline;

pub use budget::minimum_budget;
pub use plan::{Choice, Place, Plan, Planner, Prediction};
pub(crate) use profile::SPEEDUP;
pub use profile::{Codec, Disk, Profile, TENSORS_MAX, Tensor, USES_MAX, Use, VERSION};

use self::simulate::Simulator;
use crate::error::{Error, Kind, Result};
use crate::size::Size;

/// Decides what to do with each tensor of a profile so that at most `budget` bytes are in memory at once.
pub fn plan(profile: &Profile, budget: u64, planner: Planner) -> Result<Plan> {
    profile.check()?;
    let minimum = minimum_budget(profile);
    if budget < minimum {
        let (budget, least) = (Size(budget), Size(minimum));
        return Err(Error::invalid(format!(
            "a budget of {budget} is too small for this step, which needs {least} ({minimum} bytes) \
             at one moment even if everything is offloaded; give at least that"
        )));
    }
    let mut simulator = Simulator::new(profile, budget);
    let choices = match planner {
        Planner::Paper => paper::choose(profile, budget, &mut simulator),
        Planner::Timeline => timeline::choose(profile, budget, &mut simulator),
    };
    let places: Vec<Place> = choices.iter().map(|choice| choice.place).collect();
    let predicted = simulator.predict(&places).ok_or_else(|| {
        Error::new(Kind::Internal, "a planner made a plan that can't be carried out")
    })?;
    let fetch_order = plan::fetch_order(profile, &places);
    Ok(Plan { version: VERSION, planner, budget, choices, fetch_order, predicted })
}
