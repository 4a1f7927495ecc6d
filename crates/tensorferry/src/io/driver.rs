//! The engine over any backend: one thread that accepts operations, starts their pieces by
//! priority, and answers when all bytes have moved.
//!
//! ```text
//!   callers ──► inbox ──► operations ──► schedule ──► backend ──► kernel
//!                (bounded)    ▲  short, EINTR, EAGAIN     │
//!                             └──────── ended ◄───────────┘──► promise
//! ```
//!
//! All state but the inbox belongs to the driver's thread. The inbox is a list under a lock and
//! says whether the driver is asleep: callers ring the backend's waker only then, so that a busy
//! driver costs them no system call and an idle one costs the machine nothing.
//!
//! Dropping the last handle closes the inbox; the driver finishes what it has accepted and ends.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

use slab::Slab;

use super::backend::{Backend, Ended, Patience, Waker};
use super::faulty::Faulty;
use super::file::{File, Home, Open};
use super::flight::Flight;
use super::memory::{Directory, Memory};
use super::meter::Meter;
use super::operation::{Job, Landing, Move, Operation};
use super::pending::{Pending, promise};
use super::piece::{Flow, Sizes, Way};
use super::priority::Priority;
use super::ring::Ring;
use super::schedule::{Limits, Schedule};
use super::threads::Threads;
use super::{Config, Engine, Facts};
use crate::error::{Error, Kind, Result};
use crate::memory::{Block, Pool};
use crate::sync::{Condvar, Mutex, lock, wait};

/// What a backend is made of, on the thread that will use it.
pub(super) struct Opened {
    pub backend: Box<dyn Backend>,
    pub waker: Arc<dyn Waker>,
    pub facts: Facts,
}

/// An engine that drives a backend; see the [module](self).
pub(super) struct Driven {
    door: Arc<Door>,
    directory: Option<Directory>,
    facts: Facts,
    process: u32,
    thread: Option<JoinHandle<()>>,
}

/// Where callers and the driver's thread meet.
struct Door {
    engine: u64,
    operations_max: usize,
    inbox: Mutex<Inbox>,
    room: Condvar,
    waker: Arc<dyn Waker>,
    meter: Meter,
}

#[derive(Default)]
struct Inbox {
    operations: Vec<Operation>,
    closed_files: Vec<u64>,
    /// Operations accepted and not yet done.
    open: usize,
    asleep: bool,
    closed: bool,
}

impl Driven {
    /// Starts the driver's thread, and on it the backend.
    pub(super) fn start(
        config: &Config,
        directory: Option<Directory>,
        open: impl FnOnce(&Config, &Pool) -> Result<Opened> + Send + 'static,
    ) -> Result<Self> {
        static NEXT_ENGINE: AtomicU64 = AtomicU64::new(0);
        let engine = NEXT_ENGINE.fetch_add(1, Ordering::Relaxed);
        let config = config.clone();
        let operations_max = config.operations_max;
        let meter = Meter::new(&config.metrics)?;
        let (sender, receiver) = std::sync::mpsc::channel();
        let thread = std::thread::Builder::new().name("ferry-io".into()).spawn(move || {
            let staging = Pool::new(config.piece_bytes, config.staging_buffers);
            let opened = staging.and_then(|staging| Ok((open(&config, &staging)?, staging)));
            let (opened, staging) = match opened {
                Ok(opened) => opened,
                Err(error) => return drop(sender.send(Err(error))),
            };
            let (inbox, room) = (Mutex::default(), Condvar::new());
            let door = Door { engine, operations_max, inbox, room, waker: opened.waker, meter };
            let door = Arc::new(door);
            if sender.send(Ok((Arc::clone(&door), opened.facts))).is_ok() {
                Driver::new(&config, door, opened.backend, staging).run();
            }
        });
        let thread = thread.map_err(|error| Error::from_io(error, "can't start the I/O thread"))?;
        let stopped = || Error::new(Kind::Internal, "the I/O thread stopped while it started");
        let (door, facts) = receiver.recv().map_err(|_| stopped())??;
        let process = std::process::id();
        Ok(Self { door, directory, facts, process, thread: Some(thread) })
    }

    fn submit(&self, operation: Operation) {
        let meter = &self.door.meter;
        if self.process != std::process::id() {
            let error = "this engine was opened before the process was forked; open a new one here";
            return refuse(operation, Error::new(Kind::Closed, error), meter);
        }
        if operation.file.engine() != self.door.engine {
            let error = Error::invalid("the file was opened by another engine");
            return refuse(operation, error, meter);
        }
        self.door.accept(operation);
    }

    fn move_bytes(
        &self,
        file: &File,
        flow: Flow,
        offset: u64,
        block: Block,
        priority: Priority,
    ) -> Pending<Block> {
        let (promise, pending) = promise();
        let refused = refusal(file, flow, offset, &block);
        let job = Move::new(flow, offset, block, promise);
        let is_empty = job.len == 0;
        let operation = Operation::new(file.clone(), priority, Job::Move(job));
        match refused {
            Some(error) => refuse(operation, error, &self.door.meter),
            None if is_empty => operation.finish(&self.door.meter),
            None => self.submit(operation),
        }
        pending
    }
}

