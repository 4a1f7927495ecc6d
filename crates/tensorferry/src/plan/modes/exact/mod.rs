//! The shortest iteration there is.
//!
//! ```text
//!   costs ──► Bounds ─► guesses, the paper's plan ─► best so far
//!               ▼                                     ▼
//!             search: layer by layer, states that may still be better ──► the best, and how far from it
//! ```
//!
//! A layer's mode counts twice: when forward comes to it, and when backward does, in the opposite order. So a
//! state after the first layers holds the clocks of compute and link (where forward stands), the *tail* (what
//! backward of these layers will add, whatever happens in between), and the bytes taken. A state that is
//! behind another in all of these is dropped, and so is one whose *bound* is no better than the best plan
//! that is known already.
//!
//! *States.* None but those: a plan is a function of its profile.
//!
//! *Bounds.* The problem contains the knapsack problem, so no quick way to the best is known for all cases.
//! [`STATES_MAX`] limits the work. Within it the plan is the best there is, for usual networks as for made-up
//! ones of a dozen layers. Beyond it, states with the worst bounds are dropped, and the best of these bounds
//! says how much faster another plan could be at most.

mod bound;
mod search;
mod tail;

pub use search::{STATES_MAX, WIDTH};

use self::bound::Bounds;
use self::search::Found;
use super::paper;
use super::plan::Mode;
use crate::plan::simulate::parameters::Simulator;

/// The best modes within `capacity` bytes of parameters, and by how many seconds others could be faster.
pub(super) fn choose(simulator: &Simulator, capacity: u64) -> (Vec<Mode>, f64) {
    let (bounds, guesses) = Bounds::new(simulator.costs(), capacity);
    let fits = |modes: &Vec<Mode>| {
        simulator.device_bytes(modes) <= simulator.resident_bytes().saturating_add(capacity)
    };
    let count = simulator.costs().len();
    let plain = [vec![Mode::Gfgb; count], vec![Mode::Dha; count]];
    let mut known: Vec<Vec<Mode>> = vec![paper::modes(simulator, capacity)];
    known.extend(plain.into_iter().chain(guesses).filter(fits));
    let judged = known.into_iter().map(|modes| {
        let seconds = simulator.seconds(&modes);
        (modes, seconds)
    });
    let Some(best) = judged.min_by(|a, b| a.1.total_cmp(&b.1)) else {
        return (Vec::new(), 0.0);
    };
    let Found { modes, gap_seconds, .. } = search::search(simulator, capacity, &bounds, best);
    (modes, gap_seconds)
}
