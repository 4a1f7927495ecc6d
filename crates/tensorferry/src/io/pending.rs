//! The two ends of an operation that is under way.
//!
//! The engine holds the [`Promise`], the caller the [`Pending`]. The cell between them goes from
//! *running* to *done* exactly once: by [`Promise::fulfil`], or, when the engine goes away without
//! an answer, by the promise's drop, which answers [`Kind::Closed`]. A caller may look, wait, or
//! drop its end; the operation and its memory belong to the engine until it is done.

use std::fmt;
use std::time::{Duration, Instant};

use crate::error::{Error, Kind};
use crate::interrupt;
use crate::memory::{Block, process_id};
use crate::sync::{Arc, Condvar, Mutex, lock, wait};

/// An operation under way, seen from its caller.
///
/// Dropping it does not stop a write or a sync, and frees no memory that is still in use; a read
/// that nobody waits for is not continued.
#[must_use = "an operation's error is only seen by waiting for it"]
pub struct Pending<T>(Arc<Cell<T>>);

/// What an operation that failed leaves: the reason, and the caller's memory.
pub struct Failed {
    /// Why.
    pub error: Error,
    /// The memory of a read or a write; what a failed read left in it is undefined.
    pub block: Option<Block>,
}

struct Cell<T> {
    /// The process whose engine will answer: a forked child would wait for ever.
    process: u32,
    outcome: Mutex<Option<Result<T, Failed>>>,
    done: Condvar,
}

impl<T> Pending<T> {
    /// An operation that is done already.
    pub fn ready(result: Result<T, Failed>) -> Self {
        let (promise, pending) = promise();
        promise.fulfil(result);
        pending
    }

    /// Whether waiting would return at once.
    pub fn is_done(&self) -> bool {
        self.is_orphan() || lock(&self.0.outcome).is_some()
    }

    /// Whether the operation was started before this process was forked. The answer, if any, goes
    /// to the parent; even the lock may stay taken here for ever.
    fn is_orphan(&self) -> bool {
        self.0.process != process_id()
    }

    /// Waits at most `limit`; whether the operation is done.
    pub fn wait_within(&self, limit: Duration) -> bool {
        if self.is_orphan() {
            return true;
        }
        let deadline = Instant::now().checked_add(limit);
        let mut outcome = lock(&self.0.outcome);
        while outcome.is_none() {
            let in_time;
            (outcome, in_time) = wait(&self.0.done, outcome, deadline);
            if !in_time {
                return outcome.is_some();
            }
        }
        true
    }

    /// Waits until the operation is done and gives its memory back. A caller who is
    /// [interrupted](crate::interrupt) has dropped it instead.
    pub fn wait(self) -> Result<T, Failed> {
        if self.is_orphan() {
            let why = "the operation was started before the process was forked";
            return Err(Error::new(Kind::Closed, why).into());
        }
        let mut outcome = lock(&self.0.outcome);
        loop {
            match outcome.take() {
                Some(result) => return result,
                None => outcome = interrupt::wait(&self.0.outcome, &self.0.done, outcome)?,
            }
        }
    }

    /// Waits until the operation is done, whoever is interrupted: its memory is somebody's who is about to
    /// use it again.
    pub(crate) fn see_out(&self) {
        self.wait_within(Duration::MAX);
    }
}

impl<T> fmt::Debug for Pending<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_done() { "Pending(done)" } else { "Pending(running)" })
    }
}

impl fmt::Debug for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.error, f)
    }
}

impl From<Failed> for Error {
    fn from(failed: Failed) -> Self {
        failed.error
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self { error, block: None }
    }
}

/// The engine's end: answered once.
pub(crate) struct Promise<T>(Option<Arc<Cell<T>>>);

/// A promise and its caller's end.
pub(crate) fn promise<T>() -> (Promise<T>, Pending<T>) {
    let (outcome, done) = (Mutex::new(None), Condvar::new());
    let cell = Arc::new(Cell { process: process_id(), outcome, done });
    (Promise(Some(Arc::clone(&cell))), Pending(cell))
}

impl<T> Promise<T> {
    pub(crate) fn fulfil(mut self, result: Result<T, Failed>) {
        self.answer(result);
    }

    /// Whether the caller has dropped its end.
    pub(super) fn is_abandoned(&self) -> bool {
        self.0.as_ref().is_none_or(|cell| Arc::strong_count(cell) == 1)
    }

    fn answer(&mut self, result: Result<T, Failed>) {
        if let Some(cell) = self.0.take() {
            *lock(&cell.outcome) = Some(result);
            cell.done.notify_all();
        }
    }
}

impl<T> Drop for Promise<T> {
    fn drop(&mut self) {
        if self.0.is_some() {
            let error =
                Error::new(Kind::Closed, "the engine stopped before the operation was done");
            self.answer(Err(error.into()));
        }
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn a_promise_that_is_dropped_answers_closed() {
        let (promise, pending) = promise::<()>();
        drop(promise);
        assert_eq!(pending.wait().unwrap_err().error.kind(), Kind::Closed);
    }

    #[test]
    fn waiting_with_a_limit_leaves_the_operation_usable() {
        let (promise, pending) = promise();
        assert!(!pending.is_done() && !pending.wait_within(Duration::from_millis(2)));
        promise.fulfil(Ok(7));
        assert!(pending.is_done() && pending.wait_within(Duration::ZERO));
        assert_eq!(pending.wait().unwrap(), 7);
    }

    #[test]
    fn an_abandoned_promise_knows_it() {
        let (promise, pending) = promise::<()>();
        assert!(!promise.is_abandoned());
        drop(pending);
        assert!(promise.is_abandoned());
    }
}

#[cfg(test)]
#[cfg(loom)]
mod loom_tests {
    use super::*;

    #[test]
    fn loom_an_answer_reaches_the_waiter_in_every_interleaving() {
        loom::model(|| {
            let (promise, pending) = promise();
            let engine = loom::thread::spawn(move || promise.fulfil(Ok(7)));
            assert_eq!(pending.wait().unwrap(), 7);
            engine.join().unwrap();
        });
    }

    #[test]
    fn loom_dropping_either_end_at_any_time_is_safe() {
        loom::model(|| {
            let (answered, dropped) = promise::<u8>();
            let (unanswered, waited) = promise::<u8>();
            let engine = loom::thread::spawn(move || {
                let _ = answered.is_abandoned();
                answered.fulfil(Ok(1));
                drop(unanswered);
            });
            drop(dropped);
            assert_eq!(waited.wait().unwrap_err().error.kind(), Kind::Closed);
            engine.join().unwrap();
        });
    }
}
