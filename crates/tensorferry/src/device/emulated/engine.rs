//! The threads of an emulated device, and the queues they serve.
//!
//! A device has three *units* that work at the same time: the link inwards, the link outwards and
//! the compute unit. Each is one thread, asleep when it has nothing to do.
//!
//! An operation is *in line* in its stream's queue, then *running* (at most one per stream, which
//! is what keeps a stream in order), then *ended*: what it owned is gone, its accesses are no
//! longer outstanding and its ticket is settled, in this order, so that whoever sees its end sees
//! all of it. Most run on a unit. Those behind a failure run nowhere: the thread that finds them
//! lets go of what they own. Records and waits own nothing; they end as soon as they come to the
//! head of their stream and, for a wait, its event is over. [`Core::advance`] moves everything
//! that can move; it is called after each submission and each end.
//!
//! **Time.** Each link keeps a [`Link`]: a transfer's slot is reserved, in model time, when it
//! starts to run, from the model time at which it became ready: the latest of its submission, the
//! end of its predecessor and the events waited for. The unit's thread moves the bytes when the
//! slot starts and sleeps until it is over. So a transfer ends late, never early; late only by a
//! wake-up, unless moving the bytes takes longer than the slot; and the lateness of one wake-up
//! does not add up over a queue. Nobody sees the bytes early: until the end the accesses are
//! outstanding and the block is the operation's.
//!
//! A kernel that uses host memory in place takes slots on the links too, when it gets the compute
//! unit. It runs from the start of its slot inwards, and has the unit until it has computed *and*
//! its slots are over: computing and crossing overlap, as [`direct_time`] says.
//!
//! [`direct_time`]: crate::device::link::direct_time
//!
//! **Locks.** One lock guards all queues. Tickets have their own, taken inside it. What an
//! operation owns (a block whose keeper may run foreign code, a share of an allocation, a kernel's
//! captures) is never dropped under the lock.
//!
//! **The end.** A dropped device finishes what was submitted; then its threads end.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use super::hazards::{Access, AccessId, Actor, Clock, Hazards};
use super::spec::Spec;
use super::{LINK_LOG_MAX, LinkUse};
use crate::device::backing::{Account, Allocation};
use crate::device::handles::{Completion, DeviceMemory, Presence};
use crate::device::kernels::{self, Kernel, Operand};
use crate::device::link::{Direction, Link, Slot};
use crate::device::ticket::{Fault, Outcome, Ticket};
use crate::device::{STREAM_QUEUE_MAX, STREAMS_MAX};
use crate::error::{Error, Kind, Result};
use crate::memory::Block;
use crate::sync::{Condvar, Mutex, MutexGuard, lock, wait};

/// How much of a wait is spent awake, because the kernel may wake a sleeper that much too late.
const AWAKE_MAX: Duration = Duration::from_micros(60);

/// What the threads and the handles share.
pub(super) struct Core {
    epoch: Instant,
    account: Arc<Account>,
    state: Mutex<State>,
    /// One per unit: there may be something to do.
    bells: [Condvar; UNITS],
}

const UNITS: usize = 3;
const COMPUTE: usize = 2;

fn unit_of(direction: Direction) -> usize {
    match direction {
        Direction::In => 0,
        Direction::Out => 1,
    }
}

pub(super) struct State {
    /// A stream is here as long as its handle exists or something is in line.
    streams: BTreeMap<u64, Queue>,
    stream_next: u64,
    /// Operations that run or are about to; at most one per stream, so at most [`STREAMS_MAX`].
    running: [VecDeque<Job>; UNITS],
    /// Kernels that wait for the compute unit.
    kernels: VecDeque<Job>,
    computing: bool,
    /// Model time at which the compute unit was last given up.
    computed_at: Duration,
    links: [Link; 2],
    log: VecDeque<LinkUse>,
    /// How many of the next copies in each direction are to fail.
    failing: [u32; 2],
    hazards: Hazards,
    closing: bool,
}

