//! One block shared by many, each of whom borrows a range of it.
//!
//! A device works on several ranges of one allocation at once: a copy arrives in one, a kernel
//! computes on another. A region hands out [`Reading`] and [`Writing`] guards for ranges and keeps
//! the list of those alive. A range that is being written overlaps no other guard's range; ranges
//! that are only read may overlap. A request against that rule is an error, never a wait: whoever
//! makes it has a race in their schedule, and hiding it behind a lock would only hide the race.
//!
//! Each guard owns a share of the region, so it can move to another thread, and a region that is
//! owned alone has no guards.

use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::sync::Arc;

use super::block::{Block, Foreign};
use crate::error::{Error, Result};
use crate::size::Size;
use crate::sync::{Mutex, lock};

/// A block whose disjoint ranges can be written, and read, at the same time.
pub struct Region {
    start: NonNull<u8>,
    len: usize,
    writable: bool,
    /// One entry per guard alive. Equal entries are interchangeable: they can only be reads.
    borrows: Mutex<Vec<Borrow>>,
    /// Owns the memory at `start`; its bytes are reached through `start` only.
    block: Block,
}

#[derive(PartialEq, Eq)]
struct Borrow {
    range: Range<usize>,
    writes: bool,
}

// SAFETY: `start` points into `block`, which is `Send` and stays in place when it is moved. Bytes
// are reached through guards only, and `borrows` keeps written ranges from overlapping any other.
unsafe impl Send for Region {}
// SAFETY: as above; that rule does not depend on which thread holds a guard.
unsafe impl Sync for Region {}

impl Region {
    /// Shares `block`.
    pub fn new(mut block: Block) -> Self {
        let (len, writable) = (block.len(), block.is_writable());
        let start = match block.as_mut() {
            Some(bytes) => NonNull::from(bytes).cast(),
            None => NonNull::from(&*block).cast(),
        };
        Self { start, len, writable, borrows: Mutex::new(Vec::new()), block }
    }

    /// Borrows `range` for reading; an error while someone writes to a part of it.
    pub fn read(self: &Arc<Self>, range: Range<usize>) -> Result<Reading> {
        self.borrow(&range, false)?;
        Ok(Reading { region: Arc::clone(self), range })
    }

    /// Borrows `range` for writing; an error while someone uses a part of it, and for memory that
    /// is only read.
    pub fn write(self: &Arc<Self>, range: Range<usize>) -> Result<Writing> {
        if !self.writable {
            return Err(Error::invalid("the memory is read-only"));
        }
        self.borrow(&range, true)?;
        Ok(Writing { region: Arc::clone(self), range })
    }

    /// Bytes in the region.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether ranges can be borrowed for writing.
    pub fn is_writable(&self) -> bool {
        self.writable
    }

    /// Where the bytes are, as a number: for a driver, or to be shown.
    pub fn address(&self) -> u64 {
        self.start.as_ptr() as u64
    }

    /// The block again. To own the region is to know that no guard exists.
    pub fn into_block(self) -> Block {
        self.block
    }

    fn borrow(&self, range: &Range<usize>, writes: bool) -> Result<()> {
        if range.start > range.end || range.end > self.len {
            let len = self.len;
            return Err(Error::invalid(format!("{range:?} is not inside a region of {len} bytes")));
        }
        let mut borrows = lock(&self.borrows);
        let clash =
            borrows.iter().find(|other| (writes || other.writes) && overlap(&other.range, range));
        if let Some(Borrow { range: taken, writes: written }) = clash {
            let verb = if *written { "written" } else { "read" };
            return Err(Error::invalid(format!("{range:?} overlaps {taken:?}, being {verb} now")));
        }
        borrows.push(Borrow { range: range.clone(), writes });
        Ok(())
    }

    fn give_back(&self, range: &Range<usize>, writes: bool) {
        let mut borrows = lock(&self.borrows);
        let mine = |other: &Borrow| other.writes == writes && other.range == *range;
        if let Some(position) = borrows.iter().position(mine) {
            borrows.swap_remove(position);
        }
    }
}

/// Whether two ranges share a byte.
pub(crate) fn overlap(a: &Range<usize>, b: &Range<usize>) -> bool {
    a.start.max(b.start) < a.end.min(b.end)
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Region({})", Size(self.len as u64))
    }
}

/// A range of a [`Region`] that nobody writes to while this exists.
#[derive(Debug)]
pub struct Reading {
    region: Arc<Region>,
    range: Range<usize>,
}

/// A range of a [`Region`] that nobody else touches while this exists.
#[derive(Debug)]
pub struct Writing {
    region: Arc<Region>,
    range: Range<usize>,
}

impl Deref for Reading {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the range lies inside the block, which the region keeps alive, and no writer's
        // range overlaps it until this guard is dropped.
        unsafe { bytes_at(&self.region, &self.range).as_ref() }
    }
}

impl Deref for Writing {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: as for `Reading`; here no other guard overlaps at all.
        unsafe { bytes_at(&self.region, &self.range).as_ref() }
    }
}

impl DerefMut for Writing {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: the region is writable (checked by `write`), no other guard overlaps the range,
        // and `&mut self` excludes other references made from this guard.
        unsafe { bytes_at(&self.region, &self.range).as_mut() }
    }
}

