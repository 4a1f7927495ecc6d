//! The next piece of a range, and the way it takes: pure arithmetic.
//!
//! ```text
//!             block        block        block        block
//!   file   |-----------|------------|------------|-----------|
//!   write      [ edge  |   middle: whole blocks  | edge ]
//!              buffered  direct                    buffered
//!   read       [ edge  |   middle                | edge ]
//!              staged    direct                    staged
//! ```
//!
//! A middle whose memory is not aligned for the device is *staged*: it passes through an aligned
//! buffer of the engine, one copy more. So does the edge of a read, which fetches the blocks around
//! it and copies out what was asked for; a short read with an edge is fetched as a whole. The edge
//! of a write must not touch its neighbours' bytes, and goes through the page cache.

use super::file::Geometry;

/// A read of at most so many bytes that has an edge is one request: a second one takes longer than copying.
const TOGETHER_BYTES_MAX: usize = 256 << 10;

/// Whether bytes come or go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flow {
    Read,
    Write,
}

/// The way a piece takes between disk and memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// Straight between the device and the caller's memory.
    Direct,
    /// Between the device and a staging buffer: `span` bytes, of which the caller's start at
    /// `lead`.
    Staged { lead: usize, span: usize },
    /// Through the page cache.
    Buffered,
}

/// What is left to move: `len` bytes at `offset`, in memory at `address`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Range {
    pub flow: Flow,
    pub offset: u64,
    pub len: usize,
    pub address: usize,
}

impl Range {
    /// How many of the bytes go next, at most `piece_max`, and how. Staging buffers are as large.
    pub(super) fn next_piece(self, geometry: Option<Geometry>, piece_max: usize) -> (usize, Way) {
        let most = self.len.min(piece_max);
        let Some(geometry) = geometry.filter(|geometry| geometry.block <= piece_max) else {
            return (most, Way::Buffered);
        };
        let lead = (self.offset % geometry.block as u64) as usize;
        let middle = most - most % geometry.block;
        if self.flow == Flow::Read
            && let Some(span) = self.span_together(geometry, piece_max, lead)
        {
            return (self.len, Way::Staged { lead, span });
        }
        if lead == 0 && middle > 0 {
            let aligned = self.address.is_multiple_of(geometry.memory);
            let staged = Way::Staged { lead: 0, span: middle };
            return (middle, if aligned { Way::Direct } else { staged });
        }
        match self.flow {
            Flow::Read => self.staged_edge(geometry, piece_max, lead),
            Flow::Write if lead == 0 => (most, Way::Buffered),
            Flow::Write => (most.min(geometry.block - lead), Way::Buffered),
        }
    }

    /// The blocks around a short range that does not consist of whole ones.
    fn span_together(self, geometry: Geometry, piece_max: usize, lead: usize) -> Option<usize> {
        let span = (lead + self.len).next_multiple_of(geometry.block);
        (span != self.len && span <= piece_max.min(TOGETHER_BYTES_MAX)).then_some(span)
    }

    /// An edge of a read: only up to the next block when the memory is aligned from there on,
    /// otherwise as much as a staging buffer takes.
    fn staged_edge(self, geometry: Geometry, piece_max: usize, lead: usize) -> (usize, Way) {
        let to_block = geometry.block - lead;
        let aligned_behind = (self.address + to_block).is_multiple_of(geometry.memory);
        let most = if aligned_behind { to_block } else { piece_max - lead };
        let len = self.len.min(most);
        (len, Way::Staged { lead, span: (lead + len).next_multiple_of(geometry.block) })
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GEOMETRY: Geometry = Geometry { block: 4096, memory: 512 };

    fn pieces(mut range: Range, piece_max: usize) -> Vec<(u64, usize, usize, Way)> {
        let mut pieces = Vec::new();
        while range.len > 0 {
            let (len, way) = range.next_piece(Some(GEOMETRY), piece_max);
            pieces.push((range.offset, len, range.address, way));
            assert!(len > 0 && len <= range.len);
            range.offset += len as u64;
            range.len -= len;
            range.address += len;
        }
        pieces
    }

    #[test]
    fn an_aligned_range_is_all_direct() {
        let range = Range { flow: Flow::Write, offset: 8192, len: 3 << 20, address: 4096 };
        let pieces = pieces(range, 1 << 20);
        assert_eq!(pieces.len(), 3);
        assert!(pieces.iter().all(|piece| piece.3 == Way::Direct));
    }

    #[test]
    fn a_read_with_aligned_memory_behind_its_edge_goes_direct_from_there() {
        let range = Range { flow: Flow::Read, offset: 512, len: 512 << 10, address: 1 << 16 };
        let ways: Vec<_> = pieces(range, 1 << 20).iter().map(|piece| (piece.1, piece.3)).collect();
        let edge = |lead, span| Way::Staged { lead, span };
        let middle = (512 << 10) - 4096;
        assert_eq!(ways, [(3584, edge(512, 4096)), (middle, Way::Direct), (512, edge(0, 4096))]);
    }

    #[test]
    fn a_short_read_with_an_edge_is_one_request() {
        for (offset, len, lead, span) in
            [(0, 5000, 0, 8192), (512, 16384, 512, 20480), (4095, 2, 4095, 8192)]
        {
            let range = Range { flow: Flow::Read, offset, len, address: 1 << 16 };
            assert_eq!(
                range.next_piece(Some(GEOMETRY), 1 << 20),
                (len, Way::Staged { lead, span })
            );
        }
        let whole = Range { flow: Flow::Read, offset: 4096, len: 8192, address: 1 << 16 };
        assert_eq!(whole.next_piece(Some(GEOMETRY), 1 << 20), (8192, Way::Direct));
    }

    proptest! {
        #[test]
        fn pieces_cover_the_range_and_obey_the_device(
            read: bool, offset in 0u64..100_000, len in 0usize..300_000,
            address in 0usize..100_000,
        ) {
            let flow = if read { Flow::Read } else { Flow::Write };
            let mut end = offset;
            let mut cached_blocks = std::collections::HashSet::new();
            let mut direct_blocks = std::collections::HashSet::new();
            for (at, len, address, way) in pieces(Range { flow, offset, len, address }, 1 << 16) {
                prop_assert_eq!(at, end);
                end += len as u64;
                let whole = at.is_multiple_of(4096) && len.is_multiple_of(4096);
                let blocks = at / 4096..end.div_ceil(4096);
                let cached = way == Way::Buffered;
                if cached { &mut cached_blocks } else { &mut direct_blocks }.extend(blocks);
                match way {
                    Way::Direct => prop_assert!(whole && address.is_multiple_of(512)),
                    Way::Staged { lead, span } => {
                        prop_assert!(span <= 1 << 16 && lead + len <= span);
                        prop_assert!(span.is_multiple_of(4096));
                        prop_assert!((at - lead as u64).is_multiple_of(4096));
                        prop_assert!(read || (whole && lead == 0 && span == len));
                    }
                    Way::Buffered => prop_assert!(!read && len < 4096),
                }
            }
            // No write through the page cache shares a page with a direct one.
            prop_assert!(read || cached_blocks.is_disjoint(&direct_blocks));
            prop_assert_eq!(end, offset + len as u64);
        }
    }
}
