//! The engine over any backend: one thread that accepts operations, starts their pieces by
//! priority, and answers when all bytes have moved.
//!
//! ```text
//!   callers ──► gate ──► operations ──► schedule ──► backend ──► kernel
//!               (bounded)    ▲  short, EINTR, EAGAIN     │
//!                            └──────── ended ◄───────────┘──► promise
//! ```
//!
//! All state but the gate belongs to the driver's thread. Stopping the engine, or dropping its last
//! handle, closes the gate; the driver finishes what it has accepted and ends. Should it end early,
//! by a panic or because the kernel takes no more requests, every promise is answered all the same:
//! dropped ones say `Closed`.
//!
//! At most one sync of a file is under way. The kernel reports a failed one once, to whoever asks
//! first; a second one beside it would be told that all is well.

use std::collections::{HashMap, VecDeque};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

use slab::Slab;

use super::backend::{Backend, Ended, Patience, Transfer, Waker};
use super::config::STAGING;
use super::faulty::Faulty;
use super::file::{File, Home, Open};
use super::flight::Flight;
use super::gate::{Gate, Message};
use super::inline::{Call, CarryOut, Inline};
use super::memory::{Directory, Memory};
use super::meter::{Meter, Verb};
use super::operation::{self, Job, Move, Operation};
use super::pending::{Failed, Pending, promise};
use super::piece::Flow;
use super::priority::Priority;
use super::ring::Ring;
use super::schedule::{Limits, Schedule};
use super::threads::Threads;
use super::{Borrowed, Config, Engine, Facts, memory, threads};
use crate::error::{Error, Kind, Result};
use crate::memory::{Block, Pool};
use crate::sync::{Mutex, lock};

/// What a backend is made of, on the thread that will use it.
struct Opened {
    backend: Box<dyn Backend>,
    waker: Arc<dyn Waker>,
    facts: Facts,
}

