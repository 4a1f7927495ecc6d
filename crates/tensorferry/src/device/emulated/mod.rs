//! A device that exists only as a model: what is emulated is its capacity and the time on its
//! link; what is real is every copy and every byte.
//!
//! - Allocation beyond the capacity fails, as on a GPU, and capacity is counted exactly.
//! - A copy ends no earlier than the link model says ([`link`]). Lateness is not bounded: the
//!   threads run on whatever cores the machine has, and really moving the bytes can take longer
//!   than a modelled link that is faster than the machine's memory.
//! - Nobody looks too early: an operation that uses bytes which another one in flight may still
//!   change, without being ordered behind it, is refused. So is overwriting bytes that are still
//!   in use. That holds for device memory and for mapped host memory, whose bytes host code too
//!   gets only while no kernel in flight is against it. On a real device all this would go through
//!   and give wrong numbers now and then.
//! - Host code gets no view of device memory, and addresses of device memory are such that
//!   following one faults. Computations reach it through [`Kernels`].
//! - Kernels run one at a time, in real time: how fast a GPU would be is not modelled.
//! - A kernel that uses host memory in place occupies the link as a copy of
//!   [`direct_bytes`](super::link::direct_bytes) would, so that it and copies get in each other's
//!   way. It computes meanwhile, and ends when it has computed and its bytes have crossed.
//!
//! What it can't find: a race that the schedule allows but that did not happen, because the other
//! operation had ended when this one was submitted.

mod engine;
mod hazards;
mod spec;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use engine::{CopyWork, Core, Work};
use hazards::{Access, Clock};
pub use spec::Spec;

use super::backing::{self, ALLOCATION_ALIGNMENT, Account, Allocation};
use super::handles::{DeviceMemory, Event, Mapped, Refused, Stream, Transfer};
use super::kernels::{self, DevicePointer, Entered, Kernel, Kernels, Operand, View};
use super::link::{self, Direction, Slot};
use super::ticket::Ticket;
use super::{Device, Facts, LinkFacts};
use crate::error::{Error, Kind, Result};
use crate::memory::{Block, Buffer, Region};
use crate::sync::{Mutex, lock};

/// How many uses of the link are remembered for [`Emulated::link_log`].
pub const LINK_LOG_MAX: usize = 4096;

/// Device addresses start here: no process of any 64-bit platform this crate builds for can have
/// memory there, with five levels of page tables or an ignored top byte either.
const ADDRESS_BASE: u64 = 0x0F80_0000_0000_0000;

/// A modelled device; see the [module](self).
pub struct Emulated {
    spec: Spec,
    account: Arc<Account>,
    core: Arc<Core>,
    address_next: Mutex<u64>,
}

/// One use of the link, in model time: since the device was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkUse {
    /// Which way.
    pub direction: Direction,
    /// The stream it belongs to, by its number in order of creation.
    pub stream: u64,
    /// Bytes the link carried.
    pub bytes: u64,
    /// A copy, or a kernel's use of host memory in place.
    pub is_copy: bool,
    /// When.
    pub slot: Slot,
}

/// The device's part of a [`Stream`].
struct EmulatedStream {
    core: Arc<Core>,
    id: u64,
}

/// The device's part of an [`Event`].
struct Mark {
    core: Arc<Core>,
    ticket: Arc<Ticket>,
    clock: Clock,
}

impl Emulated {
    /// A device of this kind, idle and empty.
    pub fn new(spec: Spec) -> Result<Self> {
        spec.validate()?;
        let account = Account::new(spec.capacity_bytes);
        let core = Core::start(&spec, Arc::clone(&account))?;
        Ok(Self { spec, account, core, address_next: Mutex::new(ADDRESS_BASE) })
    }

    /// What the device is like.
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// The latest uses of the link, oldest first, at most [`LINK_LOG_MAX`]: the model's times,
    /// to stand beside a plan's.
    pub fn link_log(&self) -> Vec<LinkUse> {
        self.core.lock().log()
    }

    /// When the link will be free in this direction, as far as is known, in model time.
    pub fn link_free_at(&self, direction: Direction) -> Duration {
        self.core.lock().link_free_at(direction)
    }

    /// Makes the next copy in this direction fail, as a broken link would; for tests.
    pub fn fail_next_copy(&self, direction: Direction) {
        self.core.lock().fail_next(direction);
    }

