//! An arena: blocks of one fixed range of offsets, such as a file's, placed so that it stays short.
//!
//! ```text
//!   0                                                               capacity
//!   | block | block | hole | block |          never taken            |
//! ```
//!
//! **Placement.** A block takes the lowest hole in which it fits, at the hole's low edge. By address, so that
//! what lives for long gathers at the front, and what lies behind is not touched: a file grows no further
//! than it must. The scan visits at most one hole more than there are live blocks.
//!
//! **Ownership.** An arena owns no memory and touches none: it hands out [`Span`]s of offsets, and
//! so serves files as well as memory. A span is a plain value. Every allocation has a
//! serial number that is never used twice, so a span that is freed twice, also after its place was
//! given to another, or that belongs to another arena, is an error. An arena has no lock: its
//! owner is one thread, or guards it.
//!
//! **Bounds.** Bookkeeping is one entry for each live block and each hole, so at most
//! `2 * capacity / alignment + 1` entries. Holes never touch: freed neighbours become one.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

use crate::error::{Error, Kind, Result};
use crate::size::Size;

/// One fixed range of offsets, handed out in blocks; see the [module](self).
#[derive(Debug)]
pub struct Arena {
    id: u64,
    capacity: u64,
    alignment: u64,
    used: u64,
    peak: u64,
    next_serial: u64,
    /// Length of each hole by its offset.
    holes: BTreeMap<u64, u64>,
    live: BTreeMap<u64, Block>,
}

/// A block of an [`Arena`]: `len` bytes from `offset`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Span {
    offset: u64,
    len: u64,
    serial: u64,
    arena: u64,
}

/// An arena's state in numbers, all of bytes but the last.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Stats {
    /// Bytes in live blocks, each rounded up to the alignment.
    pub used: u64,
    /// Bytes in holes.
    pub free: u64,
    /// Bytes of the largest hole: the largest request that would now succeed.
    pub largest_free: u64,
    /// The most that `used` has ever been.
    pub peak: u64,
    /// The share of the free bytes that lies outside the largest hole; 0 when nothing is free.
    pub fragmentation: f64,
}

#[derive(Debug)]
struct Block {
    /// The length as taken, a multiple of the alignment.
    taken: u64,
    serial: u64,
}

impl Arena {
    /// An arena of the offsets `0..capacity`; blocks start at multiples of `alignment`, a power of
    /// two, and what lies beyond the last such multiple stays unused.
    pub fn new(capacity: Size, alignment: u64) -> Result<Self> {
        // Serials count within one arena; this tells the spans of two arenas apart.
        static ARENAS: AtomicU64 = AtomicU64::new(0);
        if !alignment.is_power_of_two() {
            return Err(Error::invalid("an arena's alignment must be a power of two")
                .with("alignment", alignment));
        }
        let capacity = capacity.0 & !(alignment - 1);
        let hole = (capacity > 0).then_some((0, capacity));
        Ok(Self {
            id: ARENAS.fetch_add(1, Ordering::Relaxed),
            capacity,
            alignment,
            used: 0,
            peak: 0,
            next_serial: 0,
            holes: hole.into_iter().collect(),
            live: BTreeMap::new(),
        })
    }

    /// Takes `bytes`, as low as they fit. Zero bytes take one unit of alignment, so that no two live
    /// spans share an offset.
    pub fn allocate(&mut self, bytes: u64) -> Result<Span> {
        let taken = bytes.max(1).checked_next_multiple_of(self.alignment);
        let Some(taken) = taken.filter(|taken| *taken <= self.capacity) else {
            return Err(Error::invalid("the request is larger than the whole arena")
                .with("requested", Size(bytes))
                .with("capacity", Size(self.capacity)));
        };
        let hole = self.holes.iter().find(|(_, len)| **len >= taken);
        let Some((&start, &len)) = hole else {
            return Err(self.out_of_space(bytes, taken));
        };
        self.cut((start, len), taken);
        let serial = self.next_serial;
        self.next_serial += 1;
        self.live.insert(start, Block { taken, serial });
        self.used += taken;
        self.peak = self.peak.max(self.used);
        Ok(Span { offset: start, len: bytes, serial, arena: self.id })
    }

    /// Gives a block back. A span that is not live here is [`Kind::InvalidInput`], and nothing
    /// changes.
    pub fn free(&mut self, span: Span) -> Result<()> {
        let live = self.live.get(&span.offset).is_some_and(|block| block.serial == span.serial);
        if span.arena != self.id || !live {
            let message = if span.arena == self.id {
                "the span was freed before"
            } else {
                "the span belongs to another arena"
            };
            return Err(Error::invalid(message)
                .with("offset", span.offset)
                .with("bytes", Size(span.len)));
        }
        if let Some(block) = self.live.remove(&span.offset) {
            self.used -= block.taken;
            self.join(span.offset, block.taken);
        }
        Ok(())
    }