/// An engine that drives a backend; see the [module](self).
struct Driven {
    gate: Arc<Gate>,
    /// What its files know of it.
    home: Home,
    inline: Inline,
    directory: Option<Directory>,
    facts: Facts,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Driven {
    /// Starts the driver's thread, and on it the backend. `carry_out` is how callers do without them.
    fn start(
        config: &Config,
        directory: Option<Directory>,
        carry_out: CarryOut,
        open: impl FnOnce(&Config) -> Result<Opened> + Send + 'static,
    ) -> Result<Self> {
        static NEXT_ENGINE: AtomicU64 = AtomicU64::new(0);
        let engine = NEXT_ENGINE.fetch_add(1, Ordering::Relaxed);
        let inline = Inline::new(config, carry_out)?;
        let config = config.clone();
        let meter = Meter::new(&config.metrics)?;
        let (sender, receiver) = std::sync::mpsc::channel();
        let thread = std::thread::Builder::new().name("ferry-io".into()).spawn(move || {
            let staging = Pool::of(&STAGING, 1, (config.piece_bytes, config.staging_slots()));
            let opened = staging.and_then(|staging| Ok((open(&config)?, staging)));
            let (opened, staging) = match opened {
                Ok(opened) => opened,
                Err(error) => return drop(sender.send(Err(error))),
            };
            let gate = Arc::new(Gate::new(engine, config.operations_max, opened.waker, meter));
            if sender.send(Ok((Arc::clone(&gate), opened.facts))).is_ok() {
                Driver::new(&config, gate, opened.backend, staging).run();
            }
        });
        let thread = thread.map_err(|error| Error::from_io(error, "can't start the I/O thread"))?;
        let stopped = || Error::new(Kind::Internal, "the I/O thread stopped while it started");
        let (gate, facts) = receiver.recv().map_err(|_| stopped())??;
        let home = home(&gate);
        Ok(Self { gate, home, inline, directory, facts, thread: Mutex::new(Some(thread)) })
    }

    /// Hands an operation to the driver.
    fn submit(&self, operation: Operation) {
        if let Some(operation) = self.own(operation) {
            self.gate.accept(operation);
        }
    }

    /// Carries an operation out on the calling thread.
    fn run_here(&self, operation: Operation) {
        let Some(operation) = self.own(operation) else { return };
        match self.gate.enter(operation.priority) {
            Ok(_visit) => self.inline.run(operation, &self.gate.meter),
            Err(error) => self.gate.refuse(operation, error),
        }
    }

    /// An operation on a file of this engine; others are refused.
    fn own(&self, operation: Operation) -> Option<Operation> {
        match self.foreign(&operation.file) {
            None => return Some(operation),
            Some(error) => self.gate.refuse(operation, error),
        }
        None
    }

    /// Why a file can't be used here.
    fn foreign(&self, file: &File) -> Option<Error> {
        let is_foreign = file.engine() != self.gate.engine;
        is_foreign.then(|| Error::invalid("the file was opened by another engine"))
    }

    /// Moves bytes of borrowed memory.
    fn call(&self, call: Call<'_, '_>) -> Result<usize> {
        let (file, flow) = (call.file, call.memory.flow());
        let refused = refusal(file, flow, call.offset, call.memory.wanted());
        if let Some(error) = refused.or_else(|| self.foreign(file)) {
            return Err(error);
        }
        self.gate.check_home()?;
        self.inline.carry_out(call, &self.gate.meter)
    }

    fn move_bytes(
        &self,
        file: &File,
        flow: Flow,
        offset: u64,
        block: Block,
        priority: Priority,
        submit: fn(&Self, Operation),
    ) -> Pending<Block> {
        let (promise, pending) = promise();
        let refused = refusal(file, flow, offset, block.len()).or_else(|| fixed(flow, &block));
        let job = Move::new(flow, offset, block, promise);
        let is_empty = job.len == 0;
        let operation = Operation::new(file.clone(), priority, Job::Move(job));
        match refused {
            Some(error) => self.gate.refuse(operation, error),
            None if is_empty => operation.finish(&self.gate.meter),
            None => submit(self, operation),
        }
        pending
    }
}

/// Why a move can't even be tried.
fn refusal(file: &File, flow: Flow, offset: u64, len: usize) -> Option<Error> {
    let end = offset.checked_add(len as u64);
    if end.is_none_or(|end| end > i64::MAX as u64) {
        let message = format!("{len} bytes at offset {offset} are beyond any file");
        return Some(Error::invalid(message));
    }
    match flow {
        Flow::Write if !file.is_writable() => {
            Some(Error::invalid("can't write to a file that was opened for reading"))
        }
        Flow::Write => file.check_not_poisoned().err(),
        Flow::Read => None,
    }
}

/// Why a block can't be read into.
fn fixed(flow: Flow, block: &Block) -> Option<Error> {
    let is_fixed = flow == Flow::Read && !block.is_writable();
    is_fixed.then(|| Error::invalid("can't read into memory that must not be written to"))
}

/// What the files of an engine know of it.
fn home(gate: &Arc<Gate>) -> Home {
    let (engine, gate) = (gate.engine, Arc::downgrade(gate));
    let on_close = Arc::new(move |file| {
        if let Some(gate) = gate.upgrade() {
            gate.file_closed(file);
        }
    });
    Home { engine, on_close }
}

impl Engine for Driven {
    fn open(&self, path: &Path, how: Open) -> Result<File> {
        match &self.directory {
            Some(directory) => directory.open(path, how.mode, &self.home),
            None => File::open(path, how, &self.home),
        }
    }

    fn read(&self, file: &File, offset: u64, into: Block, priority: Priority) -> Pending<Block> {
        self.move_bytes(file, Flow::Read, offset, into, priority, Self::submit)
    }

    fn write(&self, file: &File, offset: u64, from: Block, priority: Priority) -> Pending<Block> {
        self.move_bytes(file, Flow::Write, offset, from, priority, Self::submit)
    }

    fn read_inline(&self, file: &File, offset: u64, into: Block) -> Result<Block, Failed> {
        let waiting = Priority::Waiting;
        self.move_bytes(file, Flow::Read, offset, into, waiting, Self::run_here).wait()
    }

    fn write_inline(&self, file: &File, offset: u64, from: Block) -> Result<Block, Failed> {
        let waiting = Priority::Waiting;
        self.move_bytes(file, Flow::Write, offset, from, waiting, Self::run_here).wait()
    }

    fn move_inline(
        &self,
        file: &File,
        offset: u64,
        memory: Borrowed<'_, '_>,
        priority: Priority,
    ) -> Result<usize> {
        let (verb, extent) = (Verb::of(memory.flow()), Some((offset, memory.wanted())));
        let (began, _span) = (Instant::now(), operation::span(verb, file, priority, extent));
        let moved = self.call(Call { file, offset, memory });
        let now = Instant::now();
        self.gate.done_inline(verb, priority, (began, now), moved.as_ref().ok().copied());
        moved.map_err(|error| error.with("file", file.path().display()))
    }

