//! A value that each process has of its own.

use std::sync::{Mutex, PoisonError};

use tensorferry::Result;

/// A value with threads behind it, made when it is first asked for.
///
/// A forked child inherits its memory, not its threads: what they hold they never give back there,
/// and letting go of the value could wait for them. So it is forgotten, and another one made.
pub struct PerProcess<T>(Mutex<Option<(u32, T)>>);

impl<T: Clone> PerProcess<T> {
    pub const fn new() -> Self {
        Self(Mutex::new(None))
    }

    /// The value of this process, if it `fits`; otherwise what `make` gives takes its place.
    pub fn get(&self, fits: impl Fn(&T) -> bool, make: impl FnOnce() -> Result<T>) -> Result<T> {
        let process = std::process::id();
        if let Some(value) = self.kept(process).filter(|value| fits(value)) {
            return Ok(value);
        }
        // Without the lock: a child that is forked meanwhile would find it taken for ever.
        let fresh = make()?;
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((owner, value)) = &*kept
            && *owner == process
            && fits(value)
        {
            // Another thread was faster.
            return Ok(value.clone());
        }
        let old = kept.replace((process, fresh.clone()));
        drop(kept);
        if old.as_ref().is_some_and(|(owner, _)| *owner != process) {
            std::mem::forget(old);
        }
        Ok(fresh)
    }

    fn kept(&self, process: u32) -> Option<T> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let own = kept.as_ref().filter(|(owner, _)| *owner == process);
        own.map(|(_, value)| value.clone())
    }
}
