//! Traces: what happened when, on which thread, as a file that Perfetto and Chrome open.
//!
//! There is one trace for the process, and it is off until [`start`]. While it is off, a span costs
//! one relaxed load. While it is on, whatever ends is kept in memory until [`finish`] hands it out:
//!
//! ```text
//!   off --start(limit)--> on --finish--> off, and a Trace --write_to--> file
//!         on: an error         off: an error
//! ```
//!
//! Three things are recorded. A [`Span`] begins and ends on one thread and lies on that thread's
//! track (`"ph": "X"`); spans of a thread nest. An [`Operation`] may end on another thread than it
//! began on, and overlaps with others as I/O does; each has an id and a track of its own (`"b"` and
//! `"e"`), because overlapping spans on one track would be drawn as if nested. A [`counter`] is a
//! number over time (`"C"`). Spans that cross threads, and a small dependency tree, are why this is
//! not `tracing-chrome`.
//!
//! **Bounds.** A trace keeps at most `limit` events, each with at most [`ARGUMENTS_MAX`] arguments
//! of at most [`TEXT_BYTES_MAX`] bytes. Later events are dropped and counted: the count, and the
//! moment of the first loss, stand in the file. An operation is kept as one event when it ends, so
//! a begin without its end can't occur; those still open at the end are counted.
//!
//! **Ownership.** What began in one trace and ends after its `finish` belongs to no trace and is
//! forgotten, also when another trace has started meanwhile.

mod event;
mod file;
mod session;
mod span;
#[cfg(test)]
mod testing;

// Not from `crate::sync`: statics can't be made under loom, and this lock is held only to push.
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

pub use event::{ARGUMENTS_MAX, Argument, TEXT_BYTES_MAX};
pub use file::Trace;
pub use span::{Operation, Span, operation, span};

use crate::error::{Error, Result};
use event::{Event, What};
use session::Session;

/// The most events that a trace can be asked to keep: some GiB of memory.
pub const EVENTS_MAX: usize = 1 << 24;
/// How many events to keep when nobody knows better: some 100 MiB.
pub const EVENTS_DEFAULT: usize = 1 << 20;

/// The number of the trace that is on; zero while it is off.
static ON: AtomicU64 = AtomicU64::new(0);
static SESSION: Mutex<Option<Session>> = Mutex::new(None);

/// Starts recording, of at most `limit` events.
pub fn start(limit: usize) -> Result<()> {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    if !(1..=EVENTS_MAX).contains(&limit) {
        return Err(Error::invalid("a trace keeps at least one event and at most so many")
            .with("limit", limit)
            .with("max", EVENTS_MAX));
    }
    let mut session = lock();
    if session.is_some() {
        return Err(Error::invalid("a trace is being recorded already"));
    }
    let number = NEXT.fetch_add(1, Relaxed);
    *session = Some(Session::new(number, limit));
    ON.store(number, Relaxed);
    Ok(())
}

/// Stops recording and hands out what was recorded.
pub fn finish() -> Result<Trace> {
    let mut session = lock();
    ON.store(0, Relaxed);
    session
        .take()
        .map(Session::into_trace)
        .ok_or_else(|| Error::invalid("no trace is being recorded: start one before you finish it"))
}

/// Whether a trace is being recorded; asks for no lock.
pub fn is_on() -> bool {
    ON.load(Relaxed) != 0
}

/// The value of a number from now on. What is not a finite number is not drawn.
pub fn counter(name: &'static str, value: f64) {
    let number = ON.load(Relaxed);
    if number != 0 && value.is_finite() {
        let now = Instant::now();
        with_session(number, |session| {
            let at = session.since_start(now);
            let thread = session.this_thread();
            session.push(at, Event { at, thread, name, what: What::Counter(value) });
        });
    }
}

/// Runs `f` on the session of this number, if it is still the one that records.
fn with_session<T>(number: u64, f: impl FnOnce(&mut Session) -> T) -> Option<T> {
    lock().as_mut().filter(|session| session.number == number).map(f)
}

fn lock() -> MutexGuard<'static, Option<Session>> {
    SESSION.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::testing::{records, turn, written};
    use super::*;
    use crate::error::Kind;

    #[test]
    fn starting_twice_and_finishing_what_never_started_are_errors() {
        let _turn = turn();
        assert_eq!(finish().unwrap_err().kind(), Kind::InvalidInput);
        for limit in [0, EVENTS_MAX + 1] {
            assert_eq!(start(limit).unwrap_err().kind(), Kind::InvalidInput);
        }
        assert!(!is_on());
        start(10).unwrap();
        assert!(is_on());
        assert_eq!(start(10).unwrap_err().kind(), Kind::InvalidInput);
        finish().unwrap();
        assert!(!is_on());
        assert_eq!(finish().unwrap_err().kind(), Kind::InvalidInput);
    }

    #[test]
    fn nothing_is_recorded_while_the_trace_is_off() {
        let _turn = turn();
        let before = span("off", "before").with("bytes", 1);
        let operation = operation("off", "before");
        start(1000).unwrap();
        drop((before, operation));
        let across = span("off", "across");
        let first = finish().unwrap();
        start(1000).unwrap();
        drop(across);
        let second = finish().unwrap();
        for trace in [first, second] {
            assert_eq!(records(&written(&trace), "off").count(), 0);
        }
    }
}