/// The state of a stream.
#[derive(Default)]
struct Queue {
    line: VecDeque<Operation>,
    is_running: bool,
    /// The handle is gone: remove the queue when it is empty.
    is_orphan: bool,
    /// The first failure since the last report; all that follows fails with it.
    fault: Option<Fault>,
    /// Model time at which everything before the head had ended.
    ended_at: Duration,
    submitted: u64,
    known: Clock,
    /// The latest operation, while it has not ended; not its owner, which would keep its block.
    last: Weak<Ticket>,
}

struct Operation {
    ticket: Arc<Ticket>,
    work: Work,
    accesses: Vec<AccessId>,
    submitted_at: Duration,
}

pub(super) enum Work {
    Copy(CopyWork),
    /// Link time without a copy, for a kernel that runs elsewhere.
    Direct {
        direction: Direction,
        bytes: u64,
    },
    Kernel {
        /// Taken when it runs.
        kernel: Option<Kernel>,
        operands: Vec<Operand>,
        /// What crosses the link meanwhile.
        bytes_in: u64,
        bytes_out: u64,
    },
    Record,
    Wait(Arc<Ticket>),
}

pub(super) struct CopyWork {
    pub(super) direction: Direction,
    pub(super) block: Block,
    pub(super) memory: DeviceMemory,
    pub(super) range: Range<usize>,
}

/// An operation that runs.
struct Job {
    stream: u64,
    operation: Operation,
    /// From when to when it runs, in model time; it ends no earlier.
    start: Duration,
    done: Duration,
    fault: Option<Fault>,
}

/// What is left of an operation whose work is over.
struct Ended {
    stream: u64,
    ticket: Arc<Ticket>,
    accesses: Vec<AccessId>,
    block: Option<Block>,
    outcome: Outcome,
}

impl Job {
    /// Drops what the operation owns, apart from the block, which is for its ticket. May run
    /// foreign code, so never under the lock.
    fn let_go(self) -> Ended {
        let Self { stream, operation, done: at, fault, .. } = self;
        let Operation { ticket, work, accesses, .. } = operation;
        let block = match work {
            Work::Copy(copy) => Some(copy.block),
            _ => None,
        };
        Ended { stream, ticket, accesses, block, outcome: Outcome { fault, at } }
    }
}

impl Core {
    /// Starts the threads.
    pub(super) fn start(spec: &Spec, account: Arc<Account>) -> Result<Arc<Self>> {
        let state = State {
            streams: BTreeMap::new(),
            stream_next: 0,
            running: [const { VecDeque::new() }; UNITS],
            kernels: VecDeque::new(),
            computing: false,
            computed_at: Duration::ZERO,
            links: [Direction::In, Direction::Out].map(|way| Link::new(spec.speed(way))),
            log: VecDeque::new(),
            failing: [0; 2],
            hazards: Hazards::default(),
            closing: false,
        };
        let bells = [(); UNITS].map(|()| Condvar::new());
        let core =
            Arc::new(Self { epoch: Instant::now(), account, state: Mutex::new(state), bells });
        for (unit, name) in ["ferry-link-in", "ferry-link-out", "ferry-compute"].iter().enumerate()
        {
            let unit_core = Arc::clone(&core);
            let spawned = thread::Builder::new()
                .name((*name).to_owned())
                .spawn(move || unit_core.serve(unit));
            if let Err(error) = spawned {
                core.close();
                return Err(Error::from_io(error, "can't start a thread of the emulated device"));
            }
        }
        Ok(core)
    }

    /// Lets the threads end once everything submitted is done.
    pub(super) fn close(&self) {
        lock(&self.state).closing = true;
        self.bells.iter().for_each(Condvar::notify_all);
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Model time: how long the device exists.
    pub(super) fn now(&self) -> Duration {
        self.epoch.elapsed()
    }

    /// Moves everything that can move and releases the lock.
    pub(super) fn advance<'a>(&'a self, mut state: MutexGuard<'a, State>) {
        let mut over = Vec::new();
        loop {
            let failed = state.advance();
            let closing = state.closing;
            let busy: [bool; UNITS] = [0, 1, 2].map(|unit| !state.running[unit].is_empty());
            drop(state);
            for (condvar, busy) in self.bells.iter().zip(busy) {
                if busy || closing {
                    condvar.notify_all();
                }
            }
            over.clear();
            if failed.is_empty() {
                return;
            }
            let ended: Vec<_> = failed.into_iter().map(Job::let_go).collect();
            state = self.lock();
            over.extend(ended.into_iter().map(|ended| state.settle(ended)));
        }
    }

