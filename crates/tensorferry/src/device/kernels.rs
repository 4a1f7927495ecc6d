//! How a computation reaches device memory, on devices without real kernels.
//!
//! Host code can't touch device memory. A *kernel* can, and on `host` and `emulated` a kernel is
//! a host function, so there must be a way in that says "this runs on the device": an operation
//! names its operands first, and gets views of exactly those. There are two such ways:
//!
//! - [`Kernels::launch`] puts a function in line on a stream, as a real launch does;
//! - [`Kernels::enter`] makes the calling thread the kernel, from now until the [`Entered`] is
//!   dropped: for computations that can't be put into a function, such as a PyTorch module.
//!
//! Both refuse operands, on the device or mapped, whose bytes are not known to have arrived: those
//! that an operation writes which has not ended and is not ordered before.

use std::fmt;
use std::ops::{Deref, Range};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use super::backing::{Account, Allocation};
use super::handles::{DeviceMemory, Event, Mapped, Presence, Stream};
use super::link::Direction;
use crate::error::{Error, Kind, Result};
use crate::memory::{Reading, Region, Writing, overlap};

/// A function run as a kernel: it sees its operands in the order in which they were named. It must
/// not call the device it runs on, which may wait for its end.
pub type Kernel = Box<dyn FnOnce(&mut [View]) -> Result<()> + Send>;

/// Devices whose kernels are host functions.
pub trait Kernels: Send + Sync {
    /// Runs `kernel` on the device, in its turn on `stream`. Operands in host memory are used over
    /// the link, in place: their bytes cross it while the kernel computes, what is read inwards and
    /// what is written outwards. The event is done when the kernel is and all bytes have crossed;
    /// until then the operands are in use.
    fn launch(&self, stream: &Stream, operands: Vec<Operand>, kernel: Kernel) -> Result<Event>;

    /// Views of the operands for the calling thread, now: an error while an operation in flight
    /// may still change them or depend on them. Costs no time on the link, see
    /// [`direct_access`](Self::direct_access).
    fn enter(&self, operands: Vec<Operand>) -> Result<Entered>;

    /// Where device memory lies for kernels. Costs nothing, and says nothing of what is there: for that,
    /// [`enter`](Self::enter).
    fn pointer(&self, memory: &DeviceMemory) -> Result<DevicePointer>;

    /// The former name of [`pointer`](Self::pointer).
    fn sight(&self, memory: &DeviceMemory) -> Result<DevicePointer> {
        self.pointer(memory)
    }

    /// Occupies the link, in its turn on `stream`, as a kernel does that uses `bytes` of mapped
    /// host memory in place.
    fn direct_access(&self, stream: &Stream, direction: Direction, bytes: u64) -> Result<Event>;

    /// How long a kernel that computes for `compute` takes with its `bytes` on the host, in
    /// `direction`, if nothing else uses the device. One that both reads and writes there takes
    /// the longer of its two times.
    fn direct_time(&self, direction: Direction, bytes: u64, compute: Duration) -> Duration;
}

/// The address of a range of device memory, for kernels. A kernel's own views may outlive the memory, as a
/// tensor of PyTorch's does that somebody kept: as long as one holds this, the bytes are there, though
/// they count no more.
#[derive(Debug, Clone)]
pub struct DevicePointer {
    region: Arc<Region>,
    range: Range<usize>,
}

impl DevicePointer {
    pub(super) fn of(memory: &DeviceMemory, account: &Arc<Account>) -> Result<Self> {
        let region = Arc::clone(&Allocation::of(memory, account)?.region);
        Ok(Self { range: 0..region.len(), region })
    }

    /// A part of it.
    pub fn part(&self, range: Range<usize>) -> Result<Self> {
        if range.start > range.end || range.end > self.len() {
            return Err(Error::invalid(format!("{range:?} is no part of {} bytes", self.len())));
        }
        let start = self.range.start;
        let range = start + range.start..start + range.end;
        Ok(Self { region: Arc::clone(&self.region), range })
    }

    /// As a number.
    pub fn address(&self) -> usize {
        self.region.address() as usize + self.range.start
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.range.len()
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }
}

/// A range that a kernel uses, and how.
#[derive(Debug, Clone)]
pub struct Operand {
    memory: OperandMemory,
    range: Range<usize>,
    writes: bool,
}

/// What an operand lies in.
#[derive(Debug, Clone)]
enum OperandMemory {
    Device(DeviceMemory),
    Host(Mapped),
}

impl Operand {
    /// Device memory that is read.
    pub fn read(memory: &DeviceMemory, range: Range<usize>) -> Self {
        Self { memory: OperandMemory::Device(memory.clone()), range, writes: false }
    }

    /// Device memory that is read and written.
    pub fn write(memory: &DeviceMemory, range: Range<usize>) -> Self {
        Self { memory: OperandMemory::Device(memory.clone()), range, writes: true }
    }

    /// Host memory that is read in place.
    pub fn read_mapped(mapped: &Mapped, range: Range<usize>) -> Self {
        Self { memory: OperandMemory::Host(mapped.clone()), range, writes: false }
    }