/// Why a move can't even be tried.
fn refusal(file: &File, flow: Flow, offset: u64, block: &Block) -> Option<Error> {
    let end = offset.checked_add(block.len() as u64);
    if end.is_none_or(|end| end > i64::MAX as u64) {
        let message = format!("{} bytes at offset {offset} are beyond any file", block.len());
        return Some(Error::invalid(message));
    }
    match flow {
        Flow::Read if !block.is_writable() => {
            Some(Error::invalid("can't read into memory that must not be written to"))
        }
        Flow::Write if !file.is_writable() => {
            Some(Error::invalid("can't write to a file that was opened for reading"))
        }
        Flow::Write => file.check_not_poisoned().err(),
        Flow::Read => None,
    }
}

fn refuse(mut operation: Operation, error: Error, meter: &Meter) {
    operation.fail(error);
    operation.finish(meter);
}

impl Engine for Driven {
    fn open(&self, path: &Path, how: Open) -> Result<File> {
        let door = Arc::downgrade(&self.door);
        let on_close = Arc::new(move |file| {
            if let Some(door) = door.upgrade() {
                door.file_closed(file);
            }
        });
        let home = Home { engine: self.door.engine, on_close };
        match &self.directory {
            Some(directory) => directory.open(path, how.mode, home),
            None => File::open(path, how, home),
        }
    }

    fn read(&self, file: &File, offset: u64, into: Block, priority: Priority) -> Pending<Block> {
        self.move_bytes(file, Flow::Read, offset, into, priority)
    }

    fn write(&self, file: &File, offset: u64, from: Block, priority: Priority) -> Pending<Block> {
        self.move_bytes(file, Flow::Write, offset, from, priority)
    }

    fn sync(&self, file: &File, priority: Priority) -> Pending<()> {
        let (promise, pending) = promise();
        let job = Job::Sync { promise, started: false };
        let operation = Operation::new(file.clone(), priority, job);
        match file.check_not_poisoned() {
            Err(error) => refuse(operation, error, &self.door.meter),
            Ok(()) => self.submit(operation),
        }
        pending
    }

    fn facts(&self) -> &Facts {
        &self.facts
    }
}

impl Drop for Driven {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            return;
        }
        let mut inbox = lock(&self.door.inbox);
        inbox.closed = true;
        drop(inbox);
        self.door.waker.wake();
        if let Some(thread) = self.thread.take() {
            // A driver that panicked has answered its promises by dropping them.
            let _ = thread.join();
        }
    }
}

impl Door {
    /// Hands an operation to the driver; waits while too many are open.
    fn accept(&self, operation: Operation) {
        let mut inbox = lock(&self.inbox);
        while inbox.open >= self.operations_max && !inbox.closed {
            inbox = wait(&self.room, inbox, None).0;
        }
        if inbox.closed {
            drop(inbox);
            let error = Error::new(Kind::Closed, "the engine has stopped");
            return refuse(operation, error, &self.meter);
        }
        inbox.open += 1;
        inbox.operations.push(operation);
        self.ring(inbox);
    }

    fn file_closed(&self, file: u64) {
        let mut inbox = lock(&self.inbox);
        inbox.closed_files.push(file);
        self.ring(inbox);
    }

    fn ring(&self, mut inbox: crate::sync::MutexGuard<'_, Inbox>) {
        let asleep = std::mem::take(&mut inbox.asleep);
        drop(inbox);
        if asleep {
            self.waker.wake();
        }
    }
}

/// The state of the driver's thread.
struct Driver {
    door: Arc<Door>,
    backend: Box<dyn Backend>,
    schedule: Schedule,
    operations: Slab<Operation>,
    flights: Slab<Flight>,
    staging: Pool,
    piece_bytes: usize,
    finished: usize,
}

impl Driver {
    fn new(config: &Config, door: Arc<Door>, backend: Box<dyn Backend>, staging: Pool) -> Self {
        let limits = Limits { bytes_max: config.in_flight_bytes, transfers_max: backend.depth() };
        Self {
            door,
            schedule: Schedule::new(limits),
            operations: Slab::new(),
            flights: Slab::with_capacity(backend.depth()),
            backend,
            staging,
            piece_bytes: config.piece_bytes,
            finished: 0,
        }
    }

    fn run(mut self) {
        let mut ended = Vec::new();
        while self.take_in() {
            self.start_pieces();
            let patience = if self.may_sleep() { Patience::Unlimited } else { Patience::None };
            self.backend.reap(patience, &mut ended);
            for ended in ended.drain(..) {
                self.land(ended);
            }
        }
    }

    /// Takes in what callers have left; `false` when there will never be more to do.
    fn take_in(&mut self) -> bool {
        let mut inbox = lock(&self.door.inbox);
        inbox.asleep = false;
        let finished = std::mem::take(&mut self.finished);
        inbox.open -= finished;
        let operations = std::mem::take(&mut inbox.operations);
        let closed_files = std::mem::take(&mut inbox.closed_files);
        let is_over = inbox.closed && inbox.open == 0;
        drop(inbox);
        if finished > 0 {
            self.door.room.notify_all();
        }
        for file in closed_files {
            self.backend.forget(file);
        }
        for mut operation in operations {
            operation.queued = true;
            let priority = operation.priority;
            let key = self.operations.insert(operation);
            self.schedule.enqueue(priority, key);
        }
        !is_over
    }

