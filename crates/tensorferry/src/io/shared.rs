//! The engine that a process shares.

use std::fmt;
use std::sync::{Arc, OnceLock};

use super::Engine;
use crate::error::Result;
use crate::memory::process_id;

/// The way to the engine of whatever process asks.
///
/// Sources and loaders live long and come along into forked children, where an engine of the parent's has
/// no driver. So they keep this, and a child is led to an engine of its own.
#[derive(Clone)]
pub struct Shared(Arc<Inner>);

struct Inner {
    open: Box<dyn Fn() -> Result<Arc<dyn Engine>> + Send + Sync>,
    /// What was opened first, and by which process: asked for on every read.
    first: OnceLock<(u32, Arc<dyn Engine>)>,
}

impl Shared {
    /// `open` gives the engine of the process that calls it: the same one each time.
    pub fn new(open: impl Fn() -> Result<Arc<dyn Engine>> + Send + Sync + 'static) -> Self {
        Self(Arc::new(Inner { open: Box::new(open), first: OnceLock::new() }))
    }

    /// Always this engine.
    pub fn only(engine: Arc<dyn Engine>) -> Self {
        Self::new(move || Ok(Arc::clone(&engine)))
    }

    /// The engine of this process.
    pub fn engine(&self) -> Result<Arc<dyn Engine>> {
        let process = process_id();
        if let Some((_, engine)) = self.0.first.get().filter(|(owner, _)| *owner == process) {
            return Ok(Arc::clone(engine));
        }
        let engine = (self.0.open)()?;
        // In a child it is taken already: then the parent's stays, and is never used here.
        let _ = self.0.first.set((process, Arc::clone(&engine)));
        Ok(engine)
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Shared")
    }
}
