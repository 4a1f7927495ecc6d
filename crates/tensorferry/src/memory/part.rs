//! A block cut into disjoint parts, each workable on its own thread or by the kernel.
//!
//! An engine moves a large block in pieces that are in flight at the same time. [`Parts`] cuts
//! them off from the front, one after the other, so that no two overlap; each [`Part`] keeps the
//! whole block alive. When the last part is gone, the block can be had back.

use std::fmt;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;

use super::block::Block;
use super::buffer::Buffer;

/// Cuts a block into parts, front to back.
#[derive(Debug)]
pub struct Parts {
    block: Arc<Block>,
    cut: usize,
}

impl Parts {
    /// Takes a block to cut.
    pub fn new(block: Block) -> Self {
        Self { block: Arc::new(block), cut: 0 }
    }

    /// Bytes not cut off yet.
    pub fn remaining(&self) -> usize {
        self.block.len() - self.cut
    }

    /// The address of the next part.
    pub fn address(&self) -> usize {
        self.block.start().as_ptr() as usize + self.cut
    }

    /// Cuts the next `len` bytes off, or all that remain.
    pub fn cut(&mut self, len: usize) -> Part {
        let len = len.min(self.remaining());
        // SAFETY: `cut + len` is at most the block's length, so the address is inside the block or
        // just behind its last byte.
        let start = unsafe { self.block.start().add(self.cut) };
        self.cut += len;
        Part { block: Arc::clone(&self.block), start, len }
    }

    /// The whole block again, once no part is left; otherwise `self`.
    pub fn join(self) -> Result<Block, Self> {
        Arc::try_unwrap(self.block).map_err(|block| Self { block, cut: self.cut })
    }
}

/// A piece of a [`Block`] that nobody else can reach.
pub struct Part {
    block: Arc<Block>,
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: a part has its bytes to itself (parts never overlap, and the block is only reachable
// again when no part is left); `Block` is `Send` and `Sync`.
unsafe impl Send for Part {}
// SAFETY: as above; a shared reference only reads.
unsafe impl Sync for Part {}

impl Part {
    /// Splits off the first `len` bytes, or all of them.
    #[must_use]
    pub fn split_to(&mut self, len: usize) -> Self {
        let len = len.min(self.len);
        let front = Self { block: Arc::clone(&self.block), start: self.start, len };
        // SAFETY: `len` is at most the part's own length.
        self.start = unsafe { self.start.add(len) };
        self.len -= len;
        front
    }

    /// Whether the memory may be written to.
    pub fn is_writable(&self) -> bool {
        self.block.is_writable()
    }

    /// The bytes, for writing; `None` when the block's memory is only read.
    pub fn as_mut(&mut self) -> Option<&mut [u8]> {
        if !self.block.is_writable() {
            return None;
        }
        // SAFETY: the range lies inside the block, whose memory is writable and alive, and no
        // other part overlaps it; `&mut self` excludes other users of this part.
        Some(unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) })
    }

    /// The buffer that the bytes lie in, if it is one of ours.
    pub(super) fn buffer(&self) -> Option<&Buffer> {
        self.block.buffer()
    }

    /// Where the bytes start; valid for as long as this part exists.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }
}

impl Deref for Part {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: as in `as_mut`, for reading.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl fmt::Debug for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Part({} bytes of {:?})", self.len, self.block)
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use crate::memory::Buffer;

    #[test]
    fn parts_are_disjoint_and_join_only_when_all_are_gone() {
        let mut parts = Parts::new(Buffer::zeroed(10).unwrap().into());
        let (mut first, mut second) = (parts.cut(4), parts.cut(100));
        assert_eq!((first.len(), second.len(), parts.remaining()), (4, 6, 0));
        std::thread::scope(|scope| {
            scope.spawn(|| first.as_mut().unwrap().fill(1));
            scope.spawn(|| second.as_mut().unwrap().fill(2));
        });
        drop(first);
        let parts = parts.join().unwrap_err();
        drop(second);
        assert_eq!(&*parts.join().unwrap(), [1, 1, 1, 1, 2, 2, 2, 2, 2, 2]);
    }

    #[test]
    fn a_split_part_stays_disjoint() {
        let mut parts = Parts::new(Buffer::copy_of(b"abcdef").unwrap().into());
        let mut back = parts.cut(6);
        let front = back.split_to(2);
        assert_eq!((&*front, &*back), (&b"ab"[..], &b"cdef"[..]));
        assert_eq!(back.split_to(99).len(), 4);
        assert!(back.is_empty());
    }
}
