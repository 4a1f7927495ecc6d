//! The data of a file cut into windows: pure arithmetic.
//!
//! ```text
//!   tensors   |   a      |b|c|        d               | e |
//!   windows   |       |       |       |       |       |   |
//! ```
//!
//! A window is what is staged, checksummed and written as one: large enough to keep the disk busy,
//! so that many small tensors cost as little as one large one, and small enough that a few bound
//! the memory of a save.

use std::ops::Range;

use super::header::Tensor;

/// Bytes in a window; a multiple of every block size.
pub(super) const WINDOW_BYTES: u64 = 1 << 20;

/// A range of the data, and what lies in it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Window {
    /// From the start of the data.
    pub range: Range<u64>,
    pub segments: Vec<Segment>,
}

/// A range of one tensor's own bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Segment {
    pub tensor: usize,
    pub range: Range<usize>,
}

/// Cuts one window after the other.
pub(super) struct Windows<'a> {
    tensors: &'a [Tensor],
    next_tensor: usize,
    offset: u64,
}

impl<'a> Windows<'a> {
    /// Cuts the data of these tensors, which follow one another without a gap.
    pub fn over(tensors: &'a [Tensor]) -> Self {
        Self { tensors, next_tensor: 0, offset: 0 }
    }
}

impl Iterator for Windows<'_> {
    type Item = Window;

    fn next(&mut self) -> Option<Window> {
        let start = self.offset;
        let end = start + WINDOW_BYTES;
        let mut segments = Vec::new();
        while let Some(tensor) = self.tensors.get(self.next_tensor)
            && self.offset < end
        {
            let upto = tensor.range.end.min(end);
            let within = |offset: u64| (offset - tensor.range.start) as usize;
            if upto > self.offset {
                let range = within(self.offset)..within(upto);
                segments.push(Segment { tensor: self.next_tensor, range });
            }
            self.offset = upto;
            if upto < tensor.range.end {
                break;
            }
            self.next_tensor += 1;
        }
        (!segments.is_empty()).then_some(Window { range: start..self.offset, segments })
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::checkpoint::{Dtype, Header};

    proptest! {
        #[test]
        fn windows_cover_every_byte_once_and_in_order(
            sizes in prop::collection::vec(prop_oneof![
                Just(0), 1..100u64, Just(WINDOW_BYTES), WINDOW_BYTES - 3..3 * WINDOW_BYTES,
            ], 0..12)
        ) {
            let tensors = sizes.iter().enumerate()
                .map(|(index, size)| (index.to_string(), Dtype::U8, vec![*size]));
            let header = Header::lay_out(tensors, BTreeMap::new()).unwrap();
            let (mut end, mut seen) = (0, vec![0; header.tensors.len()]);
            for window in Windows::over(&header.tensors) {
                prop_assert_eq!(window.range.start, end);
                prop_assert!(end % WINDOW_BYTES == 0, "only the last window is shorter");
                let mut at = window.range.start;
                for Segment { tensor, range } in window.segments {
                    prop_assert_eq!(range.start, seen[tensor]);
                    prop_assert_eq!(header.tensors[tensor].range.start + range.start as u64, at);
                    seen[tensor] = range.end;
                    at += range.len() as u64;
                }
                prop_assert_eq!(at, window.range.end);
                end = at;
            }
            prop_assert_eq!(end, header.data_len());
            for (tensor, seen) in header.tensors.iter().zip(seen) {
                prop_assert_eq!(tensor.len(), seen as u64);
            }
        }
    }
}
