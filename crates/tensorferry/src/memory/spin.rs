//! A lock that can be taken before a fork and given back after it, on both sides.
//!
//! The standard mutex can't: what a forked child inherits locked stays locked. This one is for a few
//! instructions at a time, so that who finds it taken tries again, and soon lets others run.

use std::cell::UnsafeCell;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};

/// How often it is looked at before others get the processor.
const TRIES: u32 = 64;

/// A value that one thread at a time uses.
pub struct Spin<T> {
    taken: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached only by who has set `taken`, one thread at a time.
unsafe impl<T: Send> Sync for Spin<T> {}

/// The value, until this is dropped.
pub struct Guard<'a, T>(&'a Spin<T>);

impl<T> Spin<T> {
    /// A value that nobody uses yet.
    pub const fn new(value: T) -> Self {
        Self { taken: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// Waits until nobody else uses the value.
    pub fn lock(&self) -> Guard<'_, T> {
        let mut tries = 0;
        while self.taken.swap(true, Ordering::Acquire) {
            tries += 1;
            if tries % TRIES == 0 {
                std::thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
        }
        Guard(self)
    }

    /// Gives the lock back without its guard.
    ///
    /// # Safety
    /// The caller has it, and forgot the guard.
    pub unsafe fn unlock(&self) {
        self.taken.store(false, Ordering::Release);
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: this guard's thread set `taken`; nobody else reaches the value until it is dropped.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        // SAFETY: this is the guard of who has the lock.
        unsafe { self.0.unlock() };
    }
}

impl<T> fmt::Debug for Spin<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Spin")
    }
}
