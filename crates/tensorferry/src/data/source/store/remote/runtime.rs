//! The thread that serves the sockets of all remote stores of this process.
//!
//! It is started by the first store, sleeps when nothing is under way and ends with the process.
//! Requests run in the thread that waits for them; what they wait for happens here. Such a thread
//! must not be one of tokio's own that runs asynchronous tasks; its blocking ones are fine.
//!
//! A forked child has none of its parent's threads, so it gets a runtime of its own. The first
//! process takes no lock on the way to its runtime: a lock held during a fork stays held in the child.

use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;

use tokio::runtime::{Builder, Handle};

use crate::error::{Error, Result};

/// A runtime, and the process that its thread runs in.
type Served = (u32, Handle);

static FIRST: OnceLock<Served> = OnceLock::new();
static CHILD: Mutex<Option<Served>> = Mutex::new(None);

/// Waits for a request.
pub(super) fn wait<T>(request: impl Future<Output = T>) -> Result<T> {
    Ok(handle()?.block_on(request))
}

fn handle() -> Result<Handle> {
    let process = std::process::id();
    if FIRST.get().is_none() {
        // If two threads start one, one of them serves nobody and costs nothing.
        let _ = FIRST.set((process, start()?));
    }
    if let Some((_, handle)) = FIRST.get().filter(|(owner, _)| *owner == process) {
        return Ok(handle.clone());
    }
    let mut child = CHILD.lock().unwrap_or_else(PoisonError::into_inner);
    if child.as_ref().is_none_or(|(owner, _)| *owner != process) {
        *child = Some((process, start()?));
    }
    child.as_ref().map_or_else(start, |(_, handle)| Ok(handle.clone()))
}

fn start() -> Result<Handle> {
    let failed = |error| Error::from_io(error, "can't start the thread that serves remote stores");
    let runtime = Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let handle = runtime.handle().clone();
    let serve = move || runtime.block_on(std::future::pending::<()>());
    thread::Builder::new().name("ferry-remote".to_owned()).spawn(serve).map_err(failed)?;
    Ok(handle)
}
