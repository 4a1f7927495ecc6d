//! The trivial device: its memory is host memory, and everything is done before a call returns.
//!
//! Streams are always empty and events always over, so there is nothing to order. What is left of
//! the rules is checked all the same (ranges, handles of other devices, capacity, failures that
//! stay with a stream until it is synchronised), so that code which works here has no excuse there.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use super::backing::{self, Account, Allocation};
use super::handles::{DeviceMemory, Event, Mapped, Refused, Stream, Transfer};
use super::kernels::{self, DevicePointer, Entered, Kernel, Kernels, Operand, View};
use super::link::Direction;
use super::ticket::{Fault, Outcome, Ticket};
use super::{Device, Facts, STREAMS_MAX};
use crate::error::{Error, Kind, Result};
use crate::memory::{Block, Buffer, Region};
use crate::sync::{Mutex, lock};

/// The host as a device.
#[derive(Debug)]
pub struct Host {
    account: Arc<Account>,
    /// One share per stream that exists.
    streams: Arc<()>,
}

/// The device's part of a [`Stream`].
struct HostStream {
    account: Arc<Account>,
    /// The first failure since the last report; held while an operation is done.
    fault: Mutex<Option<Fault>>,
    _share: Arc<()>,
}

impl Host {
    /// A device with as much memory as the machine has.
    pub fn new() -> Self {
        let system = rustix::system::sysinfo();
        let capacity = (system.totalram as u64).saturating_mul(u64::from(system.mem_unit));
        Self::with_capacity(capacity)
    }

    /// A device on which at most `capacity` bytes can be allocated.
    pub fn with_capacity(capacity: u64) -> Self {
        Self { account: Account::new(capacity), streams: Arc::new(()) }
    }

    fn queue_of<'a>(&self, stream: &'a Stream) -> Result<&'a HostStream> {
        stream
            .native::<HostStream>()
            .filter(|queue| Arc::ptr_eq(&queue.account, &self.account))
            .ok_or_else(|| Error::invalid("the stream belongs to another device"))
    }
}

impl Default for Host {
    fn default() -> Self {
        Self::new()
    }
}

impl HostStream {
    /// Does `work`, unless the stream has failed; a failure stays with the stream. Threads that
    /// share the stream take turns: its operations never overlap.
    fn perform(&self, work: impl FnOnce() -> Result<()>) -> Outcome {
        let mut stream = lock(&self.fault);
        let fault = match &*stream {
            Some(earlier) => Some(earlier.inherited()),
            None => work().err().as_ref().map(Fault::of),
        };
        *stream = stream.take().or_else(|| fault.clone());
        Outcome { fault, at: Duration::ZERO }
    }

    fn event(&self, outcome: Outcome) -> Event {
        let ticket = Arc::new(Ticket::of(outcome, None));
        Event::new(ticket.clone(), Arc::new(Past { account: Arc::clone(&self.account), ticket }))
    }
}

/// The device's part of an [`Event`].
struct Past {
    account: Arc<Account>,
    ticket: Arc<Ticket>,
}

impl Device for Host {
    fn facts(&self) -> Facts {
        Facts {
            name: "host".to_owned(),
            capacity_bytes: self.account.capacity(),
            used_bytes: self.account.used(),
            host_access: true,
            link: None,
            basis: "memory of this machine".to_owned(),
        }
    }

    fn allocate(&self, len: usize) -> Result<DeviceMemory> {
        let allocation = Allocation::new(&self.account, len)?;
        let address = allocation.region.address();
        Ok(DeviceMemory::new(allocation, address, len))
    }

    fn allocate_host(&self, len: usize) -> Result<Block> {
        Ok(Buffer::zeroed(len)?.into())
    }

    fn map_host(&self, block: Block) -> Result<Mapped, Refused> {
        let region = Region::new(block);
        Ok(Mapped::new(Arc::clone(&self.account), region.address(), region, None))
    }

