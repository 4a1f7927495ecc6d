//! What callers hold: opaque values that any device can make.
//!
//! Each handle carries what every device has (a length, an address, a completion) and, behind
//! [`Any`], what only its device understands: a pointer of a driver, a place in a queue. Dropping
//! the last clone drops that part, which gives the resource back.

use std::any::Any;
use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::{Error, Kind, Result};
use crate::memory::{Block, Foreign, Reading, Region, Writing};
use crate::size::Size;

type Native = Arc<dyn Any + Send + Sync>;

/// An allocation on a device; clones share it, and the last one to go frees it.
#[derive(Clone)]
pub struct DeviceMemory {
    native: Native,
    address: u64,
    len: usize,
}

impl DeviceMemory {
    /// For devices: an allocation that is freed by dropping `native`.
    pub fn new<T: Any + Send + Sync>(native: Arc<T>, address: u64, len: usize) -> Self {
        Self { native, address, len }
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Where the bytes are *on the device*: to be compared, shown or passed to a kernel, and never
    /// to be followed by host code.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// For devices: what `new` was given, if it was of this type.
    pub fn native<T: Any + Send + Sync>(&self) -> Option<&T> {
        self.native.downcast_ref()
    }

    /// `offset..offset + len`; an error unless it lies inside.
    pub fn range(&self, offset: usize, len: usize) -> Result<Range<usize>> {
        let end = offset.checked_add(len).filter(|end| *end <= self.len);
        end.map(|end| offset..end).ok_or_else(|| {
            Error::invalid(format!(
                "{len} bytes at offset {offset} are not inside {} bytes of device memory",
                self.len
            ))
        })
    }
}

impl fmt::Debug for DeviceMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Memory({} at {:#x})", Size(self.len as u64), self.address)
    }
}

/// A queue of work that a device does in order; clones share it. Work in line when the last clone
/// goes is still done.
#[derive(Clone)]
pub struct Stream(Native);

impl Stream {
    /// For devices: a queue that is closed by dropping `native`.
    pub fn new<T: Any + Send + Sync>(native: Arc<T>) -> Self {
        Self(native)
    }

    /// For devices: what `new` was given, if it was of this type.
    pub fn native<T: Any + Send + Sync>(&self) -> Option<&T> {
        self.0.downcast_ref()
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stream({:p})", Arc::as_ptr(&self.0))
    }
}

/// For devices: how the end of an operation is seen.
pub trait Completion: Send + Sync {
    /// How the operation ended; `None` while it has not.
    fn poll(&self) -> Option<Result<()>>;

    /// The same after waiting, at most until `deadline`.
    fn wait_until(&self, deadline: Option<Instant>) -> Option<Result<()>>;

    /// The operation's block, once, when it has ended and had one.
    fn take_block(&self) -> Option<Block>;
}

fn wait_within(completion: &dyn Completion, what: &str, limit: Duration) -> Result<()> {
    completion.wait_until(Instant::now().checked_add(limit)).unwrap_or_else(|| {
        Err(Error::new(Kind::Timeout, format!("{what} was not done within {limit:?}")))
    })
}

/// A point in a stream; clones are the same point.
#[derive(Clone)]
pub struct Event {
    completion: Arc<dyn Completion>,
    native: Native,
}

impl Event {
    /// For devices: an event that is over when `completion` is.
    pub fn new<T: Any + Send + Sync>(completion: Arc<dyn Completion>, native: Arc<T>) -> Self {
        Self { completion, native }
    }

    /// Whether the stream has passed this point, well or not.
    pub fn is_done(&self) -> bool {
        self.completion.poll().is_some()
    }

    /// Waits until the stream has passed this point; [`Kind::Timeout`] after `limit`, and an error
    /// if something before this point failed.
    pub fn wait_within(&self, limit: Duration) -> Result<()> {
        wait_within(&*self.completion, "the event", limit)
    }

    /// For devices: what `new` was given, if it was of this type.
    pub fn native<T: Any + Send + Sync>(&self) -> Option<&T> {
        self.native.downcast_ref()
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Event({})", if self.is_done() { "done" } else { "pending" })
    }
}

/// A copy under way. Dropping it lets the copy finish unobserved.
pub struct Transfer {
    completion: Arc<dyn Completion>,
}

impl Transfer {
    /// For devices: a copy that is over when `completion` is.
    pub fn new(completion: Arc<dyn Completion>) -> Self {
        Self { completion }
    }

    /// Whether the copy is over, well or not.
    pub fn is_done(&self) -> bool {
        self.completion.poll().is_some()
    }

    /// Waits until the copy is over; [`Kind::Timeout`] after `limit`, and an error if it failed.
    pub fn wait_within(&self, limit: Duration) -> Result<()> {
        wait_within(&*self.completion, "the copy", limit)
    }

    /// The block of a copy that is over, well or not; the transfer itself while it is under way.
    pub fn into_block(self) -> Result<Block, Self> {
        if !self.is_done() {
            return Err(self);
        }
        self.completion.take_block().ok_or(self)
    }

