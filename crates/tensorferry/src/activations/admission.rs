//! Admission: who saves or takes a tensor waits here until there is room for it.
//!
//! ```text
//!   fits ──────────────────────────────────────────────────────────────► admitted
//!    │ no                                                                   ▲
//!    ▼                                                                      │
//!   idle restored tensors are dropped ─► kept ones are offloaded ─► wait: something changed, or time to look
//!                                                                      ├─► the step failed: its error
//!                                                                      ├─► nothing moves for long: an error
//!                                                                      └─► time is up
//! ```
//!
//! Which tensors leave is in [`eviction`](super::eviction), how long nothing may move in
//! [`patience`](super::patience), and what comes free for whom in [`room`](super::room).

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::operation::SavedTogether;
use super::patience::{LOOK_EVERY, PATIENCE};
use super::shared::Shared;
use super::state::{Dropped, State};
use crate::error::{Error, Kind, Result};
use crate::size::Size;
use crate::sync::{MutexGuard, lock, now, wait};

/// The share of the room, as a divisor, that leaves beyond what is missing where no plan says what leaves: who
/// saves next finds it free.
const AHEAD_SHARE: u64 = 4;

impl Shared {
    /// Waits until `bytes` more fit; `false` when `limit` has passed before. The step's compute clock stands
    /// still meanwhile.
    pub fn make_room<'a>(
        self: &'a Arc<Self>,
        mut state: MutexGuard<'a, State>,
        bytes: u64,
        limit: Option<Duration>,
        step: u64,
    ) -> (MutexGuard<'a, State>, Result<bool>) {
        let deadline = limit.and_then(|limit| now().checked_add(limit));
        state.room.wait_begins(bytes);
        if let Some(step) = state.steps.get_mut(step) {
            step.wait_begins();
        }
        self.work.notify_all();
        let (mut state, outcome) = self.wait_for_room(state, bytes, deadline, step);
        state.room.wait_ends(bytes);
        if let Some(step) = state.steps.get_mut(step) {
            step.wait_ends();
        }
        (state, outcome)
    }

    fn wait_for_room<'a>(
        self: &'a Arc<Self>,
        mut state: MutexGuard<'a, State>,
        bytes: u64,
        deadline: Option<Instant>,
        step: u64,
    ) -> (MutexGuard<'a, State>, Result<bool>) {
        loop {
            // A step that fails gives its room back, and has no use for it.
            if let Err(error) = state.steps.check(step) {
                return (state, Err(error));
            }
            if state.room.fits(bytes) {
                return (state, Ok(true));
            }
            if let Err(error) = self.check(&state, step) {
                return (state, Err(error));
            }
            let dropped = self.let_go(&mut state, bytes, step);
            if !dropped.is_empty() {
                drop(state);
                drop(dropped);
                state = lock(&self.state);
                continue;
            }
            if state.still_for() > PATIENCE {
                let error = self.held_too_much(&state, bytes);
                return (state, Err(error));
            }
            if deadline.is_some_and(|deadline| now() >= deadline) {
                return (state, Ok(false));
            }
            let soon = now() + LOOK_EVERY;
            let until = deadline.map_or(soon, |deadline| deadline.min(soon));
            state = wait(&self.changed, state, Some(until)).0;
        }
    }

    /// Takes out of memory what nobody uses, or sends what was kept on its way.
    fn let_go(self: &Arc<Self>, state: &mut State, bytes: u64, step: u64) -> Vec<Dropped> {
        let missing = state.room.missing_for(bytes);
        let dropped = state.drop_idle(missing);
        let leaving = state.records.offloading_bytes();
        if dropped.is_empty() && leaving < missing {
            let ahead = if state.steps.is_planned(step) { 0 } else { self.room / AHEAD_SHARE };
            for key in state.kept_to_offload(missing + ahead - leaving) {
                self.offload(state, key, self.config.compress);
            }
        }
        dropped
    }

    /// One operation saves more than there is room for.
    pub fn too_small(&self, together: &SavedTogether) -> Error {
        let SavedTogether { bytes, tensors, name, .. } = together;
        let what = if *tensors > 1 {
            format!(
                "{tensors} tensors of {} that one operation saves and uses at once",
                Size(*bytes)
            )
        } else {
            format!("one tensor of {}", Size(*bytes))
        };
        let (budget, minimum) = (self.config.budget, Size(self.budget_for(*bytes)));
        let message = format!(
            "the budget of {budget} is too small for {what}: give at least {minimum} (a model that is \
             compiled as a whole is one operation: compile its parts)"
        );
        Error::new(Kind::OutOfMemory, message).with("activation", name)
    }

    /// Nobody gives memory back: threads have stopped one another, or somebody keeps what backward was given.
    fn held_too_much(&self, state: &State, bytes: u64) -> Error {
        let minimum = self.budget_for(state.all_bytes() + bytes);
        let message = format!(
            "the budget of {} is too small for {} that is in use and not given back: let go of saved \
             tensors that you keep, or give {}, with which all that was saved by now would stay",
            self.config.budget,
            Size(state.room.used()),
            Size(minimum)
        );
        Error::new(Kind::OutOfMemory, message)
    }
}
