//! The shortest iteration there is: a mode for each layer and a place for its gradient, together.
//!
//! ```text
//!   guesses, the paper's plan ──► the best so far ──► Bounds
//!                                       ▼               ▼
//!             search: layer by layer, states that may still be better ──► the best, and how far from it
//! ```
//!
//! A layer's choice counts twice: when forward comes to it, and when backward does, in the opposite order. So a
//! state after the first layers holds the clocks of compute and link (where forward stands), the *tail* (what
//! backward of these layers will add, whatever happens in between), and the bytes taken. A state that is
//! behind another in all of these is dropped, and so is one whose *bound* is no better than the best plan
//! that is known already.
//!
//! *Gradients.* The paper's knapsack judges each gradient by itself: by how much its layer's backward is
//! shorter. But gradients share the link outwards, and one that is copied out behind its layer holds up those
//! that later layers write in place, so that keeping more of them can make an iteration longer. And what they
//! take of the budget is missing for parameters. So the reserve is a limit here and no order.
//!
//! *States.* None but those: a plan is a function of its profile.
//!
//! *Bounds.* The problem contains the knapsack problem, so no quick way to the best is known for all cases.
//! [`STATES_MAX`] limits the work. Where that is enough, the plan is the best there is, and its gap is zero: so it
//! was in all made-up cases of up to seven layers that the tests try every plan of. Where it is not, states with
//! the worst bounds are dropped, and the best of these bounds says how much faster another plan could be at
//! most, with these places of gradients or with others.

mod bound;
// The made-up iterations of the crate that has them all, for what is tested from inside.
#[cfg(test)]
#[cfg(not(loom))]
#[path = "../../../../../tensorferry-simulate/src/parameters/cases.rs"]
mod cases;
mod guess;
mod search;
mod tail;

pub use search::{STATES_MAX, WIDTH};

use self::bound::{Bounds, Start};
use super::plan::{Gradient, Mode};
use super::profile::Profile;
use crate::plan::parameters::simulate::{Clocks, Simulator, Variants};

/// What is to be decided, and within which bounds.
pub(super) struct Problem {
    layers: Vec<Variants>,
    /// Bytes of parameters and gradients on the device.
    capacity: u64,
    /// Of these, bytes of gradients.
    reserve: u64,
}

/// A choice for each layer, and the seconds that it comes to.
#[derive(Debug, Clone, PartialEq)]
pub struct Decided {
    /// The mode and the gradient's place of each layer.
    pub choices: Vec<(Mode, Gradient)>,
    /// Of the iteration.
    pub seconds: f64,
}

/// The best that was found within `budget` bytes, which are enough for the work, and by how many seconds any
/// other could be faster. It is no slower than the paper's.
pub(super) fn choose(profile: &Profile, budget: u64, gradient_reserve: u64) -> (Decided, f64) {
    choose_within(profile, budget, gradient_reserve, search::width(profile.layers.len()))
}

/// The same for a search of at most `width` states of a layer, one at least: how good a quicker plan is, and what its
/// gap is worth. The profile must hold together.
pub fn choose_within(
    profile: &Profile,
    budget: u64,
    gradient_reserve: u64,
    width: usize,
) -> (Decided, f64) {
    let capacity = budget.saturating_sub(profile.work_bytes);
    let reserve = gradient_reserve.min(capacity);
    let problem = Problem { layers: Variants::of(profile, reserve), capacity, reserve };
    let start = Start::new(&problem.layers, capacity, reserve);
    let best = guess::best(profile, &problem, &start, gradient_reserve);
    let bounds = Bounds::new(&start, last_wait(profile, &best));
    let (best, no_sooner) = search::search(&problem, &bounds, best, width);
    let is_proven = no_sooner >= best.seconds;
    let best = if is_proven { best } else { refined(profile, &problem, best, width) };
    let gap_seconds = (best.seconds - no_sooner).max(0.0);
    (best, gap_seconds)
}

/// The best for the places of gradients that were found: with these decided, a search sees further.
fn refined(profile: &Profile, problem: &Problem, best: Decided, width: usize) -> Decided {
    let gradients: Vec<_> = best.choices.iter().map(|(_, gradient)| *gradient).collect();
    let costs = Simulator::new(profile, &gradients).costs().to_vec();
    let layers = costs.into_iter().map(Variants::only).collect();
    let fixed = Problem { layers, ..*problem };
    let start = Start::new(&fixed.layers, fixed.capacity, fixed.reserve);
    let bounds = Bounds::new(&start, last_wait(profile, &best));
    search::search(&fixed, &bounds, best, width).0
}

impl Decided {
    /// These choices, simulated.
    fn new(profile: &Profile, choices: Vec<(Mode, Gradient)>) -> Self {
        let (modes, gradients): (Vec<_>, Vec<_>) = choices.iter().copied().unzip();
        let seconds = Simulator::new(profile, &gradients).seconds(&modes);
        Self { choices, seconds }
    }
}

/// The layer from which on forward does not wait.
fn last_wait(profile: &Profile, decided: &Decided) -> usize {
    let (modes, gradients): (Vec<_>, Vec<_>) = decided.choices.iter().copied().unzip();
    let simulator = Simulator::new(profile, &gradients);
    let mut clocks = Clocks::default();
    let mut last = 0;
    for (place, (cost, mode)) in simulator.costs().iter().zip(&modes).enumerate() {
        let before = clocks.compute;
        if clocks.forward(cost, *mode).from > before {
            last = place + 1;
        }
    }
    last
}
