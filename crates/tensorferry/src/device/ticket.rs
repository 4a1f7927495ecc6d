//! The promise of one operation to say when it is done, for devices that live in this process.
//!
//! A ticket is *pending*, then *settled*, once and for good. Settling hands it the operation's
//! block, if it had one, and its fault, if it failed; the handle takes the block out. Whichever of
//! operation and handle goes last drops the ticket, and a block that nobody took with it.

use std::time::{Duration, Instant};

use super::handles::Completion;
use crate::error::{Error, Kind, Result};
use crate::memory::Block;
use crate::sync::{Condvar, Mutex, lock, wait};

#[derive(Default)]
pub(super) struct Ticket {
    state: Mutex<State>,
    settled: Condvar,
}

#[derive(Default)]
struct State {
    outcome: Option<Outcome>,
    block: Option<Block>,
}

/// How and when an operation ended; `at` is a time of the device's model.
#[derive(Debug, Clone, Default)]
pub(super) struct Outcome {
    pub(super) fault: Option<Fault>,
    pub(super) at: Duration,
}

/// An [`Error`] that can be raised more than once.
#[derive(Debug, Clone)]
pub(super) struct Fault {
    kind: Kind,
    retryable: bool,
    message: String,
}

impl Fault {
    pub(super) fn of(error: &Error) -> Self {
        Self { kind: error.kind(), retryable: error.is_retryable(), message: error.to_string() }
    }

    pub(super) fn error(&self) -> Error {
        Error::new(self.kind, self.message.clone()).retryable(self.retryable)
    }

    /// What the operations in line behind the failed one fail with.
    pub(super) fn inherited(&self) -> Self {
        const FRONT: &str = "an earlier operation failed: ";
        let is_inherited = self.message.starts_with(FRONT);
        let message =
            if is_inherited { self.message.clone() } else { format!("{FRONT}{}", self.message) };
        Self { message, ..*self }
    }
}

impl Ticket {
    /// A ticket that was never pending.
    pub(super) fn of(outcome: Outcome, block: Option<Block>) -> Self {
        let state = Mutex::new(State { outcome: Some(outcome), block });
        Self { state, settled: Condvar::new() }
    }

    /// Ends the operation. Nothing is dropped here, so this may be called under a lock.
    pub(super) fn settle(&self, outcome: Outcome, block: Option<Block>) {
        let mut state = lock(&self.state);
        debug_assert!(state.outcome.is_none(), "an operation ends once");
        state.outcome = Some(outcome);
        state.block = block;
        drop(state);
        self.settled.notify_all();
    }

    pub(super) fn outcome(&self) -> Option<Outcome> {
        lock(&self.state).outcome.clone()
    }
}

fn result_of(outcome: &Outcome) -> Result<()> {
    outcome.fault.as_ref().map_or(Ok(()), |fault| Err(fault.error()))
}

impl Completion for Ticket {
    fn poll(&self) -> Option<Result<()>> {
        lock(&self.state).outcome.as_ref().map(result_of)
    }

    fn wait_until(&self, deadline: Option<Instant>) -> Option<Result<()>> {
        let mut state = lock(&self.state);
        loop {
            if let Some(outcome) = &state.outcome {
                return Some(result_of(outcome));
            }
            let in_time;
            (state, in_time) = wait(&self.settled, state, deadline);
            if !in_time {
                return None;
            }
        }
    }

    fn take_block(&self) -> Option<Block> {
        lock(&self.state).block.take()
    }
}

#[cfg(test)]
#[cfg(loom)]
mod loom_tests {
    use super::*;
    use crate::memory::Buffer;
    use crate::sync::Arc;

    #[test]
    fn loom_a_waiter_never_misses_the_end_of_its_operation() {
        loom::model(|| {
            let ticket = Arc::new(Ticket::default());
            let operation = Arc::clone(&ticket);
            let thread = loom::thread::spawn(move || {
                let block = Buffer::zeroed(1).unwrap().into();
                operation.settle(Outcome::default(), Some(block));
            });
            assert!(ticket.wait_until(None).unwrap().is_ok());
            assert_eq!(ticket.take_block().unwrap().len(), 1);
            thread.join().unwrap();
        });
    }
}
