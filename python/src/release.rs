//! Gives buffers back to Python from threads that must never wait for the GIL.
//!
//! An operation whose handle was dropped ends on the engine's thread, and with it the claim on the
//! caller's memory. Releasing that takes the GIL, and may run anything: a tensor's destructor, the
//! garbage collector. So it is left to a thread of its own, which starts with the first such
//! buffer. Once the interpreter is about to go, [`finish`] waits until all are released; what comes
//! later is leaked, because there is nobody left to give it to.
//!
//! A forked child has the queue but not the thread, and its lock may have been taken at that moment:
//! there, buffers are released on the spot and nothing is waited for.

use std::any::Any;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;

/// What keeps the memory of a Python object: a buffer, or the object itself with what goes after it.
type Kept = Box<dyn Any + Send>;

/// A claim on the memory of a Python object, as the keeper of a block.
pub struct Claim(Option<Kept>);

impl Claim {
    pub fn new(kept: impl Any + Send) -> Self {
        Self(Some(Box::new(kept)))
    }

    /// Ends the claim that was kept for a block, here and now.
    pub fn end(keeper: Box<dyn Any + Send>, _py: Python<'_>) {
        if let Ok(mut claim) = keeper.downcast::<Self>() {
            drop(claim.0.take());
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if let Some(kept) = self.0.take() {
            leave(kept);
        }
    }
}

/// Buffers to release.
struct Queue {
    buffers: Vec<Kept>,
    state: State,
}

#[derive(PartialEq, Eq)]
enum State {
    /// No thread yet.
    New,
    /// A thread waits for buffers.
    Idle,
    /// A thread is releasing some.
    Busy,
    /// The interpreter is going.
    Over,
}

/// The process in which the thread was started; zero before.
static PROCESS: AtomicU32 = AtomicU32::new(0);

/// Whether this is a child of the process that has the thread.
fn is_forked() -> bool {
    let process = PROCESS.load(Ordering::Relaxed);
    process != 0 && process != std::process::id()
}

static QUEUE: Mutex<Queue> = Mutex::new(Queue { buffers: Vec::new(), state: State::New });
static CHANGED: Condvar = Condvar::new();

fn queue() -> MutexGuard<'static, Queue> {
    QUEUE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn wait(queue: MutexGuard<'static, Queue>) -> MutexGuard<'static, Queue> {
    CHANGED.wait(queue).unwrap_or_else(PoisonError::into_inner)
}

fn leave(buffer: Kept) {
    if is_forked() {
        return Python::attach(|_| drop(buffer));
    }
    let mut queue = queue();
    if queue.state == State::Over {
        return std::mem::forget(buffer);
    }
    queue.buffers.push(buffer);
    if queue.state == State::New {
        // Without a thread the buffers are released at the end.
        let thread = std::thread::Builder::new().name("ferry-release".into()).spawn(run);
        if thread.is_ok() {
            queue.state = State::Idle;
            PROCESS.store(std::process::id(), Ordering::Relaxed);
        }
    }
    CHANGED.notify_all();
}

fn run() {
    let mut queue = queue();
    while queue.state != State::Over {
        let buffers = std::mem::take(&mut queue.buffers);
        if buffers.is_empty() {
            queue = wait(queue);
            continue;
        }
        queue.state = State::Busy;
        drop(queue);
        Python::attach(|_| drop(buffers));
        queue = self::queue();
        if queue.state == State::Busy {
            queue.state = State::Idle;
        }
        CHANGED.notify_all();
    }
}

/// Releases everything and lets the thread end. Call it while there is an interpreter.
pub fn finish(py: Python<'_>) {
    if is_forked() {
        return;
    }
    let left = py.detach(|| {
        let mut queue = queue();
        while queue.state == State::Busy {
            queue = wait(queue);
        }
        queue.state = State::Over;
        CHANGED.notify_all();
        std::mem::take(&mut queue.buffers)
    });
    drop(left);
}