    /// Waits for the copy and gives back its block. After an error the block goes to its owner;
    /// use [`wait_within`](Self::wait_within) and [`into_block`](Self::into_block) to keep it.
    pub fn finish(self, limit: Duration) -> Result<Block> {
        self.wait_within(limit)?;
        self.into_block()
            .map_err(|_| Error::new(Kind::Internal, "a finished copy has lost its block"))
    }
}

impl fmt::Debug for Transfer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Transfer({})", if self.is_done() { "done" } else { "pending" })
    }
}

/// Host memory that a device uses in place; clones share it.
#[derive(Clone)]
pub struct Mapped(Arc<Mapping>);

struct Mapping {
    /// Before `region`: the device lets go of the memory before it can be freed.
    registration: Box<dyn Any + Send + Sync>,
    address: u64,
    region: Arc<Region>,
    watch: Option<Watch>,
}

/// For devices that know what their kernels use: notes that host code uses a range, for writing or
/// not, until the answer is dropped; an error if that races with a kernel.
pub type Watch = Box<dyn Fn(Range<usize>, bool) -> Result<Presence> + Send + Sync>;

/// A use of memory that is over when this is dropped.
pub type Presence = Box<dyn Any + Send>;

impl Mapped {
    /// For devices: `region`, at `address` for the device until `registration` is dropped.
    pub fn new<T: Any + Send + Sync>(
        registration: T,
        address: u64,
        region: Region,
        watch: Option<Watch>,
    ) -> Self {
        let (registration, region) = (Box::new(registration), Arc::new(region));
        Self(Arc::new(Mapping { registration, address, region, watch }))
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.0.region.len()
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.0.region.is_empty()
    }

    /// Where the device sees the memory.
    pub fn address(&self) -> u64 {
        self.0.address
    }

    /// Borrows a range for host code to read; an error while a kernel may write to it, which on
    /// [`Emulated`](super::Emulated) is from its launch until its event is done. A device whose
    /// kernels are launched by others can't know: there, wait for the event first.
    pub fn read(&self, range: Range<usize>) -> Result<Held<Reading>> {
        let presence = self.watch(&range, false)?;
        Ok(Held { guard: self.0.region.read(range)?, _presence: presence })
    }

    /// Borrows a range for host code to write; an error while a kernel may use it, as for
    /// [`read`](Self::read).
    pub fn write(&self, range: Range<usize>) -> Result<Held<Writing>> {
        let presence = self.watch(&range, true)?;
        Ok(Held { guard: self.0.region.write(range)?, _presence: presence })
    }

    /// A range as the source of a copy, borrowed as by [`read`](Self::read) until the copy is done.
    pub fn lend(&self, range: Range<usize>) -> Result<Block> {
        let presence = self.watch(&range, false)?;
        let guard = Foreign::from(self.0.region.read(range)?);
        Ok(guard.kept_by(Box::new(presence)).into())
    }

    /// A range as the target of a copy, borrowed as by [`write`](Self::write) until then.
    pub fn lend_for_writing(&self, range: Range<usize>) -> Result<Block> {
        let presence = self.watch(&range, true)?;
        let guard = Foreign::from(self.0.region.write(range)?);
        Ok(guard.kept_by(Box::new(presence)).into())
    }

    /// Where host code sees the memory, as a number: for those who promise to touch it only while
    /// no kernel and no copy is against it.
    pub fn host_address(&self) -> usize {
        self.0.region.address() as usize
    }

    fn watch(&self, range: &Range<usize>, writes: bool) -> Result<Option<Presence>> {
        self.0.watch.as_ref().map(|watch| watch(range.clone(), writes)).transpose()
    }

    /// Ends the mapping and gives the block back, unless someone still uses it.
    pub fn unmap(self) -> Result<Block, Self> {
        let Mapping { registration, address, region, watch } =
            Arc::try_unwrap(self.0).map_err(Self)?;
        match Arc::try_unwrap(region) {
            Ok(region) => {
                drop(registration);
                Ok(region.into_block())
            }
            // A guard is left.
            Err(region) => Err(Self(Arc::new(Mapping { registration, address, region, watch }))),
        }
    }

    /// For devices: the registration `new` was given, if it was of this type.
    pub fn native<T: Any + Send + Sync>(&self) -> Option<&T> {
        self.0.registration.downcast_ref()
    }

    pub(super) fn region(&self) -> &Arc<Region> {
        &self.0.region
    }
}

impl fmt::Debug for Mapped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mapped({} at {:#x})", Size(self.len() as u64), self.0.address)
    }
}

/// A range of [`Mapped`] memory that host code holds; the device knows that it does.
pub struct Held<T> {
    guard: T,
    /// After `guard`: kernels may follow once the bytes are given back.
    _presence: Option<Presence>,
}

impl<T: Deref<Target = [u8]>> Deref for Held<T> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.guard
    }
}

impl<T: DerefMut<Target = [u8]>> DerefMut for Held<T> {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.guard
    }
}

impl<T: fmt::Debug> fmt::Debug for Held<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Held").field(&self.guard).finish()
    }
}

/// A call that was refused, and the block it was given.
#[derive(Debug)]
pub struct Refused {
    /// Why.
    pub error: Error,
    /// What the caller handed in, untouched.
    pub block: Block,
}

impl From<Refused> for Error {
    /// Forgets the block, which goes to its owner.
    fn from(refused: Refused) -> Self {
        refused.error
    }
}