    /// Host memory that is written in place.
    pub fn write_mapped(mapped: &Mapped, range: Range<usize>) -> Self {
        Self { memory: OperandMemory::Host(mapped.clone()), range, writes: true }
    }

    pub(super) fn range(&self) -> &Range<usize> {
        &self.range
    }

    pub(super) fn writes(&self) -> bool {
        self.writes
    }

    /// The bytes that cross the link in `direction` when this is used in place.
    pub(super) fn direct_bytes(&self, direction: Direction) -> u64 {
        let crosses = matches!(&self.memory, OperandMemory::Host(_))
            && self.writes == (direction == Direction::Out);
        if crosses { self.range.len() as u64 } else { 0 }
    }

    /// Where the allocation or mapping it lies in starts, for the device.
    pub(super) fn address(&self) -> u64 {
        match &self.memory {
            OperandMemory::Device(memory) => memory.address(),
            OperandMemory::Host(mapped) => mapped.address(),
        }
    }

    fn validate(&self, account: &Arc<Account>) -> Result<()> {
        let region = self.region(account)?;
        let (Range { start, end }, len) = (self.range.clone(), region.len());
        if start > end || end > len {
            let range = &self.range;
            return Err(Error::invalid(format!("operand {range:?} is not inside {len} bytes")));
        }
        if self.writes && !region.is_writable() {
            return Err(Error::invalid("an operand that is written lies in read-only memory"));
        }
        Ok(())
    }

    fn view(self, account: &Arc<Account>) -> Result<View> {
        let (region, range) = (self.region(account)?, self.range.clone());
        let bytes = if self.writes {
            Bytes::Writing(region.write(range)?)
        } else {
            Bytes::Reading(region.read(range)?)
        };
        Ok(View { bytes, _operand: self })
    }

    fn region(&self, account: &Arc<Account>) -> Result<&Arc<Region>> {
        match &self.memory {
            OperandMemory::Device(memory) => Ok(&Allocation::of(memory, account)?.region),
            OperandMemory::Host(mapped) => {
                let ours = |other: &&Arc<Account>| Arc::ptr_eq(other, account);
                mapped
                    .native::<Arc<Account>>()
                    .filter(ours)
                    .map(|_| mapped.region())
                    .ok_or_else(|| Error::invalid("the memory is mapped for another device"))
            }
        }
    }
}

/// An error unless every operand is inside memory of this device and none overlaps one that is
/// written.
pub(super) fn validate(operands: &[Operand], account: &Arc<Account>) -> Result<()> {
    for (position, operand) in operands.iter().enumerate() {
        operand.validate(account)?;
        let clash = operands[..position].iter().find(|other| {
            (other.writes || operand.writes)
                && other.address() == operand.address()
                && overlap(&other.range, &operand.range)
        });
        if let Some(other) = clash {
            let (a, b) = (&other.range, &operand.range);
            return Err(Error::invalid(format!(
                "operands {a:?} and {b:?} of the same memory overlap, and one is written"
            )));
        }
    }
    Ok(())
}

pub(super) fn views(operands: Vec<Operand>, account: &Arc<Account>) -> Result<Vec<View>> {
    operands.into_iter().map(|operand| operand.view(account)).collect()
}

/// Runs `kernel` on its operands; a panic in it is an error.
pub(super) fn run(operands: Vec<Operand>, kernel: Kernel, account: &Arc<Account>) -> Result<()> {
    let mut views = views(operands, account)?;
    // What a panicking kernel leaves half done are bytes of its operands and its own captures;
    // the stream fails, so nothing in line behind it reads them.
    catch_unwind(AssertUnwindSafe(|| kernel(&mut views)))
        .unwrap_or_else(|_| Err(Error::new(Kind::Internal, "a kernel panicked")))
}

/// The bytes of an operand, borrowed.
#[derive(Debug)]
pub struct View {
    bytes: Bytes,
    /// After `bytes`: memory counts as used while anybody looks at it.
    _operand: Operand,
}

#[derive(Debug)]
enum Bytes {
    Reading(Reading),
    Writing(Writing),
}

impl View {
    /// The bytes, for writing; `None` for an operand that is only read.
    pub fn as_mut(&mut self) -> Option<&mut [u8]> {
        match &mut self.bytes {
            Bytes::Reading(_) => None,
            Bytes::Writing(bytes) => Some(bytes),
        }
    }
}

impl Deref for View {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Reading(bytes) => bytes,
            Bytes::Writing(bytes) => bytes,
        }
    }
}

/// The calling thread as a kernel: its operands, in the order in which they were named.
pub struct Entered {
    /// The operands.
    pub views: Vec<View>,
    /// After `views`: other operations may follow once the bytes are given back.
    _presence: Option<Presence>,
}

impl Entered {
    /// For devices: `presence` is dropped when the kernel is over.
    pub(super) fn new(views: Vec<View>, presence: Option<Presence>) -> Self {
        Self { views, _presence: presence }
    }
}

impl fmt::Debug for Entered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Entered").field(&self.views).finish()
    }
}
