//! Locks, from the standard library or from loom.
//!
//! Built with `--cfg loom`, the parts where threads meet run under loom's scheduler, which tries
//! every interleaving. A lock poisoned by a panic is taken all the same: each critical section of
//! this crate leaves its data consistent before anything in it can panic.

#[cfg(loom)]
pub(crate) use loom::sync::{Arc, Condvar, Mutex, MutexGuard};
#[cfg(not(loom))]
pub(crate) use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use std::sync::PoisonError;
use std::time::Instant;

/// Locks, whether or not another thread panicked while it held the lock.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return (guard, false);
    }
    let (guard, _) = condvar.wait_timeout(guard, left).unwrap_or_else(PoisonError::into_inner);
    (guard, true)
}