    /// The arena in numbers.
    pub fn stats(&self) -> Stats {
        let free = self.capacity - self.used;
        let largest_free = self.holes.values().copied().max().unwrap_or(0);
        let fragmentation = if free == 0 { 0.0 } else { 1.0 - largest_free as f64 / free as f64 };
        Stats { used: self.used, free, largest_free, peak: self.peak, fragmentation }
    }

    /// The holes, from the low end.
    pub fn holes(&self) -> impl Iterator<Item = Range<u64>> {
        self.holes.iter().map(|(start, len)| *start..start + len)
    }

    /// The bytes that can be handed out: a multiple of the alignment.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// The number that every offset is a multiple of.
    pub fn alignment(&self) -> u64 {
        self.alignment
    }

    /// Takes a block off the front of a hole; what is left stays a hole.
    fn cut(&mut self, (start, len): (u64, u64), taken: u64) {
        self.holes.remove(&start);
        if taken < len {
            self.holes.insert(start + taken, len - taken);
        }
    }

    /// Makes a hole of a freed block, together with the holes that touch it.
    fn join(&mut self, mut offset: u64, mut len: u64) {
        if let Some(after) = self.holes.remove(&(offset + len)) {
            len += after;
        }
        let before = self.holes.range(..offset).next_back().map(|(start, len)| (*start, *len));
        if let Some((start, before)) = before.filter(|(start, before)| start + before == offset) {
            (offset, len) = (start, len + before);
        }
        self.holes.insert(offset, len);
    }

    #[cold]
    fn out_of_space(&self, bytes: u64, taken: u64) -> Error {
        let stats = self.stats();
        let message = if stats.free >= taken {
            "the arena is fragmented: it has enough free bytes, but no hole is large enough"
        } else {
            "the arena is full; fragmentation is not to blame"
        };
        Error::new(Kind::OutOfMemory, message)
            .with("requested", Size(bytes))
            .with("free", Size(stats.free))
            .with("largest hole", Size(stats.largest_free))
            .with("capacity", Size(self.capacity))
    }
}