    /// Notes that the calling thread uses bytes, unless that races.
    pub(super) fn enter(self: &Arc<Self>, accesses: Vec<Access>) -> Result<Presence> {
        let hazards = &mut self.lock().hazards;
        accesses.iter().try_for_each(|access| hazards.check(access, &Clock::new()))?;
        let begin = |access| hazards.begin(access, Actor::Thread);
        let accesses = accesses.into_iter().map(begin).collect();
        Ok(Box::new(Stay { core: Arc::clone(self), accesses }))
    }

    /// Waits, at most for `limit`, until all that was submitted to `stream` is over; reports and
    /// clears its failure.
    pub(super) fn synchronize(&self, stream: u64, limit: Duration) -> Result<()> {
        let last = self.lock().streams.get(&stream).and_then(|queue| queue.last.upgrade());
        let over =
            last.is_none_or(|last| last.wait_until(Instant::now().checked_add(limit)).is_some());
        if !over {
            let message = format!("the stream was not done within {limit:?}");
            return Err(Error::new(Kind::Timeout, message));
        }
        let fault = self.lock().streams.get_mut(&stream).and_then(|queue| queue.fault.take());
        fault.map_or(Ok(()), |fault| Err(fault.error()))
    }

    /// The life of a unit's thread.
    fn serve(&self, unit: usize) {
        let mut state = self.lock();
        loop {
            if let Some(mut job) = state.running[unit].pop_front() {
                drop(state);
                self.perform(&mut job);
                self.end(unit, job.let_go());
                state = self.lock();
            } else if state.closing && state.is_idle() {
                return;
            } else {
                state = wait(&self.bells[unit], state, None).0;
            }
        }
    }

    /// Does what the operation does and takes its time, whichever is longer.
    fn perform(&self, job: &mut Job) {
        self.sleep_until(job.start);
        if job.fault.is_none() {
            job.fault = self.work(job).err().as_ref().map(Fault::of);
        }
        self.sleep_until(job.done);
    }

    fn work(&self, job: &mut Job) -> Result<()> {
        match &mut job.operation.work {
            Work::Copy(copy) => self.copy(copy),
            Work::Kernel { kernel, operands, .. } => {
                let run = |kernel| kernels::run(operands.clone(), kernel, &self.account);
                let result = kernel.take().map_or(Ok(()), run);
                job.done = job.done.max(self.now());
                result
            }
            Work::Direct { .. } | Work::Record | Work::Wait(_) => Ok(()),
        }
    }

    fn copy(&self, copy: &mut CopyWork) -> Result<()> {
        let region = &Allocation::of(&copy.memory, &self.account)?.region;
        match copy.direction {
            Direction::In => region.write(copy.range.clone())?.copy_from_slice(&copy.block),
            Direction::Out => {
                let read_only = || Error::new(Kind::Internal, "a copy out has a read-only block");
                let target = copy.block.as_mut().ok_or_else(read_only)?;
                target.copy_from_slice(&region.read(copy.range.clone())?);
            }
        }
        Ok(())
    }

    /// Ends what a unit has done.
    fn end(&self, unit: usize, ended: Ended) {
        let mut state = self.lock();
        if let Some(queue) = state.streams.get_mut(&ended.stream) {
            queue.fault.clone_from(&ended.outcome.fault);
        }
        if unit == COMPUTE {
            (state.computing, state.computed_at) = (false, ended.outcome.at);
            state.start_kernel();
        }
        let ticket = state.settle(ended);
        self.advance(state);
        drop(ticket);
    }

    fn sleep_until(&self, moment: Duration) {
        loop {
            let left = moment.saturating_sub(self.now());
            if left.is_zero() {
                return;
            } else if left > AWAKE_MAX {
                thread::sleep(left.saturating_sub(AWAKE_MAX));
            } else {
                thread::yield_now();
            }
        }
    }
}

/// A thread's use of bytes.
struct Stay {
    core: Arc<Core>,
    accesses: Vec<AccessId>,
}