    /// Goes to sleep unless something has come in or was finished since the last look.
    fn may_sleep(&mut self) -> bool {
        let mut inbox = lock(&self.door.inbox);
        let nothing_new = inbox.operations.is_empty() && inbox.closed_files.is_empty();
        inbox.asleep = nothing_new && self.finished == 0;
        inbox.asleep
    }

    fn start_pieces(&mut self) {
        while let Some((priority, key)) = self.schedule.next() {
            let operation = &mut self.operations[key];
            if operation.is_pointless() {
                operation.fail(Error::new(Kind::Closed, "nobody waits for this read any more"));
            }
            if operation.has_more() {
                self.start_piece(priority, key);
            } else {
                operation.queued = false;
                self.schedule.dismiss(priority);
                self.finish_if_done(key);
            }
        }
    }

    fn start_piece(&mut self, priority: Priority, key: usize) {
        let operation = &mut self.operations[key];
        let file = operation.file.clone();
        let (flight, mut transfer) = match &mut operation.job {
            Job::Sync { started, .. } => {
                *started = true;
                Flight::sync(key, file)
            }
            Job::Move(job) => {
                let sizes = Sizes { piece_max: self.piece_bytes, staging: self.staging.free() > 0 };
                let piece = job.cut(&file, sizes);
                match piece.way {
                    Way::Direct => self.door.meter.direct.add(1),
                    Way::Staged { .. } => self.door.meter.staged.add(1),
                    Way::Buffered => self.door.meter.buffered.add(1),
                }
                Flight::new(key, job.flow, piece, file, &self.staging)
            }
        };
        operation.in_flight += 1;
        operation.queued = operation.has_more();
        self.schedule.started(priority, flight.scheduled, !operation.queued);
        transfer.token = self.flights.insert(flight);
        self.backend.start(transfer);
    }

    fn land(&mut self, ended: Ended) {
        let flight = self.flights.remove(ended.transfer.token);
        let key = flight.operation;
        let operation = &mut self.operations[key];
        self.schedule.ended(operation.priority, flight.scheduled);
        operation.in_flight -= 1;
        match operation.settle(flight, ended) {
            Landing::Whole => {}
            Landing::Short => self.door.meter.short.add(1),
            Landing::Hindered => self.door.meter.hindered.add(1),
        }
        if operation.has_more() && !operation.queued {
            operation.queued = true;
            self.schedule.enqueue_first(operation.priority, key);
        }
        self.finish_if_done(key);
    }

    fn finish_if_done(&mut self, key: usize) {
        let operation = &self.operations[key];
        if operation.in_flight == 0 && !operation.queued && !operation.has_more() {
            self.finished += 1;
            self.operations.remove(key).finish(&self.door.meter);
        }
    }
}

/// An engine on `io_uring`.
pub(super) fn ring(config: &Config, why: &str) -> Result<Arc<dyn Engine>> {
    let why = why.to_owned();
    let engine = Driven::start(config, None, move |config, staging| {
        let mut pools = config.pools.clone();
        pools.push(staging.clone());
        let (ring, waker) = Ring::open(config.ring_depth, &pools)?;
        let registered_bytes = ring.registered_bytes();
        let facts = Facts { registered_bytes, ..facts("ring", why, &ring, config) };
        Ok(Opened { backend: wrap(ring, config), waker, facts })
    })?;
    Ok(Arc::new(engine))
}

/// An engine on threads.
pub(super) fn threads(config: &Config, why: String) -> Result<Arc<dyn Engine>> {
    let engine = Driven::start(config, None, move |config, _| {
        let (threads, waker) = Threads::open(config.threads)?;
        let facts = facts("threads", why, &threads, config);
        Ok(Opened { backend: wrap(threads, config), waker, facts })
    })?;
    Ok(Arc::new(engine))
}

/// An engine on files in memory.
pub(super) fn memory(config: &Config) -> Result<Arc<dyn Engine>> {
    let engine = Driven::start(config, Some(Directory::default()), move |config, _| {
        let (memory, waker) = Memory::open();
        let facts = facts("memory", "asked for".into(), &memory, config);
        Ok(Opened { backend: wrap(memory, config), waker, facts })
    })?;
    Ok(Arc::new(engine))
}

fn wrap(backend: impl Backend + 'static, config: &Config) -> Box<dyn Backend> {
    match &config.faults {
        Some(faults) => Box::new(Faulty::new(Box::new(backend), faults.clone())),
        None => Box::new(backend),
    }
}

fn facts(name: &'static str, why: String, backend: &impl Backend, config: &Config) -> Facts {
    let (depth, in_flight_bytes) = (backend.depth(), config.in_flight_bytes);
    Facts { backend: name, why, depth, in_flight_bytes, registered_bytes: 0 }
}
