//! What an operation owns while the kernel or a device works on it.

use std::any::Any;
use std::fmt;
use std::ops::{Deref, Range};
use std::ptr::NonNull;

use super::buffer::Buffer;
use super::part::Part;
use super::pool::Lease;
use super::populate::complete;
use crate::error::{Error, Result};
use crate::size::Size;

/// Memory that stays where it is, and stays alive, as long as this value exists; possibly only a
/// part of it, see [`narrow`](Self::narrow).
#[derive(Debug)]
pub struct Block {
    owner: Owner,
    range: Range<usize>,
}

#[derive(Debug)]
enum Owner {
    Buffer(Buffer),
    Lease(Lease),
    Foreign(Foreign),
    Part(Part),
}

/// Memory of somebody else, kept alive by a value of theirs: a tensor, a mapped file.
pub struct Foreign {
    start: NonNull<u8>,
    len: usize,
    writable: bool,
    keeper: Box<dyn Any + Send>,
}

// SAFETY: the contract of the constructors makes the memory valid on every thread until the
// keeper, which is `Send`, is dropped.
unsafe impl Send for Foreign {}
// SAFETY: a shared reference gives out shared bytes only; the keeper can't be reached through it.
unsafe impl Sync for Foreign {}

impl Foreign {
    /// Bytes that are always there and never change.
    pub fn from_static(bytes: &'static [u8]) -> Self {
        // SAFETY: static bytes are readable from every thread for ever, and never written to.
        unsafe { Self::shared(NonNull::from(bytes).cast(), bytes.len(), Box::new(())) }
    }

    /// Memory that is only read.
    ///
    /// # Safety
    /// `start` is valid for reads of `len` initialised bytes, from any thread, until `keeper` is
    /// dropped, and nobody writes to them until then.
    pub unsafe fn shared(start: NonNull<u8>, len: usize, keeper: Box<dyn Any + Send>) -> Self {
        Self { start, len, writable: false, keeper }
    }

    /// Memory that is read and written.
    ///
    /// # Safety
    /// `start` is valid for reads and writes of `len` initialised bytes, from any thread, until
    /// `keeper` is dropped, and nobody else touches them until then.
    pub unsafe fn exclusive(start: NonNull<u8>, len: usize, keeper: Box<dyn Any + Send>) -> Self {
        Self { start, len, writable: true, keeper }
    }

    /// The same memory, which also keeps `keeper` for as long as it is in use, and lets go of it
    /// last.
    #[must_use]
    pub fn kept_by(mut self, keeper: Box<dyn Any + Send>) -> Self {
        // A tuple drops its fields in order.
        self.keeper = Box::new((self.keeper, keeper));
        self
    }

    /// Gives back what kept the memory alive.
    pub fn into_keeper(self) -> Box<dyn Any + Send> {
        self.keeper
    }
}

/// A buffer that is only read from now on.
impl From<Buffer> for Foreign {
    fn from(buffer: Buffer) -> Self {
        let (start, len) = (buffer.start(), buffer.len());
        // SAFETY: the buffer's bytes are initialised, stay in place when it is moved, and can't be
        // reached by anybody else.
        unsafe { Self::shared(start, len, Box::new(buffer)) }
    }
}

impl fmt::Debug for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Foreign({})", Size(self.len as u64))
    }
}

impl Block {
    /// The same block, reduced to `range` of its present bytes.
    pub fn narrow(mut self, range: Range<usize>) -> Result<Self> {
        if range.start > range.end || range.end > self.len() {
            let len = self.len();
            return Err(Error::invalid(format!("{range:?} is not inside a block of {len} bytes")));
        }
        let base = self.range.start;
        self.range = base + range.start..base + range.end;
        Ok(self)
    }

    /// The bytes, for writing; `None` for memory that is only read.
    pub fn as_mut(&mut self) -> Option<&mut [u8]> {
        let whole = match &mut self.owner {
            Owner::Buffer(buffer) => &mut **buffer,
            Owner::Lease(lease) => &mut **lease,
            Owner::Foreign(foreign) if foreign.writable => {
                // SAFETY: `Foreign::exclusive` promised it; `&mut self` excludes everybody else.
                unsafe { std::slice::from_raw_parts_mut(foreign.start.as_ptr(), foreign.len) }
            }
            Owner::Foreign(_) => return None,
            Owner::Part(part) => part.as_mut()?,
        };
        Some(&mut whole[self.range.clone()])
    }

