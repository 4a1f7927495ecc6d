//! The bitmap kernels in plain Rust: they run everywhere and say what is right.
//!
//! There is no branch on the data: half-zero tensors would have it mispredicted at every other
//! element.

use super::header::BITMAP_BYTES;

/// Elements that are counted in a 16-bit number before it is added to the sum, which lets the
/// compiler count with narrow vector lanes.
const COUNT_BLOCK: usize = 4096;

pub(super) fn compress<const WIDTH: usize, const ROW: usize>(
    row: &[u8; ROW],
    bitmap: &mut [u8; BITMAP_BYTES],
    room: &mut [u8; ROW],
) -> usize {
    let (room, _) = room.as_chunks_mut::<WIDTH>();
    let (elements, _) = row.as_chunks::<WIDTH>();
    let mut count = 0;
    for (byte, group) in bitmap.iter_mut().zip(elements.as_chunks::<8>().0) {
        *byte = 0;
        for (place, element) in group.iter().enumerate() {
            // Written in any case, counted only if it is not zero: the next one overwrites it.
            room[count] = *element;
            let keep = u8::from(*element != [0; WIDTH]);
            *byte |= keep << place;
            count += usize::from(keep);
        }
    }
    count
}

pub(super) fn expand<const WIDTH: usize, const ROW: usize>(
    bitmap: &[u8; BITMAP_BYTES],
    stored: &[u8; ROW],
    row: &mut [u8; ROW],
) -> usize {
    let (stored, _) = stored.as_chunks::<WIDTH>();
    let (elements, _) = row.as_chunks_mut::<WIDTH>();
    let mut count = 0;
    for (byte, group) in bitmap.iter().zip(elements.as_chunks_mut::<8>().0) {
        for (place, element) in group.iter_mut().enumerate() {
            // Read in any case, and masked away if it belongs to a later place.
            let keep = *byte >> place & 1;
            *element = stored[count].map(|part| part & keep.wrapping_neg());
            count += usize::from(keep);
        }
    }
    count
}

#[inline(always)]
#[expect(clippy::inline_always, reason = "the AVX kernels compile it with their instructions")]
pub(super) fn count_two(src: &[u8]) -> usize {
    let blocks = src.as_chunks::<2>().0.chunks(COUNT_BLOCK);
    let count = |block: &[[u8; 2]]| {
        block.iter().map(|element| u16::from(u16::from_ne_bytes(*element) != 0)).sum::<u16>()
    };
    blocks.map(|block| usize::from(count(block))).sum()
}

#[inline(always)]
#[expect(clippy::inline_always, reason = "the AVX kernels compile it with their instructions")]
pub(super) fn count_four(src: &[u8]) -> usize {
    let blocks = src.as_chunks::<4>().0.chunks(COUNT_BLOCK);
    let count = |block: &[[u8; 4]]| {
        block.iter().map(|element| u32::from(u32::from_ne_bytes(*element) != 0)).sum::<u32>()
    };
    blocks.map(|block| count(block) as usize).sum()
}
