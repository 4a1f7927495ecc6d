//! One range of memory from which blocks are taken, and to which they return by being dropped.
//!
//! An [`Arena`] says where; this is the memory under it. Its pages exist from the first use on, and
//! stay when a block comes back, because the next block will want them: making pages is slower than
//! filling them. What lies in holes is *spare*: [`Hold::trim`] gives it back to the kernel, for an
//! owner who promised to stay within a budget and needs the bytes elsewhere.
//!
//! A block owns a share of the hold, so that the hold goes after the last of them.

use std::ops::Range;
use std::sync::Arc;

use rustix::mm::{Advice, madvise};

use super::arena::{Arena, End, Span};
use super::block::{Block, Foreign};
use super::buffer::{ALIGNMENT, Buffer};
use crate::error::Result;
use crate::size::Size;
use crate::sync::{Mutex, lock};

/// The unit in which use of pages is known: a huge page.
const GRANULE: usize = 2 << 20;

/// A range of memory that blocks are taken from; clones share it.
#[derive(Clone)]
pub struct Hold(Arc<Inner>);

struct Inner {
    memory: Buffer,
    state: Mutex<State>,
}

struct State {
    arena: Arena,
    /// Granules that may have pages.
    touched: Vec<bool>,
}

/// A place in the hold; free again when this is dropped.
struct Berth {
    hold: Hold,
    span: Span,
}

impl Hold {
    /// Room for `capacity` bytes, of which none is used yet.
    pub fn new(capacity: Size) -> Result<Self> {
        let arena = Arena::new(capacity, ALIGNMENT as u64)?;
        let len = arena.capacity() as usize;
        let state = State { arena, touched: vec![false; len.div_ceil(GRANULE)] };
        Ok(Self(Arc::new(Inner { memory: Buffer::zeroed(len)?, state: Mutex::new(state) })))
    }

    /// A block from one end. What it contains is whatever was there before.
    pub fn take(&self, bytes: usize, end: End) -> Result<Block> {
        let mut state = lock(&self.0.state);
        let span = state.arena.allocate(bytes as u64, end)?;
        let offset = span.offset() as usize;
        for granule in offset / GRANULE..(offset + bytes).div_ceil(GRANULE) {
            state.touched[granule] = true;
        }
        drop(state);
        // SAFETY: the arena gave out a span inside its capacity, which is the buffer's length.
        let start = unsafe { self.0.memory.start().add(offset) };
        let berth = Berth { hold: self.clone(), span };
        // SAFETY: initialised memory of the buffer, which the berth keeps alive. The arena gives
        // a span to nobody else before the berth, the keeper, is dropped.
        Ok(unsafe { Foreign::exclusive(start, bytes, Box::new(berth)) }.into())
    }

    /// Bytes in whole granules that have pages and hold no block.
    pub fn spare(&self) -> u64 {
        let state = lock(&self.0.state);
        let spare = state.spare_granules().count();
        (spare * GRANULE) as u64
    }

    /// Gives spare pages back to the kernel.
    pub fn trim(&self) {
        let mut state = lock(&self.0.state);
        let spare: Vec<usize> = state.spare_granules().collect();
        for granule in spare {
            let len = GRANULE.min(self.0.memory.len() - granule * GRANULE);
            // SAFETY: the granule lies inside the mapping.
            let start = unsafe { self.0.memory.start().add(granule * GRANULE) };
            // SAFETY: no block lies in the granule, and none can be taken while the lock is held;
            // it reads as zeros afterwards. Refused advice costs memory only, and is then tried
            // again.
            let given = unsafe { madvise(start.as_ptr().cast(), len, Advice::LinuxDontNeed) };
            state.touched[granule] = given.is_err();
        }
    }

    /// The blocks and holes in numbers.
    pub fn stats(&self) -> super::arena::Stats {
        lock(&self.0.state).arena.stats()
    }
}

impl State {
    fn spare_granules(&self) -> impl Iterator<Item = usize> {
        let capacity = self.arena.capacity();
        let inside = move |hole: Range<u64>| {
            let first = (hole.start as usize).div_ceil(GRANULE);
            let past = if hole.end == capacity {
                (hole.end as usize).div_ceil(GRANULE)
            } else {
                hole.end as usize / GRANULE
            };
            first..past
        };
        self.arena.holes().flat_map(inside).filter(|granule| self.touched[*granule])
    }
}

impl Drop for Berth {
    fn drop(&mut self) {
        let freed = lock(&self.hold.0.state).arena.free(self.span);
        debug_assert!(freed.is_ok(), "a berth is given back once");
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn blocks_are_apart_and_their_place_is_free_when_they_are_gone() {
        let hold = Hold::new(Size(8 << 20)).unwrap();
        let mut low = hold.take(3 * MIB, End::Low).unwrap();
        let mut high = hold.take(4 * MIB, End::High).unwrap();
        low.as_mut().unwrap().fill(1);
        high.as_mut().unwrap().fill(2);
        assert!(low.iter().all(|byte| *byte == 1));
        assert!(hold.take(2 * MIB, End::Low).is_err());
        drop(low);
        assert!(hold.take(2 * MIB, End::Low).is_ok());
        assert!(high.iter().all(|byte| *byte == 2));
        assert_eq!(hold.stats().used, 4 << 20);
    }

    #[test]
    fn pages_in_holes_are_spare_until_they_are_trimmed() {
        let hold = Hold::new(Size(8 << 20)).unwrap();
        assert_eq!(hold.spare(), 0);
        let mut block = hold.take(5 * MIB, End::Low).unwrap();
        block.as_mut().unwrap().fill(7);
        let small = hold.take(100, End::High).unwrap();
        assert_eq!(hold.spare(), 0);
        drop(block);
        assert_eq!(hold.spare(), 6 << 20, "the granule that it shared with nobody counts whole");
        hold.trim();
        assert_eq!(hold.spare(), 0);
        let again = hold.take(5 * MIB, End::Low).unwrap();
        assert!(again.iter().all(|byte| *byte == 0));
        drop((again, small));
        assert_eq!(hold.spare(), 8 << 20);
    }

    #[test]
    fn a_block_outlives_the_handle_of_its_hold() {
        let hold = Hold::new(Size(1 << 20)).unwrap();
        let mut block = hold.take(MIB, End::High).unwrap();
        drop(hold);
        block.as_mut().unwrap().fill(3);
        assert_eq!(block[MIB - 1], 3);
    }
}