    fn sync(&self, file: &File, priority: Priority) -> Pending<()> {
        let (promise, pending) = promise();
        let job = Job::Sync { promise, started: false };
        self.submit(Operation::new(file.clone(), priority, job));
        pending
    }

    fn stop(&self) {
        if !self.gate.is_at_home() {
            return;
        }
        self.gate.close("the engine was stopped");
        // A keeper of somebody's memory may own the last handle, and be dropped by the driver: it
        // can't wait for itself, and ends by itself.
        if !self.gate.is_driver()
            && let Some(thread) = lock(&self.thread).take()
        {
            // A driver that panicked has answered its promises by dropping them.
            let _ = thread.join();
        }
    }

    fn facts(&self) -> &Facts {
        &self.facts
    }
}

impl Drop for Driven {
    fn drop(&mut self) {
        self.stop();
        if !self.gate.is_at_home() {
            // The thread's number may belong to a thread of this child: it must not be detached.
            std::mem::forget(lock(&self.thread).take());
        }
    }
}

/// The state of the driver's thread.
struct Driver {
    gate: Arc<Gate>,
    backend: Box<dyn Backend>,
    schedule: Schedule,
    operations: Slab<Operation>,
    flights: Slab<Flight>,
    /// Files with a sync under way, and the syncs that stand behind it.
    syncs: HashMap<u64, VecDeque<usize>>,
    staging: Pool,
    piece_bytes: usize,
    began: Instant,
    /// Operations done since the gate was last told, by priority.
    finished: [usize; 4],
}

impl Driver {
    fn new(config: &Config, gate: Arc<Gate>, backend: Box<dyn Backend>, staging: Pool) -> Self {
        let limits = Limits { bytes_max: config.in_flight_bytes, transfers_max: backend.depth() };
        Self {
            gate,
            schedule: Schedule::new(limits),
            operations: Slab::new(),
            flights: Slab::with_capacity(backend.depth()),
            syncs: HashMap::new(),
            backend,
            staging,
            piece_bytes: config.piece_bytes,
            began: Instant::now(),
            finished: [0; 4],
        }
    }

    fn run(mut self) {
        let mut ended = Vec::new();
        while self.take_in() {
            self.start_pieces();
            let may_sleep = self.finished == [0; 4] && self.gate.fall_asleep();
            let patience = match self.schedule.pause() {
                _ if !may_sleep => Patience::None,
                Some(pause) => Patience::AtMost(pause),
                None => Patience::Unlimited,
            };
            if self.backend.reap(patience, &mut ended).is_err() {
                // What is in flight stays with the backend.
                return self.gate.close("the kernel takes no more requests; open a new engine");
            }
            for ended in ended.drain(..) {
                self.land(ended);
            }
        }
    }

    /// Takes in what callers have left; `false` when there will never be more to do.
    fn take_in(&mut self) -> bool {
        let delivery = self.gate.take(&mut self.finished);
        for message in delivery.items {
            match message {
                Message::FileClosed(file) => self.backend.forget(file),
                Message::Operation(operation) => {
                    let key = self.operations.insert(*operation);
                    self.enqueue(key);
                }
            }
        }
        !delivery.is_last
    }

    fn enqueue(&mut self, key: usize) {
        let operation = &mut self.operations[key];
        operation.queued = true;
        self.schedule.enqueue(operation.priority, key);
    }

    fn start_pieces(&mut self) {
        let mut held = [false; 4];
        self.look();
        while let Some((priority, key)) = self.schedule.next(held) {
            let piece_bytes = self.schedule.piece_max(priority, self.piece_bytes);
            let operation = &mut self.operations[key];
            if operation.is_pointless() {
                operation.fail(Error::new(Kind::Closed, "nobody waits for this read any more"));
            }
            if !operation.has_more() || !self.may_start(key) {
                self.operations[key].queued = false;
                self.schedule.dismiss(priority);
                self.finish_if_done(key);
            } else if let Some((flight, transfer)) =
                self.operations[key].lift_off(key, piece_bytes, &self.staging, &self.gate.meter)
            {
                self.start(priority, key, flight, transfer);
            } else {
                held[priority as usize] = true;
            }
        }
    }

