//! The handle of a saved tensor: the tensor is used through it, and forgotten with it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::memory::TensorMemory;
use super::operation::Operation;
use super::shared::Shared;
use super::state::State;
use super::store::Handle;
use crate::error::{Error, Result};
use crate::sync::{MutexGuard, lock, now, wait};

/// A saved tensor; it is forgotten when this is dropped.
pub struct Saved {
    pub(super) handle: Arc<Handle>,
    pub(super) key: u64,
}

/// The lock, and whether the wait ended in time.
type Waited<'a> = (MutexGuard<'a, State>, bool);

impl Saved {
    /// The tensor's bytes, waited for at most `limit`; `None` when time is up.
    pub fn take(&self, limit: Option<Duration>) -> Result<Option<TensorMemory>> {
        let shared = self.handle.shared()?;
        let deadline = limit.and_then(|limit| now().checked_add(limit));
        let mut state = lock(&shared.state);
        let step = state.records.step_of(self.key)?;
        state.steps.begin_backward(step);
        loop {
            shared.check(&state, step)?;
            if let Some(memory) = state.hand_out(self.key) {
                shared.fetch_ahead(&mut state);
                return Ok(Some(memory));
            }
            let in_time;
            (state, in_time) = if state.records.is_offloaded(self.key) {
                self.fetch(shared, state, step, deadline)?
            } else {
                self.wait(shared, state, step, deadline)
            };
            if !in_time {
                return Ok(None);
            }
        }
    }

    /// Waits for room, and begins to read the tensor.
    fn fetch<'a>(
        &self,
        shared: &'a Arc<Shared>,
        mut state: MutexGuard<'a, State>,
        step: u64,
        deadline: Option<Instant>,
    ) -> Result<Waited<'a>> {
        let named =
            |state: &State, error: Error| error.with("activation", state.records.name_of(self.key));
        let bytes = state.records.bytes_of(self.key);
        // What others need later takes no room before this has some.
        state.room.await_tensor(self.key, bytes);
        let left = deadline.map(|at| at.saturating_duration_since(now()));
        let (mut state, granted) = shared.make_room(state, bytes, left, step);
        if !granted.map_err(|error| named(&state, error))? {
            return Ok((state, false));
        }
        // While there was no room, it may have been fetched ahead.
        if state.records.is_offloaded(self.key) {
            shared.fetch(&mut state, self.key).map_err(|error| named(&state, error))?;
        }
        state.room.settle_tensor(self.key);
        Ok((state, true))
    }

    /// Waits for what is under way.
    fn wait<'a>(
        &self,
        shared: &'a Arc<Shared>,
        mut state: MutexGuard<'a, State>,
        step: u64,
        deadline: Option<Instant>,
    ) -> Waited<'a> {
        state.queue.hurry(self.key);
        shared.fetch_ahead(&mut state);
        state.steps.at(step).wait_begins();
        let (mut state, in_time) = wait(&shared.changed, state, deadline);
        state.steps.at(step).wait_ends();
        (state, in_time)
    }

    /// Another operation has saved the same tensor, and uses it at once with what else it saves. `false` if it
    /// is of a step that has failed: then it has to be saved anew.
    pub fn share(&self, operation: Operation) -> Result<bool> {
        let shared = self.handle.shared()?;
        let dropped = lock(&shared.state).share(self.key, operation);
        Ok(dropped.is_some())
    }
}

impl Drop for Saved {
    fn drop(&mut self) {
        // In a forked child the lock may be taken for ever, and nothing there is ours to free.
        let Ok(shared) = self.handle.shared() else { return };
        let mut state = lock(&shared.state);
        let dropped = state.forget(self.key);
        shared.fetch_ahead(&mut state);
        drop(state);
        drop(dropped);
        shared.changed.notify_all();
    }
}