impl Drop for Stay {
    fn drop(&mut self) {
        let mut state = self.core.lock();
        for id in self.accesses.drain(..) {
            state.hazards.end(id);
        }
    }
}

impl State {
    pub(super) fn open_stream(&mut self) -> Result<u64> {
        if self.streams.len() >= STREAMS_MAX {
            let message = format!("the device has {STREAMS_MAX} streams, and no more");
            return Err(Error::new(Kind::OutOfMemory, message));
        }
        let stream = self.stream_next;
        self.stream_next += 1;
        self.streams.insert(stream, Queue::default());
        Ok(stream)
    }

    /// The handle of `stream` is gone; what is in line is still done.
    pub(super) fn leave_stream(&mut self, stream: u64) {
        if let Some(queue) = self.streams.get_mut(&stream) {
            queue.is_orphan = true;
        }
    }

    /// An error unless one more operation fits on `stream` and none of `accesses` would race.
    pub(super) fn admit(&self, stream: u64, accesses: &[Access]) -> Result<()> {
        let Some(queue) = self.streams.get(&stream) else { return Ok(()) };
        if queue.line.len() + usize::from(queue.is_running) >= STREAM_QUEUE_MAX {
            let message = format!("the stream has {STREAM_QUEUE_MAX} operations in line");
            return Err(Error::new(Kind::OutOfMemory, message));
        }
        accesses.iter().try_for_each(|access| self.hazards.check(access, &queue.known))
    }

    /// Puts an admitted operation in line.
    pub(super) fn push(
        &mut self,
        stream: u64,
        work: Work,
        accesses: Vec<Access>,
        now: Duration,
    ) -> Arc<Ticket> {
        let queue = self.streams.entry(stream).or_default();
        queue.submitted += 1;
        queue.known.insert(stream, queue.submitted);
        let actor = Actor::Stream(stream, queue.submitted);
        let hazards = &mut self.hazards;
        let accesses = accesses.into_iter().map(|access| hazards.begin(access, actor)).collect();
        let ticket = Arc::new(Ticket::default());
        queue.last = Arc::downgrade(&ticket);
        let operation =
            Operation { ticket: Arc::clone(&ticket), work, accesses, submitted_at: now };
        queue.line.push_back(operation);
        ticket
    }

    /// What the next operation on `stream` is ordered behind.
    pub(super) fn known(&self, stream: u64) -> Clock {
        self.streams.get(&stream).map(|queue| queue.known.clone()).unwrap_or_default()
    }

    /// Orders what follows on `stream` behind everything in `clock`.
    pub(super) fn learn(&mut self, stream: u64, clock: &Clock) {
        // Streams that are gone have nothing outstanding; forgetting them bounds the clocks.
        let alive: Vec<_> = clock.iter().filter(|(id, _)| self.streams.contains_key(id)).collect();
        let Some(queue) = self.streams.get_mut(&stream) else { return };
        for (&other, &number) in alive {
            let last = queue.known.entry(other).or_default();
            *last = number.max(*last);
        }
    }

    pub(super) fn fail_next(&mut self, direction: Direction) {
        self.failing[unit_of(direction)] += 1;
    }

    pub(super) fn log(&self) -> Vec<LinkUse> {
        self.log.iter().cloned().collect()
    }

    pub(super) fn link_free_at(&self, direction: Direction) -> Duration {
        self.links[unit_of(direction)].free_at()
    }

    fn is_idle(&self) -> bool {
        self.streams.values().all(|queue| queue.line.is_empty() && !queue.is_running)
    }

    /// Moves everything that can move; returns what fails with its stream.
    fn advance(&mut self) -> Vec<Job> {
        let mut failed = Vec::new();
        let ids: Vec<_> = self.streams.keys().copied().collect();
        // The end of one stream's record can free another's wait, so go on until nothing moves.
        // Each round but the last takes an operation out of a line, so there is a last.
        while ids.iter().filter(|stream| self.step(**stream, &mut failed)).count() > 0 {}
        self.forget_orphans();
        failed
    }