    fn queue_of<'a>(&self, stream: &'a Stream) -> Result<&'a EmulatedStream> {
        stream
            .native::<EmulatedStream>()
            .filter(|queue| Arc::ptr_eq(&queue.core, &self.core))
            .ok_or_else(|| Error::invalid("the stream belongs to another device"))
    }

    /// An address range that was never used before.
    fn address(&self, len: usize) -> u64 {
        let mut next = lock(&self.address_next);
        let address = *next;
        let step = (len as u64).next_multiple_of(ALLOCATION_ALIGNMENT as u64);
        *next += step.max(ALLOCATION_ALIGNMENT as u64);
        address
    }

    fn copy(
        &self,
        stream: &Stream,
        direction: Direction,
        memory: &DeviceMemory,
        offset: usize,
        block: Block,
    ) -> Result<Transfer, Refused> {
        let id = match self.queue_of(stream) {
            Ok(queue) => queue.id,
            Err(error) => return Err(Refused { error, block }),
        };
        let (range, block) = backing::target(memory, &self.account, offset, block)?;
        if direction == Direction::Out && !block.is_writable() {
            return Err(backing::read_only(block));
        }
        let writes = direction == Direction::In;
        let access = Access { memory: memory.address(), range: range.clone(), writes };
        let now = self.core.now();
        let mut state = self.core.lock();
        if let Err(error) = state.admit(id, std::slice::from_ref(&access)) {
            drop(state);
            return Err(Refused { error, block });
        }
        let work = CopyWork { direction, block, memory: memory.clone(), range };
        let ticket = state.push(id, Work::Copy(work), vec![access], now);
        self.core.advance(state);
        Ok(Transfer::new(ticket))
    }

    fn submit(&self, stream: &Stream, work: Work, accesses: Vec<Access>) -> Result<Event> {
        let (id, now) = (self.queue_of(stream)?.id, self.core.now());
        let mut state = self.core.lock();
        state.admit(id, &accesses)?;
        let ticket = state.push(id, work, accesses, now);
        let clock = state.known(id);
        self.core.advance(state);
        Ok(self.event(ticket, clock))
    }

    fn event(&self, ticket: Arc<Ticket>, clock: Clock) -> Event {
        let core = Arc::clone(&self.core);
        Event::new(ticket.clone(), Arc::new(Mark { core, ticket, clock }))
    }
}

fn accesses(operands: &[Operand]) -> Vec<Access> {
    let access = |operand: &Operand| {
        let (range, writes) = (operand.range().clone(), operand.writes());
        Access { memory: operand.address(), range, writes }
    };
    operands.iter().map(access).collect()
}

impl Device for Emulated {
    fn facts(&self) -> Facts {
        Facts {
            name: format!("emulated:{}", self.spec),
            capacity_bytes: self.account.capacity(),
            used_bytes: self.account.used(),
            host_access: false,
            link: Some(LinkFacts {
                into: self.spec.speed(Direction::In),
                out: self.spec.speed(Direction::Out),
                direct_slowdown: self.spec.direct_slowdown,
            }),
            basis: "emulated: capacity and link time are modelled, not measured".to_owned(),
        }
    }

    fn allocate(&self, len: usize) -> Result<DeviceMemory> {
        let allocation = Allocation::new(&self.account, len)?;
        Ok(DeviceMemory::new(allocation, self.address(len), len))
    }

    fn allocate_host(&self, len: usize) -> Result<Block> {
        Ok(Buffer::zeroed(len)?.into())
    }

    fn map_host(&self, block: Block) -> Result<Mapped, Refused> {
        let (memory, core) = (self.address(block.len()), Arc::clone(&self.core));
        let watch = move |range, writes| core.enter(vec![Access { memory, range, writes }]);
        let (account, region) = (Arc::clone(&self.account), Region::new(block));
        Ok(Mapped::new(account, memory, region, Some(Box::new(watch))))
    }

    fn stream(&self) -> Result<Stream> {
        let id = self.core.lock().open_stream()?;
        Ok(Stream::new(Arc::new(EmulatedStream { core: Arc::clone(&self.core), id })))
    }

    fn copy_in(
        &self,
        stream: &Stream,
        from: Block,
        to: &DeviceMemory,
        offset: usize,
    ) -> Result<Transfer, Refused> {
        self.copy(stream, Direction::In, to, offset, from)
    }