    /// Makes the pages of memory that is about to be written, here and not in the middle of a
    /// transfer. The content stays.
    pub fn populate(&mut self) {
        let (start, len) = (self.start(), self.len());
        if !self.is_writable() {
            return;
        }
        // SAFETY: this block's own bytes, which may be written to; `&mut self` excludes others.
        let bytes = unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), len) };
        match self.buffer() {
            // SAFETY: they lie in that buffer.
            Some(buffer) => unsafe { buffer.populate(bytes) },
            None => complete(bytes),
        }
    }

    /// The buffer that the bytes lie in, if it is one of ours.
    pub(super) fn buffer(&self) -> Option<&Buffer> {
        match &self.owner {
            Owner::Buffer(buffer) => Some(buffer),
            Owner::Lease(lease) => Some(lease.buffer()),
            Owner::Foreign(_) => None,
            Owner::Part(part) => part.buffer(),
        }
    }

    /// Where the bytes start, without borrowing them.
    pub(super) fn start(&self) -> NonNull<u8> {
        let whole = match &self.owner {
            Owner::Buffer(buffer) => buffer.start(),
            Owner::Lease(lease) => lease.start(),
            Owner::Foreign(foreign) => foreign.start,
            Owner::Part(part) => part.start(),
        };
        // SAFETY: the range lies inside the owner's memory.
        unsafe { whole.add(self.range.start) }
    }

    /// How many bytes there are.
    ///
    /// This borrows no bytes, which parts of this block may be using.
    #[expect(clippy::len_without_is_empty, reason = "`is_empty` comes with the slice")]
    pub fn len(&self) -> usize {
        self.range.len()
    }

    /// Whether the memory may be written to.
    pub fn is_writable(&self) -> bool {
        match &self.owner {
            Owner::Buffer(_) | Owner::Lease(_) => true,
            Owner::Foreign(foreign) => foreign.writable,
            Owner::Part(part) => part.is_writable(),
        }
    }

    /// The buffer this block was made of, whole.
    pub fn into_buffer(self) -> Result<Buffer, Self> {
        match self.owner {
            Owner::Buffer(buffer) => Ok(buffer),
            owner => Err(Self { owner, ..self }),
        }
    }

    /// The lease this block was made of, whole.
    pub fn into_lease(self) -> Result<Lease, Self> {
        match self.owner {
            Owner::Lease(lease) => Ok(lease),
            owner => Err(Self { owner, ..self }),
        }
    }

    /// The foreign memory this block was made of, whole.
    pub fn into_foreign(self) -> Result<Foreign, Self> {
        match self.owner {
            Owner::Foreign(foreign) => Ok(foreign),
            owner => Err(Self { owner, ..self }),
        }
    }
}

impl From<Buffer> for Block {
    fn from(buffer: Buffer) -> Self {
        Self { range: 0..buffer.len(), owner: Owner::Buffer(buffer) }
    }
}

impl From<Lease> for Block {
    fn from(lease: Lease) -> Self {
        Self { range: 0..lease.len(), owner: Owner::Lease(lease) }
    }
}

impl From<Foreign> for Block {
    fn from(foreign: Foreign) -> Self {
        Self { range: 0..foreign.len, owner: Owner::Foreign(foreign) }
    }
}

/// A part of another block, as a block of its own: what several operations on one allocation use.
impl From<Part> for Block {
    fn from(part: Part) -> Self {
        Self { range: 0..part.len(), owner: Owner::Part(part) }
    }
}

impl Deref for Block {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let whole = match &self.owner {
            Owner::Buffer(buffer) => &**buffer,
            Owner::Lease(lease) => &**lease,
            // SAFETY: the constructors' contract: readable, initialised, and not written to by
            // anybody while `self` exists.
            Owner::Foreign(foreign) => unsafe {
                std::slice::from_raw_parts(foreign.start.as_ptr(), foreign.len)
            },
            Owner::Part(part) => &**part,
        };
        &whole[self.range.clone()]
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use crate::memory::{Parts, Pool};

    #[test]
    fn a_narrowed_block_shows_only_its_part_and_gives_the_whole_back() {
        let block = Block::from(Buffer::copy_of(b"0123456789").unwrap());
        let block = block.narrow(2..8).unwrap().narrow(1..3).unwrap();
        assert_eq!(&*block, b"34");
        assert_eq!(&*block.into_buffer().unwrap(), b"0123456789");
    }

    #[test]
    fn a_range_outside_a_block_is_an_error() {
        let block = Block::from(Buffer::zeroed(10).unwrap());
        let error = block.narrow(4..11).unwrap_err();
        assert_eq!(error.to_string(), "4..11 is not inside a block of 10 bytes");
        #[expect(clippy::reversed_empty_ranges)]
        let backwards = Block::from(Foreign::from_static(b"abc")).narrow(2..1);
        assert!(backwards.is_err());
    }

    #[test]
    fn read_only_memory_is_never_handed_out_for_writing() {
        let mut block = Block::from(Foreign::from_static(b"fixed"));
        assert!(!block.is_writable() && block.as_mut().is_none());
        assert!(block.into_foreign().unwrap().into_keeper().is::<()>());
    }

    #[test]
    fn parts_of_a_block_are_blocks_and_leave_the_whole_when_they_are_gone() {
        let mut parts = Parts::new(Buffer::zeroed(6).unwrap().into());
        let (mut front, mut back) = (Block::from(parts.cut(2)), Block::from(parts.cut(4)));
        front.as_mut().unwrap().fill(b'a');
        back = back.narrow(1..4).unwrap();
        back.as_mut().unwrap().fill(b'b');
        drop((front, back));
        assert_eq!(&*parts.join().unwrap(), b"aa\0bbb");
        let fixed = Parts::new(Foreign::from_static(b"fixed").into()).cut(3);
        assert!(!Block::from(fixed).is_writable());
    }

    #[test]
    fn a_block_gives_back_only_what_it_was_made_of() {
        let pool = Pool::new(1, 1).unwrap();
        let block = Block::from(pool.take().unwrap()).into_buffer().unwrap_err();
        assert_eq!(pool.free(), 0);
        drop(block.into_lease().unwrap());
        assert_eq!(pool.free(), 1);
    }
}