    /// Moves the head of one stream, if it can move.
    fn step(&mut self, stream: u64, failed: &mut Vec<Job>) -> bool {
        let Some(queue) = self.streams.get_mut(&stream) else { return false };
        if queue.is_running {
            return false;
        }
        let event = match queue.line.front().map(|head| &head.work) {
            None => return false,
            Some(Work::Wait(event)) => match event.outcome() {
                None => return false,
                outcome => outcome,
            },
            Some(_) => None,
        };
        let Some(head) = queue.line.pop_front() else { return false };
        if let Some(Outcome { fault, at }) = event {
            queue.ended_at = queue.ended_at.max(at);
            queue.fault = queue.fault.take().or(fault.map(|fault| fault.inherited()));
        }
        let ready = queue.ended_at.max(head.submitted_at);
        let fault = queue.fault.as_ref().map(Fault::inherited);
        if matches!(head.work, Work::Record | Work::Wait(_)) {
            queue.ended_at = ready;
            head.ticket.settle(Outcome { fault, at: ready }, None);
            return true;
        }
        queue.is_running = true;
        let job = Job { stream, operation: head, start: ready, done: ready, fault };
        if job.fault.is_some() {
            failed.push(job);
        } else {
            self.dispatch(job);
        }
        true
    }

    /// Gives an operation to its unit.
    fn dispatch(&mut self, mut job: Job) {
        let (direction, bytes, is_copy) = match &job.operation.work {
            Work::Copy(copy) => (copy.direction, copy.range.len() as u64, true),
            Work::Direct { direction, bytes } => (*direction, *bytes, false),
            _ => {
                self.kernels.push_back(job);
                return self.start_kernel();
            }
        };
        let unit = unit_of(direction);
        job.start = self.occupy(&mut job, direction, bytes, is_copy).start;
        if is_copy && self.failing[unit] > 0 {
            self.failing[unit] -= 1;
            job.fault = Some(Fault::of(&Error::new(Kind::Io, "the link failed on purpose")));
        }
        self.running[unit].push_back(job);
    }

    /// Gives the compute unit, if it is free, to the next kernel.
    fn start_kernel(&mut self) {
        if self.computing {
            return;
        }
        let Some(mut job) = self.kernels.pop_front() else { return };
        self.computing = true;
        job.start = job.start.max(self.computed_at);
        job.done = job.start;
        if let Work::Kernel { bytes_in, bytes_out, .. } = job.operation.work {
            if bytes_in > 0 {
                job.start = self.occupy(&mut job, Direction::In, bytes_in, false).start;
            }
            if bytes_out > 0 {
                self.occupy(&mut job, Direction::Out, bytes_out, false);
            }
        }
        self.running[COMPUTE].push_back(job);
    }

    /// Takes the link for a job from its start on; the job lasts as long as that.
    fn occupy(&mut self, job: &mut Job, direction: Direction, bytes: u64, is_copy: bool) -> Slot {
        let slot = self.links[unit_of(direction)].reserve(job.start, bytes);
        if self.log.len() == LINK_LOG_MAX {
            self.log.pop_front();
        }
        self.log.push_back(LinkUse { direction, stream: job.stream, bytes, is_copy, slot });
        job.done = job.done.max(slot.done);
        slot
    }

    /// Ends an operation. Its ticket may be the last owner of its block, so it is returned, to be
    /// dropped without the lock.
    fn settle(&mut self, ended: Ended) -> Arc<Ticket> {
        let Ended { stream, ticket, accesses, block, outcome } = ended;
        for id in accesses {
            self.hazards.end(id);
        }
        if let Some(queue) = self.streams.get_mut(&stream) {
            queue.is_running = false;
            queue.ended_at = queue.ended_at.max(outcome.at);
        }
        ticket.settle(outcome, block);
        ticket
    }

    fn forget_orphans(&mut self) {
        let over = |queue: &Queue| queue.is_orphan && queue.line.is_empty() && !queue.is_running;
        let gone: Vec<_> =
            self.streams.iter().filter(|(_, queue)| over(queue)).map(|(id, _)| *id).collect();
        for stream in gone {
            self.streams.remove(&stream);
            for queue in self.streams.values_mut() {
                queue.known.remove(&stream);
            }
        }
    }
}