    fn copy_out(
        &self,
        stream: &Stream,
        from: &DeviceMemory,
        offset: usize,
        to: Block,
    ) -> Result<Transfer, Refused> {
        self.copy(stream, Direction::Out, from, offset, to)
    }

    fn record(&self, stream: &Stream) -> Result<Event> {
        self.submit(stream, Work::Record, Vec::new())
    }

    fn wait_for(&self, stream: &Stream, event: &Event) -> Result<()> {
        let (id, now) = (self.queue_of(stream)?.id, self.core.now());
        let mark = event
            .native::<Mark>()
            .filter(|mark| Arc::ptr_eq(&mark.core, &self.core))
            .ok_or_else(|| Error::invalid("the event belongs to another device"))?;
        let mut state = self.core.lock();
        state.admit(id, &[])?;
        state.learn(id, &mark.clock);
        state.push(id, Work::Wait(Arc::clone(&mark.ticket)), Vec::new(), now);
        self.core.advance(state);
        Ok(())
    }

    fn synchronize(&self, stream: &Stream, limit: Duration) -> Result<()> {
        self.core.synchronize(self.queue_of(stream)?.id, limit)
    }

    fn host_view(&self, _: &DeviceMemory, _: Range<usize>) -> Result<View> {
        let message = "host code can't look at device memory; copy it out, or run a kernel";
        Err(Error::new(Kind::Unsupported, message))
    }

    fn kernels(&self) -> Option<&dyn Kernels> {
        Some(self)
    }
}

impl Kernels for Emulated {
    fn launch(&self, stream: &Stream, operands: Vec<Operand>, kernel: Kernel) -> Result<Event> {
        kernels::validate(&operands, &self.account)?;
        let direct = |direction| {
            let bytes = operands.iter().map(|operand| operand.direct_bytes(direction)).sum();
            link::direct_bytes(bytes, self.spec.direct_slowdown)
        };
        let (bytes_in, bytes_out) = (direct(Direction::In), direct(Direction::Out));
        let accesses = accesses(&operands);
        let work = Work::Kernel { kernel: Some(kernel), operands, bytes_in, bytes_out };
        self.submit(stream, work, accesses)
    }

    fn enter(&self, operands: Vec<Operand>) -> Result<Entered> {
        kernels::validate(&operands, &self.account)?;
        let presence = self.core.enter(accesses(&operands))?;
        Ok(Entered::new(kernels::views(operands, &self.account)?, Some(presence)))
    }

    fn pointer(&self, memory: &DeviceMemory) -> Result<DevicePointer> {
        DevicePointer::of(memory, &self.account)
    }

    fn direct_access(&self, stream: &Stream, direction: Direction, bytes: u64) -> Result<Event> {
        let bytes = link::direct_bytes(bytes, self.spec.direct_slowdown);
        self.submit(stream, Work::Direct { direction, bytes }, Vec::new())
    }

    fn direct_time(&self, direction: Direction, bytes: u64, compute: Duration) -> Duration {
        let speed = self.spec.speed(direction);
        link::direct_time(speed, bytes, self.spec.direct_slowdown, compute)
    }
}

impl fmt::Debug for Emulated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Emulated({})", self.spec)
    }
}

impl Drop for Emulated {
    fn drop(&mut self) {
        self.core.close();
    }
}

impl Drop for EmulatedStream {
    fn drop(&mut self) {
        let mut state = self.core.lock();
        state.leave_stream(self.id);
        self.core.advance(state);
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn the_threads_of_a_dropped_device_end_once_its_work_is_done() {
        let device = Emulated::new("capacity=1MiB,bandwidth=1GB/s".parse().unwrap()).unwrap();
        let (core, memory) = (Arc::downgrade(&device.core), device.allocate(1000).unwrap());
        let stream = device.stream().unwrap();
        let block = Block::from(Buffer::copy_of(&[7; 1000]).unwrap());
        let transfer = device.copy_in(&stream, block, &memory, 0).unwrap();
        drop((device, stream, memory));
        assert_eq!(&*transfer.finish(Duration::from_mins(1)).unwrap(), [7; 1000]);
        for _ in 0..60_000 {
            if core.strong_count() == 0 {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("a thread has not ended");
    }
}
