//! Locks, threads and time, from the standard library or from loom.
//!
//! Built with `--cfg loom`, the parts where threads meet run under loom's scheduler, which tries
//! every interleaving. Time stands still there: whoever waits with a deadline waits for ever, so that
//! a wake-up which a timeout would make up for is missed in the model. A lock poisoned by a panic is taken all the same: each critical section of
//! this crate leaves its data consistent before anything in it can panic.

#[cfg(loom)]
pub(crate) use loom::{
    sync::{Arc, Condvar, Mutex, MutexGuard, atomic},
    thread,
};
#[cfg(not(loom))]
pub(crate) use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, atomic},
    thread,
};

use std::sync::PoisonError;
use std::time::Instant;

/// Locks, whether or not another thread panicked while it held the lock.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What time it is.
#[cfg(not(loom))]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// The same time always: what loom runs again must not differ.
#[cfg(loom)]
pub(crate) fn now() -> Instant {
    static NOW: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    *NOW.get_or_init(Instant::now)
}

/// Seconds that have passed since then.
pub(crate) fn seconds_since(then: Instant) -> f64 {
    (now() - then).as_secs_f64()
}

/// Waits for a notification, at most until `deadline`; `false` once the deadline has passed.
pub(crate) fn wait<'a, T>(
    condvar: &Condvar,
    guard: MutexGuard<'a, T>,
    deadline: Option<Instant>,
) -> (MutexGuard<'a, T>, bool) {
    let Some(deadline) = deadline else {
        return (condvar.wait(guard).unwrap_or_else(PoisonError::into_inner), true);
    };
    let left = deadline.saturating_duration_since(now());
    if left.is_zero() {
        return (guard, false);
    }
    let (guard, _) = condvar.wait_timeout(guard, left).unwrap_or_else(PoisonError::into_inner);
    (guard, true)
}