impl Span {
    /// Where the block starts, from the start of the arena.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// How many bytes were asked for.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether zero bytes were asked for.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn arena(capacity: u64, alignment: u64) -> Arena {
        Arena::new(Size(capacity), alignment).unwrap()
    }

    #[test]
    fn a_block_takes_the_lowest_hole_in_which_it_fits() {
        let mut arena = arena(1000, 1);
        let spans = [100, 50, 30].map(|bytes| arena.allocate(bytes).unwrap());
        assert_eq!(spans.map(|span| span.offset()), [0, 100, 150]);
        arena.free(spans[1]).unwrap();
        let offsets = [60, 20, 30].map(|bytes| arena.allocate(bytes).unwrap().offset());
        assert_eq!(offsets, [180, 100, 120]);
        let stats = arena.stats();
        assert_eq!((stats.used, stats.free, stats.largest_free), (240, 760, 760));
    }

    #[test]
    fn a_request_that_fits_nowhere_says_whether_fragmentation_is_to_blame() {
        let mut arena = arena(4 << 10, 1 << 10);
        let spans = [(); 4].map(|()| arena.allocate(1 << 10).unwrap());
        let error = arena.allocate(1).unwrap_err();
        assert_eq!(error.kind(), Kind::OutOfMemory);
        assert_eq!(
            error.to_string(),
            "the arena is full; fragmentation is not to blame (requested: 1 B, free: 0 B, \
             largest hole: 0 B, capacity: 4 KiB)"
        );
        arena.free(spans[0]).unwrap();
        arena.free(spans[2]).unwrap();
        assert!((arena.stats().fragmentation - 0.5).abs() < 1e-12);
        let error = arena.allocate(2 << 10).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the arena is fragmented: it has enough free bytes, but no hole is large enough \
             (requested: 2 KiB, free: 2 KiB, largest hole: 1 KiB, capacity: 4 KiB)"
        );
        assert!(error.is_retryable());
    }

    #[test]
    fn a_request_larger_than_the_arena_is_invalid_and_states_the_capacity() {
        let mut arena = arena(1000, 256);
        assert_eq!(arena.capacity(), 768);
        for bytes in [769, u64::MAX] {
            let error = arena.allocate(bytes).unwrap_err();
            assert_eq!(error.kind(), Kind::InvalidInput);
            assert!(error.to_string().contains("capacity: 768 B"), "{error}");
        }
        assert_eq!(arena.allocate(768).unwrap().offset(), 0);
    }

    #[test]
    fn a_span_freed_twice_is_an_error_even_when_its_place_was_given_to_another() {
        let mut arena = arena(100, 1);
        let first = arena.allocate(10).unwrap();
        arena.free(first).unwrap();
        assert_eq!(arena.free(first).unwrap_err().kind(), Kind::InvalidInput);
        let second = arena.allocate(10).unwrap();
        assert_eq!(first.offset(), second.offset());
        let error = arena.free(first).unwrap_err().to_string();
        assert!(error.contains("freed before"), "{error}");
        assert_eq!(arena.stats().used, 10);
        arena.free(second).unwrap();
    }

    #[test]
    fn a_span_of_another_arena_is_an_error_and_changes_nothing() {
        let (mut one, mut two) = (arena(100, 1), arena(100, 1));
        let foreign = one.allocate(10).unwrap();
        let own = two.allocate(10).unwrap();
        let error = two.free(foreign).unwrap_err().to_string();
        assert!(error.contains("another arena"), "{error}");
        assert_eq!((one.stats().used, two.stats().used), (10, 10));
        two.free(own).unwrap();
    }

    #[test]
    fn empty_blocks_have_offsets_of_their_own() {
        let mut arena = arena(128, 64);
        let (a, b) = (arena.allocate(0).unwrap(), arena.allocate(0).unwrap());
        assert!(a.is_empty() && a.offset() != b.offset());
        assert!(arena.allocate(0).is_err());
    }

    #[test]
    fn a_useless_alignment_is_an_error_and_an_empty_arena_is_not() {
        for alignment in [0, 3, 48] {
            let error = Arena::new(Size(100), alignment).unwrap_err();
            assert_eq!(error.kind(), Kind::InvalidInput);
        }
        assert_eq!(arena(63, 64).stats().free, 0);
        assert!(arena(63, 64).allocate(0).is_err());
    }

    #[derive(Debug, Clone)]
    enum Step {
        Allocate(u64),
        Free(prop::sample::Index),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let allocate = (0u64..300).prop_map(Step::Allocate);
        let free = any::<prop::sample::Index>().prop_map(Step::Free);
        prop::collection::vec(prop_oneof![3 => allocate, 2 => free], 0..120)
    }

    /// The half-open ranges that live blocks take, in order of address.
    fn taken(live: &[Span], alignment: u64) -> Vec<(u64, u64)> {
        let range =
            |span: &Span| (span.offset, span.offset + span.len.max(1).next_multiple_of(alignment));
        let mut ranges: Vec<_> = live.iter().map(range).collect();
        ranges.sort_unstable();
        ranges
    }

    /// The holes between `ranges`, computed from the live blocks alone.
    fn gaps(ranges: &[(u64, u64)], capacity: u64) -> Vec<(u64, u64)> {
        let starts = std::iter::once(0).chain(ranges.iter().map(|range| range.1));
        let ends = ranges.iter().map(|range| range.0).chain(std::iter::once(capacity));
        starts.zip(ends).filter(|(start, end)| start < end).collect()
    }

    /// What every state of an arena must satisfy.
    fn check(arena: &Arena, live: &[Span]) -> Result<(), TestCaseError> {
        let ranges = taken(live, arena.alignment);
        prop_assert!(ranges.windows(2).all(|pair| pair[0].1 <= pair[1].0), "overlap: {ranges:?}");
        prop_assert!(ranges.iter().all(|range| range.0 % arena.alignment == 0));
        prop_assert!(ranges.last().is_none_or(|range| range.1 <= arena.capacity));
        let gaps = gaps(&ranges, arena.capacity);
        let holes: Vec<_> = arena.holes.iter().map(|(start, len)| (*start, start + len)).collect();
        prop_assert_eq!(&holes, &gaps, "every gap is one hole: neighbours have been joined");
        let stats = arena.stats();
        prop_assert_eq!(stats.used, ranges.iter().map(|range| range.1 - range.0).sum::<u64>());
        prop_assert_eq!(stats.used + stats.free, arena.capacity);
        prop_assert!((0.0..=1.0).contains(&stats.fragmentation));
        Ok(())
    }

    proptest! {
        #[test]
        fn blocks_never_overlap_and_bytes_are_conserved(
            steps in steps(), capacity in 0u64..4096, alignment in 0u32..7,
        ) {
            let mut arena = arena(capacity, 1 << alignment);
            let mut live: Vec<Span> = Vec::new();
            for step in steps {
                match step {
                    Step::Allocate(bytes) => {
                        let holes = gaps(&taken(&live, arena.alignment), arena.capacity);
                        let need = bytes.max(1).next_multiple_of(arena.alignment);
                        let lowest = holes.iter().find(|hole| hole.1 - hole.0 >= need);
                        let span = arena.allocate(bytes);
                        prop_assert_eq!(span.as_ref().ok().map(Span::offset), lowest.map(|hole| hole.0));
                        live.extend(span);
                    }
                    Step::Free(index) if !live.is_empty() => {
                        let span = live.swap_remove(index.index(live.len()));
                        arena.free(span).unwrap();
                        prop_assert!(arena.free(span).is_err());
                    }
                    Step::Free(_) => {}
                }
                check(&arena, &live)?;
            }
            for span in live.drain(..) {
                arena.free(span).unwrap();
            }
            let stats = arena.stats();
            prop_assert_eq!((stats.used, stats.largest_free), (0, arena.capacity));
        }
    }
}
