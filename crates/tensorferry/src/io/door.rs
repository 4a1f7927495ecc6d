//! Where callers and the driver's thread meet.
//!
//! Callers leave operations in the inbox and ring; the driver takes everything out at once. The
//! inbox says whether the driver is asleep: callers ring the backend's waker only then, so that a
//! busy driver costs them no system call and an idle one costs the machine nothing.
//!
//! The door is *open* until somebody stops the engine or the driver ends; what comes later is
//! refused with the reason. Each priority has its own bound on operations accepted and not yet
//! done, so that no crowd keeps a consumer outside.

use std::sync::Arc;
use std::thread::ThreadId;

use super::backend::Waker;
use super::meter::Meter;
use super::operation::Operation;
use crate::error::{Error, Kind};
use crate::memory::process_id;
use crate::sync::{Condvar, Mutex, MutexGuard, lock, wait};

pub(super) struct Door {
    pub engine: u64,
    pub meter: Meter,
    operations_max: usize,
    /// The process the driver lives in: a forked child has the door, but nobody behind it.
    process: u32,
    driver: ThreadId,
    inbox: Mutex<Inbox>,
    room: Condvar,
    waker: Arc<dyn Waker>,
}

#[derive(Default)]
struct Inbox {
    operations: Vec<Operation>,
    closed_files: Vec<u64>,
    /// Operations accepted and not yet done, by priority.
    open: [usize; 4],
    asleep: bool,
    /// Why nothing more is accepted.
    closed: Option<&'static str>,
}

/// What the driver took out.
pub(super) struct Delivery {
    pub operations: Vec<Operation>,
    pub closed_files: Vec<u64>,
    /// Nothing is open and nothing more will come.
    pub is_last: bool,
}

impl Door {
    /// A door in front of the calling thread.
    pub(super) fn new(
        engine: u64,
        operations_max: usize,
        waker: Arc<dyn Waker>,
        meter: Meter,
    ) -> Self {
        let (inbox, room) = (Mutex::default(), Condvar::new());
        let (process, driver) = (process_id(), std::thread::current().id());
        Self { engine, meter, operations_max, process, driver, inbox, room, waker }
    }

    /// Whether this is the process that opened the engine, and not a forked child.
    pub(super) fn is_at_home(&self) -> bool {
        self.process == process_id()
    }

    /// Whether the caller is the driver itself: it must never wait for itself.
    pub(super) fn is_driver(&self) -> bool {
        self.driver == std::thread::current().id()
    }

    /// Hands an operation to the driver; waits while too many of its priority are open.
    pub(super) fn accept(&self, operation: Operation) {
        if !self.is_at_home() {
            let why = "this engine was opened before the process was forked; open a new one here";
            return self.refuse(operation, Error::new(Kind::Closed, why));
        }
        let mut inbox = lock(&self.inbox);
        let priority = operation.priority as usize;
        while inbox.open[priority] >= self.operations_max
            && inbox.closed.is_none()
            && !self.is_driver()
        {
            inbox = wait(&self.room, inbox, None).0;
        }
        if let Some(why) = inbox.closed {
            drop(inbox);
            return self.refuse(operation, Error::new(Kind::Closed, why));
        }
        inbox.open[priority] += 1;
        inbox.operations.push(operation);
        self.ring(inbox);
    }

    /// Answers an operation that never gets in.
    pub(super) fn refuse(&self, mut operation: Operation, error: Error) {
        operation.fail(error);
        operation.finish(&self.meter);
    }

    /// A file is gone.
    pub(super) fn file_closed(&self, file: u64) {
        if self.is_at_home() {
            let mut inbox = lock(&self.inbox);
            inbox.closed_files.push(file);
            self.ring(inbox);
        }
    }

    /// Accepts nothing more.
    pub(super) fn close(&self, why: &'static str) {
        let mut inbox = lock(&self.inbox);
        inbox.closed.get_or_insert(why);
        self.ring(inbox);
        self.room.notify_all();
    }

    fn ring(&self, mut inbox: MutexGuard<'_, Inbox>) {
        let asleep = std::mem::take(&mut inbox.asleep);
        drop(inbox);
        if asleep {
            self.waker.wake();
        }
    }

    /// Takes out what callers have left, and lets as many in as were `finished`.
    pub(super) fn take(&self, finished: &mut [usize; 4]) -> Delivery {
        let mut inbox = lock(&self.inbox);
        inbox.asleep = false;
        let made_room = *finished != [0; 4];
        for (open, finished) in inbox.open.iter_mut().zip(finished) {
            *open -= std::mem::take(finished);
        }
        let delivery = Delivery {
            operations: std::mem::take(&mut inbox.operations),
            closed_files: std::mem::take(&mut inbox.closed_files),
            is_last: inbox.closed.is_some() && inbox.open == [0; 4],
        };
        drop(inbox);
        if made_room {
            self.room.notify_all();
        }
        delivery
    }

    /// Whether the driver may sleep: nothing has come in since it looked. From now on callers ring.
    pub(super) fn fall_asleep(&self) -> bool {
        let mut inbox = lock(&self.inbox);
        inbox.asleep = inbox.operations.is_empty() && inbox.closed_files.is_empty();
        inbox.asleep
    }

    /// The driver has ended: whatever is still in the inbox is answered by being dropped.
    pub(super) fn desert(&self) {
        self.close("the engine has stopped");
        let left = std::mem::take(&mut lock(&self.inbox).operations);
        drop(left);
    }
}