    /// Tells the schedule what it can't see.
    fn look(&mut self) {
        let now = Instant::now();
        let demand = &self.gate.demand;
        self.schedule.tell(now - self.began, demand.is_there(now), demand.waited());
    }

    /// Whether the operation may start now: a sync stands behind another one of its file, and fails
    /// behind one that failed.
    fn may_start(&mut self, key: usize) -> bool {
        let operation = &mut self.operations[key];
        if !matches!(operation.job, Job::Sync { .. }) {
            return true;
        }
        if let Some(behind) = self.syncs.get_mut(&operation.file.id()) {
            behind.push_back(key);
            return false;
        }
        if let Err(error) = operation.file.check_not_poisoned() {
            operation.fail(error);
            return false;
        }
        self.syncs.insert(operation.file.id(), VecDeque::new());
        true
    }

    fn start(&mut self, priority: Priority, key: usize, flight: Flight, mut transfer: Transfer) {
        let operation = &mut self.operations[key];
        operation.in_flight += 1;
        operation.queued = operation.has_more();
        self.schedule.started(priority, flight.scheduled, !operation.queued);
        transfer.token = self.flights.insert(flight);
        self.backend.start(transfer);
    }

    fn land(&mut self, ended: Ended) {
        self.look();
        let flight = self.flights.remove(ended.transfer.token);
        let key = flight.operation;
        let operation = &mut self.operations[key];
        self.schedule.ended(operation.priority, flight.scheduled);
        if operation.is_read() {
            let now = Instant::now();
            let took = now - flight.began;
            self.gate.somebody_read(operation.priority, flight.scheduled, took, now);
        }
        operation.in_flight -= 1;
        self.gate.meter.landed(operation.settle(flight, ended));
        let (file, is_sync) = (operation.file.id(), matches!(operation.job, Job::Sync { .. }));
        if operation.has_more() && !operation.queued {
            operation.queued = true;
            self.schedule.enqueue_first(operation.priority, key);
        }
        if is_sync {
            // A sync that goes again starts like a new one, in front of those behind it.
            for behind in self.syncs.remove(&file).into_iter().flatten() {
                self.enqueue(behind);
            }
        }
        self.finish_if_done(key);
    }

    fn finish_if_done(&mut self, key: usize) {
        let operation = &self.operations[key];
        if operation.in_flight == 0 && !operation.queued && !operation.has_more() {
            self.finished[operation.priority as usize] += 1;
            self.operations.remove(key).finish(&self.gate.meter);
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // First of all, so that nobody waits for what comes next: the backend may take a while.
        self.gate.desert();
        self.operations.clear();
    }
}

/// An engine on `io_uring`.
pub(super) fn ring(config: &Config, why: &str) -> Result<Arc<dyn Engine>> {
    let why = why.to_owned();
    let engine = Driven::start(config, None, threads::carry_out, move |config| {
        let (ring, waker) = Ring::open(config.ring_depth, &config.pools)?;
        let registered_bytes = ring.registered_bytes();
        let facts = Facts { registered_bytes, ..facts("ring", why, &ring, config) };
        Ok(Opened { backend: Faulty::around(ring, config.faults.as_ref()), waker, facts })
    })?;
    Ok(Arc::new(engine))
}

/// An engine on threads.
pub(super) fn threads(config: &Config, why: String) -> Result<Arc<dyn Engine>> {
    let engine = Driven::start(config, None, threads::carry_out, move |config| {
        let (threads, waker) = Threads::open(config.threads)?;
        let facts = facts("threads", why, &threads, config);
        Ok(Opened { backend: Faulty::around(threads, config.faults.as_ref()), waker, facts })
    })?;
    Ok(Arc::new(engine))
}

/// An engine on files in memory.
pub(super) fn memory(config: &Config) -> Result<Arc<dyn Engine>> {
    let directory = Some(Directory::default());
    let engine = Driven::start(config, directory, memory::carry_out, move |config| {
        let (memory, waker) = Memory::open();
        let facts = facts("memory", "asked for".into(), &memory, config);
        Ok(Opened { backend: Faulty::around(memory, config.faults.as_ref()), waker, facts })
    })?;
    Ok(Arc::new(engine))
}

fn facts(name: &'static str, why: String, backend: &impl Backend, config: &Config) -> Facts {
    let (depth, in_flight_bytes) = (backend.depth(), config.in_flight_bytes);
    Facts { backend: name, why, depth, in_flight_bytes, registered_bytes: 0 }
}
