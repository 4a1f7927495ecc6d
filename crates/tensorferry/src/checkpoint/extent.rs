//! What is read at once: pure arithmetic.
//!
//! A large tensor is read in chunks straight into its place, so that a chunk can be verified while
//! the next ones are on their way. Small tensors that lie close together are read as one and then
//! copied apart.

use std::ops::Range;

use super::header::Tensor;
use crate::memory::ALIGNMENT;

/// From this size on, a tensor is read by itself.
const LARGE_BYTES: u64 = 1 << 20;

/// Bytes in a chunk of a large tensor, and at most in an extent of small ones. As much memory as one of
/// the kernel's page tables describes: two threads that make pages of one table wait for each other.
pub(super) const EXTENT_BYTES: u64 = 2 << 20;

/// Bytes between two small tensors that are read along rather than stepped over.
const GAP_BYTES_MAX: u64 = 64 << 10;

/// Bytes of the file that are read as one.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Extent {
    /// A part of one tensor: `range` of its own bytes.
    Chunk { wanted: usize, range: Range<u64> },
    /// Several tensors: `range` is from the start of the data.
    Packed { range: Range<u64>, wanted: Vec<usize> },
}

/// Cuts what is wanted, given in the order of the file; `data_start` is where the data starts in it. Chunks
/// of a tensor come in order. They end where the tensor's memory is a multiple of their size, if that
/// starts at one and lies within its first page as the tensor does in the file: so they also end between
/// two pages of the file.
pub(super) fn extents(tensors: &[&Tensor], data_start: u64) -> Vec<Extent> {
    let mut extents: Vec<Extent> = Vec::new();
    for (wanted, tensor) in tensors.iter().enumerate() {
        if tensor.len() >= LARGE_BYTES {
            chunks(&mut extents, wanted, tensor, data_start);
        } else if tensor.len() > 0 && !join(&mut extents, wanted, tensor) {
            extents.push(Extent::Packed { range: tensor.range.clone(), wanted: vec![wanted] });
        }
    }
    extents
}

fn chunks(extents: &mut Vec<Extent>, wanted: usize, tensor: &Tensor, data_start: u64) {
    let lead = (data_start + tensor.range.start) % ALIGNMENT as u64;
    let mut start = 0;
    while start < tensor.len() {
        let end = (start + EXTENT_BYTES - (lead + start) % EXTENT_BYTES).min(tensor.len());
        extents.push(Extent::Chunk { wanted, range: start..end });
        start = end;
    }
}

/// Adds a small tensor to the extent before it, if it lies close behind.
fn join(extents: &mut [Extent], index: usize, tensor: &Tensor) -> bool {
    let Some(Extent::Packed { range, wanted }) = extents.last_mut() else { return false };
    let close = tensor.range.start <= range.end + GAP_BYTES_MAX;
    let fits = tensor.range.end - range.start <= EXTENT_BYTES;
    if close && fits {
        range.end = range.end.max(tensor.range.end);
        wanted.push(index);
    }
    close && fits
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
        fn every_wanted_byte_is_read_once_and_little_else(
            sizes in prop::collection::vec((prop_oneof![
                Just(0), 1..5000u64, LARGE_BYTES - 2..LARGE_BYTES + 2,
                EXTENT_BYTES - 1..4 * EXTENT_BYTES,
            ], any::<bool>()), 0..12),
            data_start in 8..10_000u64,
        ) {
            let tensors = sizes.iter().enumerate()
                .map(|(index, (size, _))| (format!("{index:02}"), Dtype::U8, vec![*size]));
            let header = Header::lay_out(tensors, BTreeMap::new()).unwrap();
            let chosen = |tensor: &&Tensor| sizes[tensor.name.parse::<usize>().unwrap()].1;
            let wanted: Vec<_> = header.tensors.iter().filter(chosen).collect();
            let mut seen = vec![0; wanted.len()];
            for extent in extents(&wanted, data_start) {
                match extent {
                    Extent::Chunk { wanted: index, range } => {
                        prop_assert_eq!(range.start, seen[index]);
                        prop_assert!(range.end - range.start <= EXTENT_BYTES);
                        let end = data_start + wanted[index].range.start + range.end;
                        let last = range.end == wanted[index].len();
                        prop_assert!(last || end.is_multiple_of(ALIGNMENT as u64));
                        let lead = (data_start + wanted[index].range.start) % ALIGNMENT as u64;
                        prop_assert!(last || (lead + range.end).is_multiple_of(EXTENT_BYTES));
                        seen[index] = range.end;
                    }
                    Extent::Packed { range, wanted: members } => {
                        let bytes: u64 = members.iter().map(|index| wanted[*index].len()).sum();
                        let gaps = (members.len() as u64 - 1) * GAP_BYTES_MAX;
                        prop_assert!(range.end - range.start <= EXTENT_BYTES.min(bytes + gaps));
                        for index in members {
                            let tensor = wanted[index];
                            prop_assert!(range.start <= tensor.range.start);
                            prop_assert!(tensor.range.end <= range.end);
                            prop_assert_eq!(std::mem::replace(&mut seen[index], tensor.len()), 0);
                        }
                    }
                }
            }
            for (tensor, seen) in wanted.iter().zip(seen) {
                prop_assert_eq!(tensor.len(), seen);
            }
        }
    }
}
