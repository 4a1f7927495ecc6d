//! The thread that updates layers as their gradients arrive.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use super::installation::Installed;
use super::state::{State, Work};
use crate::error::{Error, Kind, panic_text};
use crate::sync::wait;

impl Installed {
    /// The life of that thread.
    pub(super) fn serve_updates(&self) {
        while let Some((layer, work)) = self.next_update() {
            let start = Instant::now();
            // The work is consumed; a panic in it ends the installation.
            let result = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
                Err(Error::new(
                    Kind::Internal,
                    format!("an update panicked: {}", panic_text(&*panic)),
                ))
            });
            let mut state = self.lock();
            state.is_updating = false;
            state.moved += 1;
            state.report.layers[layer].update += start.elapsed().as_secs_f64();
            if let Err(error) = result {
                state.fail(format!("{} was not updated", self.name(layer)), error);
            }
            self.changed.notify_all();
        }
    }

    /// Whether updates would be lost with the installation. After a fault there are none any more.
    pub(super) fn has_updates(&self) -> bool {
        let state = self.lock();
        state.fault.is_none() && (!state.updates.is_empty() || state.is_updating)
    }

    /// The first update in line, once its layer is ready for it; `None` at the end.
    fn next_update(&self) -> Option<(usize, Work)> {
        let mut state = self.lock();
        loop {
            if state.check().is_err() {
                // Dropped without the lock: it may own anything.
                let given_up = std::mem::take(&mut state.updates);
                let is_closing = state.is_closing;
                drop(state);
                drop(given_up);
                if is_closing {
                    return None;
                }
                state = self.lock();
            } else if state.updates.front().is_some_and(|(layer, _)| self.is_ready(&state, *layer))
            {
                state.is_updating = true;
                return state.updates.pop_front();
            }
            if !state.is_closing {
                state = wait(&self.changed, state, None).0;
            }
        }
    }

    /// Gradients have arrived, and nobody reads the parameters that will change: no kernel and no
    /// copy, of this layer or of one that it shares a parameter with.
    fn is_ready(&self, state: &State, layer: usize) -> bool {
        let sharing = &self.layers[layer].sharing;
        state.layers[layer].has_arrived()
            && sharing.iter().all(|other| state.layers[*other].is_unused())
    }
}
