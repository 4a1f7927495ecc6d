//! One training step under a plan for its activations, event by event.
//!
//! ```text
//!   Profile ──► Course: what compute comes to ─┐
//!   places, budget ────────────────────────────┴─► Run ──► Prediction, and a Timeline if wanted
//!                                                  memory, one disk
//! ```
//!
//! | what | file |
//! |---|---|
//! | saves, uses and frees, in order | `course.rs` |
//! | what it costs to move each tensor | `costs.rs` |
//! | the state of a step, and what each event does to it | `run.rs` |
//! | what happened when, to be drawn | `timeline.rs` |
//!
//! *The rules*, which are the runtime's too:
//!
//! - Forward. A tensor counts as held from when it is saved. It is admitted if it fits in the budget beside
//!   what is held; otherwise compute waits for writes that complete. If none is under way or in line, the
//!   plan can't be carried out.
//! - Offloaded tensors are written one at a time, in the order in which they were saved. Memory is free when
//!   a write completes.
//! - Backward. Tensors are read in the order in which they are first needed, before any write that has not
//!   begun. A read begins when its tensor fits, and holds its memory from then on. While the next read does
//!   not fit, writes go on.
//! - A tensor that is needed before its write has completed is used where it lies; a write that has not
//!   begun is called off.
//! - What is left of a transfer when compute begins to wait goes on at the speed of awaited ones.
//! - A use waits for its tensor. If there is no room to read it, tensors that were read and not used yet are
//!   dropped, those needed last first, and read again later. Here that never happens, so it is not
//!   simulated: a tensor is needed before one that was read already only if its own write completed since,
//!   which left room for it, and then it was read at once. A runtime that decides later may have to.
//! - Memory of a tensor is free after its last use, or when its write ends if that is later. What was read
//!   is held between its uses. What is never used is held to the end, unless it was written.
//! - At one moment a transfer completes first, then the disk begins its next, then compute goes on.
//!
//! *Bounds.* The held bytes never exceed the budget. A run takes time in proportion to its steps.

mod costs;
mod course;
mod run;
#[cfg(test)]
#[cfg(not(loom))]
mod tests;
mod timeline;

pub use course::{Course, Event, Step};
pub use run::Simulator;
pub(in crate::plan) use run::Stuck;
use serde::Serialize;
pub use timeline::{Doing, Span, Timeline};

use crate::error::{Error, Result};
use crate::plan::activations::{Place, Prediction, Profile};
use crate::size::Size;

/// What a step came to.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Outcome {
    /// In numbers.
    pub prediction: Prediction,
    /// What happened when.
    pub timeline: Timeline,
}

/// Simulates one step. A plan under which compute would wait forever is an error.
pub fn simulate(profile: &Profile, places: &[Place], budget: u64) -> Result<Outcome> {
    profile.check()?;
    if places.len() != profile.tensors.len() {
        let (places, tensors) = (places.len(), profile.tensors.len());
        let message = format!("{places} places for {tensors} tensors; give one for each");
        return Err(Error::invalid(message));
    }
    let mut timeline = Timeline::default();
    let mut simulator = Simulator::new(profile, budget);
    match simulator.run(places, f64::INFINITY, &mut timeline) {
        Ok(prediction) => Ok(Outcome { prediction, timeline }),
        Err(stuck) => Err(refusal(profile, budget, stuck)),
    }
}

fn refusal(profile: &Profile, budget: u64, stuck: Stuck) -> Error {
    let Stuck::NoRoom(tensor) = stuck else {
        return Error::invalid("the step never ends");
    };
    let tensor = &profile.tensors[tensor];
    let (name, size, budget) = (&tensor.name, Size(tensor.bytes), Size(budget));
    Error::invalid(format!(
        "the plan can't be carried out: {name:?} with {size} never gets room in {budget} beside \
         what is kept; offload more, or raise the budget"
    ))
}
