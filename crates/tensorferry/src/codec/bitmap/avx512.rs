//! The bitmap kernels with AVX-512, which compresses and expands vectors by itself.
//!
//! In every loop here, at most as many elements were kept before a group as the groups before it
//! have, so a store or load of a whole group after them ends within the row's room. Compressing to
//! a register and storing all of it is faster than the instruction that compresses to memory.

use std::arch::x86_64::{
    _mm512_loadu_si512, _mm512_maskz_compress_epi16, _mm512_maskz_compress_epi32,
    _mm512_maskz_expand_epi16, _mm512_maskz_expand_epi32, _mm512_storeu_si512,
    _mm512_test_epi16_mask, _mm512_test_epi32_mask,
};

use super::header::BITMAP_BYTES;
use super::{ROW_OF_FOUR, ROW_OF_TWO, portable};

#[target_feature(enable = "avx512f,popcnt")]
pub(super) fn compress_four(
    row: &[u8; ROW_OF_FOUR],
    bitmap: &mut [u8; BITMAP_BYTES],
    room: &mut [u8; ROW_OF_FOUR],
) -> usize {
    let mut count = 0;
    for (group, bytes) in bitmap.as_chunks_mut::<2>().0.iter_mut().enumerate() {
        // SAFETY: eight groups of 64 bytes make up the row.
        let elements = unsafe { _mm512_loadu_si512(row.as_ptr().add(64 * group).cast()) };
        let mask = _mm512_test_epi32_mask(elements, elements);
        let kept = _mm512_maskz_compress_epi32(mask, elements);
        // SAFETY: `count <= 16 * group`, so this ends at byte `64 * group + 64` at the latest.
        unsafe { _mm512_storeu_si512(room.as_mut_ptr().add(4 * count).cast(), kept) };
        *bytes = mask.to_le_bytes();
        count += mask.count_ones() as usize;
    }
    count
}

#[target_feature(enable = "avx512f,popcnt")]
pub(super) fn expand_four(
    bitmap: &[u8; BITMAP_BYTES],
    stored: &[u8; ROW_OF_FOUR],
    row: &mut [u8; ROW_OF_FOUR],
) -> usize {
    let mut count = 0;
    for (group, bytes) in bitmap.as_chunks::<2>().0.iter().enumerate() {
        let mask = u16::from_le_bytes(*bytes);
        // SAFETY: `count <= 16 * group`, so this ends at byte `64 * group + 64` at the latest.
        let elements = unsafe { _mm512_loadu_si512(stored.as_ptr().add(4 * count).cast()) };
        let spread = _mm512_maskz_expand_epi32(mask, elements);
        // SAFETY: eight groups of 64 bytes make up the row.
        unsafe { _mm512_storeu_si512(row.as_mut_ptr().add(64 * group).cast(), spread) };
        count += mask.count_ones() as usize;
    }
    count
}

#[target_feature(enable = "avx512f,avx512bw,avx512vbmi2,popcnt")]
pub(super) fn compress_two(
    row: &[u8; ROW_OF_TWO],
    bitmap: &mut [u8; BITMAP_BYTES],
    room: &mut [u8; ROW_OF_TWO],
) -> usize {
    let mut count = 0;
    for (group, bytes) in bitmap.as_chunks_mut::<4>().0.iter_mut().enumerate() {
        // SAFETY: four groups of 64 bytes make up the row.
        let elements = unsafe { _mm512_loadu_si512(row.as_ptr().add(64 * group).cast()) };
        let mask = _mm512_test_epi16_mask(elements, elements);
        let kept = _mm512_maskz_compress_epi16(mask, elements);
        // SAFETY: `count <= 32 * group`, so this ends at byte `64 * group + 64` at the latest.
        unsafe { _mm512_storeu_si512(room.as_mut_ptr().add(2 * count).cast(), kept) };
        *bytes = mask.to_le_bytes();
        count += mask.count_ones() as usize;
    }
    count
}

#[target_feature(enable = "avx512f,avx512bw,avx512vbmi2,popcnt")]
pub(super) fn expand_two(
    bitmap: &[u8; BITMAP_BYTES],
    stored: &[u8; ROW_OF_TWO],
    row: &mut [u8; ROW_OF_TWO],
) -> usize {
    let mut count = 0;
    for (group, bytes) in bitmap.as_chunks::<4>().0.iter().enumerate() {
        let mask = u32::from_le_bytes(*bytes);
        // SAFETY: `count <= 32 * group`, so this ends at byte `64 * group + 64` at the latest.
        let elements = unsafe { _mm512_loadu_si512(stored.as_ptr().add(2 * count).cast()) };
        let spread = _mm512_maskz_expand_epi16(mask, elements);
        // SAFETY: four groups of 64 bytes make up the row.
        unsafe { _mm512_storeu_si512(row.as_mut_ptr().add(64 * group).cast(), spread) };
        count += mask.count_ones() as usize;
    }
    count
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
pub(super) fn count_two(src: &[u8]) -> usize {
    portable::count_two(src)
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
pub(super) fn count_four(src: &[u8]) -> usize {
    portable::count_four(src)
}