fn bytes_at(region: &Region, range: &Range<usize>) -> NonNull<[u8]> {
    // SAFETY: `borrow` checked that the range lies inside the block.
    let start = unsafe { region.start.add(range.start) };
    NonNull::slice_from_raw_parts(start, range.len())
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.region.give_back(&self.range, false);
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        self.region.give_back(&self.range, true);
    }
}

/// A range as what an operation owns: it is borrowed until the operation is done.
impl From<Reading> for Foreign {
    fn from(guard: Reading) -> Self {
        let bytes = bytes_at(&guard.region, &guard.range);
        // SAFETY: the region keeps the bytes in place and alive, and lets nobody write to them
        // until the guard, which is kept, is dropped.
        unsafe { Self::shared(bytes.cast(), bytes.len(), Box::new(guard)) }
    }
}

/// As for [`Reading`], for operations that write.
impl From<Writing> for Foreign {
    fn from(guard: Writing) -> Self {
        let bytes = bytes_at(&guard.region, &guard.range);
        // SAFETY: as above; here nobody else touches them either.
        unsafe { Self::exclusive(bytes.cast(), bytes.len(), Box::new(guard)) }
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use crate::memory::{Buffer, Foreign};

    fn region(len: usize) -> Arc<Region> {
        Arc::new(Region::new(Buffer::zeroed(len).expect("memory").into()))
    }

    #[test]
    fn disjoint_ranges_are_written_and_read_at_the_same_time() {
        let region = region(100);
        let mut low = region.write(0..50).unwrap();
        let mut high = region.write(50..100).unwrap();
        low.fill(1);
        high.fill(2);
        drop((low, high));
        let all = region.read(0..100).unwrap();
        assert!(all[..50].iter().all(|byte| *byte == 1) && all[50..].iter().all(|byte| *byte == 2));
    }

    #[test]
    fn a_written_range_is_nobody_elses_until_its_guard_is_gone() {
        let region = region(100);
        let writing = region.write(10..20).unwrap();
        let error = region.read(0..11).unwrap_err();
        assert_eq!(error.to_string(), "0..11 overlaps 10..20, being written now");
        assert!(region.write(19..30).is_err());
        drop(writing);
        let twice = (region.read(0..100).unwrap(), region.read(0..100).unwrap());
        drop(twice.0);
        let error = region.write(99..100).unwrap_err();
        assert_eq!(error.to_string(), "99..100 overlaps 0..100, being read now");
        drop(twice.1);
        assert!(region.write(0..100).is_ok());
    }

    #[test]
    fn empty_ranges_overlap_nothing_and_ranges_outside_are_errors() {
        let region = region(10);
        let _all = region.write(0..10).unwrap();
        assert!(region.read(5..5).unwrap().is_empty());
        assert!(region.write(10..10).unwrap().is_empty());
        assert!(region.read(4..11).is_err());
        #[expect(clippy::reversed_empty_ranges)]
        let backwards = region.read(4..3);
        assert!(backwards.is_err());
    }

    #[test]
    fn read_only_memory_is_never_borrowed_for_writing() {
        let bytes: &'static [u8] = b"fixed";
        // SAFETY: static bytes are readable for ever and never written to.
        let foreign =
            unsafe { Foreign::shared(NonNull::from(bytes).cast(), bytes.len(), Box::new(())) };
        let region = Arc::new(Region::new(foreign.into()));
        assert_eq!(&*region.read(1..3).unwrap(), b"ix");
        assert!(!region.is_writable());
        assert_eq!(region.write(0..1).unwrap_err().to_string(), "the memory is read-only");
    }

    #[test]
    fn an_operation_that_owns_a_range_keeps_others_out_until_it_is_done() {
        let region = region(8);
        let mut block = Block::from(Foreign::from(region.write(2..6).unwrap()));
        block.as_mut().unwrap().fill(7);
        assert!(region.read(0..3).is_err() && region.read(0..2).is_ok());
        drop(block);
        let block = Block::from(Foreign::from(region.read(1..4).unwrap()));
        assert_eq!(&*block, [0, 7, 7]);
        assert!(!block.is_writable() && region.write(3..4).is_err());
        drop(block);
        assert!(region.write(0..8).is_ok());
    }

    #[test]
    fn the_block_comes_back_with_what_was_written() {
        let region = region(4);
        region.write(1..3).unwrap().fill(9);
        let block = Arc::into_inner(region).unwrap().into_block();
        assert_eq!(&*block, [0, 9, 9, 0]);
    }
}

#[cfg(test)]
#[cfg(loom)]
mod loom_tests {
    use super::*;
    use crate::memory::Buffer;

    #[test]
    fn loom_two_writers_never_hold_overlapping_ranges() {
        loom::model(|| {
            let region = Arc::new(Region::new(Buffer::zeroed(2).unwrap().into()));
            let other = Arc::clone(&region);
            let thread =
                loom::thread::spawn(move || other.write(0..2).map(|mut both| both[0] += 1).is_ok());
            let here = region.write(0..1).map(|mut one| one[0] += 1).is_ok();
            let there = thread.join().unwrap();
            assert!(here || there);
            assert_eq!(region.read(0..1).unwrap()[0], u8::from(here) + u8::from(there));
        });
    }
}