    fn stream(&self) -> Result<Stream> {
        if Arc::strong_count(&self.streams) > STREAMS_MAX {
            let message = format!("the device has {STREAMS_MAX} streams, and no more");
            return Err(Error::new(Kind::OutOfMemory, message));
        }
        let account = Arc::clone(&self.account);
        let (fault, share) = (Mutex::new(None), Arc::clone(&self.streams));
        Ok(Stream::new(Arc::new(HostStream { account, fault, _share: share })))
    }

    fn copy_in(
        &self,
        stream: &Stream,
        from: Block,
        to: &DeviceMemory,
        offset: usize,
    ) -> Result<Transfer, Refused> {
        let queue = match self.queue_of(stream) {
            Ok(queue) => queue,
            Err(error) => return Err(Refused { error, block: from }),
        };
        let (range, from) = backing::target(to, &self.account, offset, from)?;
        let outcome = queue.perform(|| {
            let allocation = Allocation::of(to, &self.account)?;
            allocation.region.write(range)?.copy_from_slice(&from);
            Ok(())
        });
        Ok(Transfer::new(Arc::new(Ticket::of(outcome, Some(from)))))
    }

    fn copy_out(
        &self,
        stream: &Stream,
        from: &DeviceMemory,
        offset: usize,
        to: Block,
    ) -> Result<Transfer, Refused> {
        let queue = match self.queue_of(stream) {
            Ok(queue) => queue,
            Err(error) => return Err(Refused { error, block: to }),
        };
        let (range, mut to) = backing::target(from, &self.account, offset, to)?;
        let outcome = match to.as_mut() {
            None => return Err(backing::read_only(to)),
            Some(bytes) => queue.perform(|| {
                let allocation = Allocation::of(from, &self.account)?;
                bytes.copy_from_slice(&allocation.region.read(range)?);
                Ok(())
            }),
        };
        Ok(Transfer::new(Arc::new(Ticket::of(outcome, Some(to)))))
    }

    fn record(&self, stream: &Stream) -> Result<Event> {
        let queue = self.queue_of(stream)?;
        Ok(queue.event(queue.perform(|| Ok(()))))
    }

    fn wait_for(&self, stream: &Stream, event: &Event) -> Result<()> {
        let queue = self.queue_of(stream)?;
        let past = event
            .native::<Past>()
            .filter(|past| Arc::ptr_eq(&past.account, &self.account))
            .ok_or_else(|| Error::invalid("the event belongs to another device"))?;
        if let Some(fault) = past.ticket.outcome().and_then(|outcome| outcome.fault) {
            lock(&queue.fault).get_or_insert_with(|| fault.inherited());
        }
        Ok(())
    }

    fn synchronize(&self, stream: &Stream, _limit: Duration) -> Result<()> {
        let fault = lock(&self.queue_of(stream)?.fault).take();
        fault.map_or(Ok(()), |fault| Err(fault.error()))
    }

    fn host_view(&self, memory: &DeviceMemory, range: Range<usize>) -> Result<View> {
        let mut entered = self.enter(vec![Operand::read(memory, range)])?;
        entered.views.pop().ok_or_else(|| Error::new(Kind::Internal, "an operand has no view"))
    }

    fn kernels(&self) -> Option<&dyn Kernels> {
        Some(self)
    }
}

impl Kernels for Host {
    fn launch(&self, stream: &Stream, operands: Vec<Operand>, kernel: Kernel) -> Result<Event> {
        let queue = self.queue_of(stream)?;
        kernels::validate(&operands, &self.account)?;
        let outcome = queue.perform(|| kernels::run(operands, kernel, &self.account));
        Ok(queue.event(outcome))
    }

    fn enter(&self, operands: Vec<Operand>) -> Result<Entered> {
        kernels::validate(&operands, &self.account)?;
        Ok(Entered::new(kernels::views(operands, &self.account)?, None))
    }

    fn pointer(&self, memory: &DeviceMemory) -> Result<DevicePointer> {
        DevicePointer::of(memory, &self.account)
    }

    fn direct_access(&self, stream: &Stream, _: Direction, _: u64) -> Result<Event> {
        self.record(stream)
    }

    fn direct_time(&self, _: Direction, _: u64, compute: Duration) -> Duration {
        compute
    }
}
