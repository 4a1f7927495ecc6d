//! Long operations that end early when their caller is interrupted.
//!
//! ```text
//!   heard(ask, work) ─► work ─► check, wait ──ask says so──► Closed ─► everybody stops, work returns
//!        │ the caller's thread      │
//!        └─ Token ─► helpers' ──────┘ they see that the caller was told
//! ```
//!
//! A caller who can be interrupted by somebody (a person at a keyboard, by way of a signal's handler of
//! Python's) gives a question that is asked every [`INTERVAL`] on its own thread while its work goes on: in
//! loops that call `check`, and in waits that go through `wait`. Once the answer was yes, both fail
//! everywhere in that work, also on threads that help with it. Without such a caller they cost a look at a
//! thread's own variable, and never fail.
//!
//! No lock may be held around either: what is asked may run anything, and come back here.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use crate::error::{Error, Kind, Result};
use crate::sync::{self, Condvar, Mutex, MutexGuard, lock};

/// How long an interruption may stay unheard.
pub const INTERVAL: Duration = Duration::from_millis(50);

thread_local! {
    static CALLER: RefCell<Option<Rc<Caller>>> = const { RefCell::new(None) };
}

/// For whom this thread works.
struct Caller {
    token: Token,
    /// Whether the caller was interrupted; on its own thread only.
    ask: Option<Box<dyn Fn() -> bool>>,
    asked: Cell<Instant>,
}

/// Whether work was interrupted, for all threads that do it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Token(Arc<AtomicBool>);

/// Does work of a caller who may be interrupted: `ask` says whether that has happened. What was begun ends
/// with an error soon after, or was done already.
pub fn heard<T>(ask: impl Fn() -> bool + 'static, work: impl FnOnce() -> T) -> T {
    on_behalf(Token::default(), Some(Box::new(ask)), work)
}

fn on_behalf<T>(token: Token, ask: Option<Box<dyn Fn() -> bool>>, work: impl FnOnce() -> T) -> T {
    let caller = Caller { token, ask, asked: Cell::new(Instant::now()) };
    let _back = Back(CALLER.replace(Some(Rc::new(caller))));
    work()
}

/// Puts back for whom the thread worked before.
struct Back(Option<Rc<Caller>>);

impl Drop for Back {
    fn drop(&mut self) {
        CALLER.set(self.0.take());
    }
}

impl Token {
    /// That of the caller for whom this thread works.
    pub(crate) fn current() -> Option<Self> {
        caller().map(|caller| caller.token.clone())
    }

    /// Whatever is done for it ends.
    pub(crate) fn interrupt(&self) {
        self.0.store(true, SeqCst);
    }

    /// Works for the same caller, on another thread.
    pub(crate) fn help<T>(self, work: impl FnOnce() -> T) -> T {
        on_behalf(self, None, work)
    }
}

fn caller() -> Option<Rc<Caller>> {
    CALLER.with_borrow(Option::clone)
}

impl Caller {
    fn is_interrupted(&self) -> bool {
        if !self.token.0.load(SeqCst)
            && let Some(ask) = &self.ask
            && self.asked.get().elapsed() >= INTERVAL
        {
            if ask() {
                self.token.interrupt();
            }
            self.asked.set(Instant::now());
        }
        self.token.0.load(SeqCst)
    }
}

/// An error once the caller was interrupted. Call it in every loop that moves many bytes.
pub fn check() -> Result<()> {
    match caller() {
        Some(caller) if caller.is_interrupted() => {
            Err(Error::new(Kind::Closed, "the caller was interrupted"))
        }
        _ => Ok(()),
    }
}

/// Waits for a notification, or until it is time to look whether the caller was interrupted; an error if it
/// was. The lock is not held while that is asked.
pub(crate) fn wait<'a, T>(
    mutex: &'a Mutex<T>,
    condvar: &Condvar,
    guard: MutexGuard<'a, T>,
) -> Result<MutexGuard<'a, T>> {
    if caller().is_none() {
        return Ok(sync::wait(condvar, guard, None).0);
    }
    let (guard, _) = sync::wait(condvar, guard, Some(Instant::now() + INTERVAL));
    drop(guard);
    check()?;
    Ok(lock(mutex))
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use crate::threads::on_threads;

    fn is_interrupted(result: &Result<()>) -> bool {
        result.as_ref().is_err_and(|error| error.kind() == Kind::Closed)
    }

    /// Waits for what never comes.
    fn wait_for_ever() -> Result<()> {
        let (mutex, condvar) = (Mutex::new(()), Condvar::new());
        let mut guard = lock(&mutex);
        loop {
            guard = wait(&mutex, &condvar, guard)?;
        }
    }

    #[test]
    fn nobody_is_asked_and_nothing_fails_without_a_caller_who_can_be_interrupted() {
        assert!(check().is_ok() && Token::current().is_none());
        heard(|| false, || assert!(check().is_ok() && Token::current().is_some()));
        assert!(Token::current().is_none());
    }

    #[test]
    fn a_wait_ends_when_its_caller_is_interrupted_and_the_next_one_is_another() {
        assert!(is_interrupted(&heard(|| true, wait_for_ever)));
        heard(|| false, || assert!(check().is_ok()));
    }

    #[test]
    fn threads_that_help_end_with_their_caller_and_are_not_asked_themselves() {
        let here = std::thread::current().id();
        let ask = move || {
            assert_eq!(std::thread::current().id(), here);
            true
        };
        let ended = heard(ask, || on_threads(4, wait_for_ever));
        assert!(is_interrupted(&ended.map(drop)));
    }

    #[test]
    fn what_is_asked_may_do_such_work_itself() {
        let ask = || heard(|| false, || check().is_ok());
        assert!(is_interrupted(&heard(ask, wait_for_ever)));
    }

    #[test]
    fn work_that_panics_leaves_no_caller_behind() {
        let work = || heard(|| true, || panic!("on purpose"));
        assert!(std::panic::catch_unwind(work).is_err());
        assert!(check().is_ok());
    }
}
