//! A layer's memory on the device, and how it is cut for the link.

use std::ops::Range;
use std::sync::Arc;

use super::host_memory::{HostMemory, Slice};
use crate::device::{ALLOCATION_ALIGNMENT, Device, DeviceMemory, DevicePointer};
use crate::error::Result;

/// Each parameter starts at a multiple of this: what vector instructions like.
const SLOT_ALIGNMENT: usize = 64;

/// Device bytes of a buffer with a slot for each of these sizes; absurd ones are more than anybody has.
pub fn room(sizes: impl IntoIterator<Item = usize>) -> usize {
    let up = |size: usize, to| size.checked_next_multiple_of(to).unwrap_or(usize::MAX);
    let slots = sizes.into_iter().map(|size| up(size, SLOT_ALIGNMENT));
    up(slots.fold(0, usize::saturating_add), ALLOCATION_ALIGNMENT)
}

/// A buffer with a slot for each parameter of a layer, or for each gradient.
#[derive(Debug)]
pub(super) struct Buffer {
    pub memory: DeviceMemory,
    offsets: Vec<usize>,
}

/// Bytes that go over the link at once: from host memory to a buffer, or back.
#[derive(Debug, Clone)]
pub(super) struct Piece {
    pub host: Arc<HostMemory>,
    /// In the host memory.
    pub range: Range<usize>,
    /// In the buffer.
    pub offset: usize,
}

impl Buffer {
    pub fn new(device: &dyn Device, slices: &[Slice]) -> Result<Self> {
        let mut next = 0;
        let slot = |slice: &Slice| {
            let offset = next;
            next += slice.len.next_multiple_of(SLOT_ALIGNMENT);
            offset
        };
        let offsets = slices.iter().map(slot).collect();
        let memory = device.allocate(room(slices.iter().map(|slice| slice.len)))?;
        Ok(Self { memory, offsets })
    }

    pub fn slot(&self, slice: &Slice, parameter: usize) -> Range<usize> {
        let offset = self.offsets[parameter];
        offset..offset + slice.len
    }

    /// The address of each slot, for kernels.
    pub fn pointers(&self, device: &dyn Device, slices: &[Slice]) -> Result<Vec<DevicePointer>> {
        let all = super::runtime::kernels(device)?.pointer(&self.memory)?;
        let slots = slices.iter().enumerate().map(|(parameter, slice)| self.slot(slice, parameter));
        slots.map(|slot| all.part(slot)).collect()
    }

    /// The slots of these parameters as pieces of at most so many bytes. Neighbours on both sides
    /// go together: each transfer costs the link's latency.
    pub fn pieces(&self, slices: &[Slice], parameters: &[usize], piece: usize) -> Vec<Piece> {
        let mut whole: Vec<Piece> = Vec::new();
        for &parameter in parameters {
            let slice = &slices[parameter];
            let (range, offset) = (slice.range(), self.offsets[parameter]);
            match whole.last_mut() {
                _ if range.is_empty() => {}
                Some(last) if last.continues(slice, offset) => last.range.end = range.end,
                _ => whole.push(Piece { host: Arc::clone(&slice.home), range, offset }),
            }
        }
        whole.into_iter().flat_map(|whole| whole.cut(piece)).collect()
    }
}

impl Piece {
    fn continues(&self, slice: &Slice, offset: usize) -> bool {
        Arc::ptr_eq(&self.host, &slice.home)
            && self.range.end == slice.offset
            && self.offset + self.range.len() == offset
    }

    /// In equal parts, so that none is a small rest that costs as much latency as a large one.
    fn cut(self, piece: usize) -> impl Iterator<Item = Self> {
        let parts = self.range.len().div_ceil(piece.max(1));
        let step = self.range.len().div_ceil(parts.max(1)).next_multiple_of(SLOT_ALIGNMENT);
        let Range { start, end } = self.range.clone();
        (start..end).step_by(step.max(1)).map(move |from| Self {
            host: Arc::clone(&self.host),
            range: from..(from + step).min(end),
            offset: self.offset + (from - start),
        })
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use crate::device::Host;

    fn slices(host: &Arc<HostMemory>, ranges: &[Range<usize>]) -> Vec<Slice> {
        let slice = |range: &Range<usize>| Slice {
            home: Arc::clone(host),
            offset: range.start,
            len: range.len(),
        };
        ranges.iter().map(slice).collect()
    }

    fn cut(
        ranges: &[Range<usize>],
        parameters: &[usize],
        piece: usize,
    ) -> Vec<(Range<usize>, usize)> {
        let device = Host::new();
        let host = Arc::new(HostMemory::new(&device, 4096).unwrap());
        let slices = slices(&host, ranges);
        let buffer = Buffer::new(&device, &slices).unwrap();
        let pieces = buffer.pieces(&slices, parameters, piece);
        pieces.into_iter().map(|piece| (piece.range, piece.offset)).collect()
    }

    fn whole(range: Range<usize>) -> Vec<Range<usize>> {
        std::iter::once(range).collect()
    }

    #[test]
    fn slots_are_aligned_and_buffers_are_as_large_as_the_device_counts_them() {
        let device = Host::new();
        let host = Arc::new(HostMemory::new(&device, 4096).unwrap());
        let slices = slices(&host, &[0..100, 100..100, 200..201, 300..364]);
        let buffer = Buffer::new(&device, &slices).unwrap();
        assert_eq!(buffer.offsets, [0, 128, 128, 192]);
        assert_eq!(buffer.slot(&slices[3], 3), 192..256);
        assert_eq!(device.facts().used_bytes, 256);
        assert_eq!((room([100, 0, 1, 64]), room([]), room([257])), (256, 0, 512));
        assert_eq!(room([usize::MAX, 1, usize::MAX - 100]), usize::MAX);
        let pointers = buffer.pointers(&device, &slices).unwrap();
        assert!(pointers.iter().all(|pointer| pointer.address() % SLOT_ALIGNMENT == 0));
        assert_eq!(pointers[3].address() - pointers[0].address(), 192);
        assert_eq!(pointers[3].len(), 64);
    }

    #[test]
    fn neighbours_in_host_memory_and_buffer_cross_the_link_together() {
        assert_eq!(cut(&[0..64, 64..128], &[0, 1], 4096), [(0..128, 0)]);
        assert_eq!(cut(&[0..60, 64..128], &[0, 1], 4096), [(0..60, 0), (64..128, 64)]);
        assert_eq!(cut(&[64..128, 0..64], &[0, 1], 4096), [(64..128, 0), (0..64, 64)]);
        assert_eq!(cut(&[0..64, 64..128, 128..192], &[0, 2], 4096), [(0..64, 0), (128..192, 128)]);
        assert_eq!(cut(&[0..64, 64..64, 64..128], &[0, 1, 2], 4096), [(0..128, 0)]);
    }

    #[test]
    fn pieces_are_even_and_together_all_there_is() {
        assert_eq!(cut(&whole(0..1000), &[0], 512), [(0..512, 0), (512..1000, 512)]);
        assert_eq!(cut(&whole(8..658), &[0], 300), [(8..264, 0), (264..520, 256), (520..658, 512)]);
        assert!(cut(&[5..5, 64..128], &[0], 512).is_empty());
    }
}
