//! Where callers and the driver's thread meet: the inbox, and who may use it from where.

use std::sync::Arc;
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use super::backend::Waker;
use super::demand::Demand;
use super::inbox::{Delivery, Inbox};
use super::meter::{Meter, Verb};
use super::operation::Operation;
use super::priority::Priority;
use crate::error::{Error, Kind, Result};
use crate::memory::process_id;

pub(super) struct Gate {
    pub engine: u64,
    pub meter: Meter,
    /// Whether somebody waits for a disk.
    pub demand: Demand,
    /// The process the driver lives in: a forked child has the gate, but nobody behind it.
    process: u32,
    driver: ThreadId,
    inbox: Inbox<Message>,
    waker: Arc<dyn Waker>,
}

pub(super) enum Message {
    Operation(Box<Operation>),
    /// The file of this number is gone.
    FileClosed(u64),
}

impl Gate {
    /// A gate in front of the calling thread.
    pub(super) fn new(
        engine: u64,
        operations_max: usize,
        waker: Arc<dyn Waker>,
        meter: Meter,
    ) -> Self {
        let (process, driver) = (process_id(), std::thread::current().id());
        let (demand, inbox) = (Demand::new(), Inbox::new(operations_max));
        Self { engine, meter, demand, process, driver, inbox, waker }
    }

    /// Whether this is the process that opened the engine, and not a forked child.
    pub(super) fn is_at_home(&self) -> bool {
        self.process == process_id()
    }

    pub(super) fn check_home(&self) -> Result<()> {
        if self.is_at_home() { Ok(()) } else { Err(forked()) }
    }

    /// Whether the caller is the driver itself: it must never wait for itself.
    pub(super) fn is_driver(&self) -> bool {
        self.driver == std::thread::current().id()
    }

    /// Hands an operation to the driver; waits while too many of its priority are open.
    pub(super) fn accept(&self, operation: Operation) {
        if !self.is_at_home() {
            return self.refuse(operation, forked());
        }
        operation.file.drive();
        let lane = operation.priority as usize;
        let message = Message::Operation(Box::new(operation));
        let put = self.inbox.put(lane, message, !self.is_driver(), || self.waker.wake());
        if let Err((Message::Operation(operation), why)) = put {
            self.refuse(*operation, Error::new(Kind::Closed, why));
        }
    }

    /// Lets a caller carry out an operation of its own; waits while too many of its priority are open.
    pub(super) fn enter(&self, priority: Priority) -> Result<Visit<'_>> {
        self.check_home()?;
        let lane = priority as usize;
        let entered = self.inbox.enter(lane, !self.is_driver());
        entered.map_err(|why| Error::new(Kind::Closed, why))?;
        Ok(Visit { gate: self, lane })
    }

    /// Answers an operation that never gets in.
    pub(super) fn refuse(&self, mut operation: Operation, error: Error) {
        operation.fail(error);
        operation.finish(&self.meter);
    }

    /// A caller has moved `bytes` itself, or failed.
    pub(super) fn done_inline(
        &self,
        verb: Verb,
        priority: Priority,
        (began, ended): (Instant, Instant),
        bytes: Option<usize>,
    ) {
        let (took, bytes) = (ended - began, bytes.map(|bytes| bytes as u64));
        if let (Verb::Read, Some(bytes)) = (verb, bytes) {
            self.somebody_read(priority, bytes, took, ended);
        }
        self.meter.done(verb, priority, took, bytes);
    }

    /// A read has ended: whoever waited for it may have waited for a disk.
    pub(super) fn somebody_read(
        &self,
        priority: Priority,
        bytes: u64,
        took: Duration,
        now: Instant,
    ) {
        if priority < Priority::Offload {
            self.demand.ended(bytes, took, now);
        }
    }

    /// A file is gone.
    pub(super) fn file_closed(&self, file: u64) {
        if self.is_at_home() {
            self.inbox.note(Message::FileClosed(file), || self.waker.wake());
        }
    }

    /// Accepts nothing more.
    pub(super) fn close(&self, why: &'static str) {
        self.inbox.close(why, || self.waker.wake());
    }

    /// Takes out what callers have left, and lets as many in as were `finished`.
    pub(super) fn take(&self, finished: &mut [usize; 4]) -> Delivery<Message> {
        self.inbox.take(finished)
    }

    /// Whether the driver may sleep; see [`Inbox::fall_asleep`].
    pub(super) fn fall_asleep(&self) -> bool {
        self.inbox.fall_asleep()
    }

    /// The driver has ended: whatever is still in the inbox is answered by being dropped.
    pub(super) fn desert(&self) {
        self.close("the engine has stopped");
        drop(self.inbox.take(&mut [0; 4]));
    }
}

/// A caller that carries out an operation of its own: an engine that stops waits for it.
pub(super) struct Visit<'a> {
    gate: &'a Gate,
    lane: usize,
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        self.gate.inbox.leave(self.lane, || self.gate.waker.wake());
    }
}

fn forked() -> Error {
    let why = "this engine was opened before the process was forked; open a new one here";
    Error::new(Kind::Closed, why)
}
