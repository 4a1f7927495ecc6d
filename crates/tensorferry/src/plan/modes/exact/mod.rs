//! The shortest iteration there is.
//!
//! ```text
//!   guesses, the paper's plan ──► the best so far ──► Bounds
//!                                       ▼               ▼
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

use self::bound::{Bounds, Start};
use self::search::Found;
use super::paper;
use super::plan::Mode;
use crate::plan::simulate::parameters::{Clocks, Simulator};

/// The best modes within `capacity` bytes of parameters, and by how many seconds others could be faster.
/// They are no slower than `known` ones, made to fit.
pub(super) fn choose(simulator: &Simulator, capacity: u64, known: &[Mode]) -> (Vec<Mode>, f64) {
    let start = Start::new(simulator.costs(), capacity);
    let (modes, seconds) = first(simulator, capacity, &start, known);
    let bounds = Bounds::new(&start, last_wait(simulator, &modes));
    let Found { modes, gap_seconds } =
        search::search(simulator, capacity, &bounds, (modes, seconds));
    (modes, gap_seconds)
}

/// Good modes within `capacity` bytes, in a fraction of the time: what a search begins with.
pub(super) fn guess(simulator: &Simulator, capacity: u64) -> Vec<Mode> {
    let start = Start::new(simulator.costs(), capacity);
    first(simulator, capacity, &start, &[]).0
}

/// The best of `known` modes, guesses and the paper's plan, and its seconds.
fn first(
    simulator: &Simulator,
    capacity: u64,
    start: &Start<'_>,
    known: &[Mode],
) -> (Vec<Mode>, f64) {
    let costs = simulator.costs();
    let plain = [Mode::Gfgb, Mode::Dha].map(|mode| vec![mode; costs.len()]);
    let known = (!known.is_empty()).then(|| known.to_vec());
    let mut all: Vec<_> = start.guesses().into_iter().chain(plain).chain(known).collect();
    for modes in &mut all {
        paper::fit(costs, modes, capacity);
    }
    let mut best = paper::modes(simulator, capacity);
    let mut least = simulator.seconds(&best);
    for modes in all {
        let seconds = simulator.seconds(&modes);
        if seconds < least {
            (best, least) = (modes, seconds);
        }
    }
    (best, least)
}

/// The layer from which on forward does not wait.
fn last_wait(simulator: &Simulator, modes: &[Mode]) -> usize {
    let mut clocks = Clocks::default();
    let mut last = 0;
    for (place, (cost, mode)) in simulator.costs().iter().zip(modes).enumerate() {
        let before = clocks.compute;
        if clocks.forward(cost, *mode).from > before {
            last = place + 1;
        }
    }
    last
}
