//! The bitmap kernels with AVX2: a shuffle from a table for each group of eight elements.
//!
//! In every loop here, at most `8 * group` elements were kept before a group of eight, so a store
//! or load of eight elements after them ends within the row's room.

use std::arch::x86_64::{
    __m128i, __m256i, _mm_loadl_epi64, _mm_loadu_si128, _mm_movemask_epi8, _mm_packs_epi16,
    _mm_shuffle_epi8, _mm_storeu_si128, _mm256_blendv_ps, _mm256_castps_si256, _mm256_castsi256_ps,
    _mm256_castsi256_si128, _mm256_cmpeq_epi16, _mm256_cmpeq_epi32, _mm256_cvtepi8_epi32,
    _mm256_extracti128_si256, _mm256_loadu_si256, _mm256_movemask_ps, _mm256_permutevar8x32_epi32,
    _mm256_setzero_ps, _mm256_setzero_si256, _mm256_storeu_si256,
};

use super::header::BITMAP_BYTES;
use super::tables::{KEPT, KEPT_PAIRS, SPREAD, SPREAD_PAIRS};
use super::{ROW_OF_FOUR, ROW_OF_TWO, portable};

#[target_feature(enable = "avx2,popcnt")]
pub(super) fn compress_four(
    row: &[u8; ROW_OF_FOUR],
    bitmap: &mut [u8; BITMAP_BYTES],
    room: &mut [u8; ROW_OF_FOUR],
) -> usize {
    let mut count = 0;
    for (group, byte) in bitmap.iter_mut().enumerate() {
        // SAFETY: sixteen groups of 32 bytes make up the row.
        let elements = unsafe { _mm256_loadu_si256(row.as_ptr().add(32 * group).cast()) };
        let zeros = _mm256_cmpeq_epi32(elements, _mm256_setzero_si256());
        let mask = !(_mm256_movemask_ps(_mm256_castsi256_ps(zeros)) as u8);
        let kept = _mm256_permutevar8x32_epi32(elements, indices(&KEPT[usize::from(mask)]));
        // SAFETY: `count <= 8 * group`, so this ends at byte `32 * group + 32` at the latest.
        unsafe { _mm256_storeu_si256(room.as_mut_ptr().add(4 * count).cast(), kept) };
        *byte = mask;
        count += mask.count_ones() as usize;
    }
    count
}

#[target_feature(enable = "avx2,popcnt")]
pub(super) fn expand_four(
    bitmap: &[u8; BITMAP_BYTES],
    stored: &[u8; ROW_OF_FOUR],
    row: &mut [u8; ROW_OF_FOUR],
) -> usize {
    let mut count = 0;
    for (group, mask) in bitmap.iter().enumerate() {
        // SAFETY: `count <= 8 * group`, so this ends at byte `32 * group + 32` at the latest.
        let elements = unsafe { _mm256_loadu_si256(stored.as_ptr().add(4 * count).cast()) };
        let places = indices(&SPREAD[usize::from(*mask)]);
        let spread = _mm256_permutevar8x32_epi32(elements, places);
        // A place that becomes zero has a negative index, and the blend goes by the sign.
        let spread = _mm256_castps_si256(_mm256_blendv_ps(
            _mm256_castsi256_ps(spread),
            _mm256_setzero_ps(),
            _mm256_castsi256_ps(places),
        ));
        // SAFETY: sixteen groups of 32 bytes make up the row.
        unsafe { _mm256_storeu_si256(row.as_mut_ptr().add(32 * group).cast(), spread) };
        count += mask.count_ones() as usize;
    }
    count
}

#[target_feature(enable = "avx2,popcnt")]
pub(super) fn compress_two(
    row: &[u8; ROW_OF_TWO],
    bitmap: &mut [u8; BITMAP_BYTES],
    room: &mut [u8; ROW_OF_TWO],
) -> usize {
    let mut count = 0;
    for (pair, bytes) in bitmap.as_chunks_mut::<2>().0.iter_mut().enumerate() {
        // SAFETY: eight pairs of groups of 16 bytes make up the row.
        let elements = unsafe { _mm256_loadu_si256(row.as_ptr().add(32 * pair).cast()) };
        let zeros = _mm256_cmpeq_epi16(elements, _mm256_setzero_si256());
        let (low, high) = halves(zeros);
        let masks = (!_mm_movemask_epi8(_mm_packs_epi16(low, high)) as u16).to_le_bytes();
        let (low, high) = halves(elements);
        for (group, mask) in [low, high].into_iter().zip(masks) {
            let kept = _mm_shuffle_epi8(group, load(&KEPT_PAIRS[usize::from(mask)]));
            // SAFETY: at most eight elements were kept of each group of eight before this one, so
            // this ends at most 16 bytes further than this group does in the row.
            unsafe { _mm_storeu_si128(room.as_mut_ptr().add(2 * count).cast(), kept) };
            count += mask.count_ones() as usize;
        }
        *bytes = masks;
    }
    count
}

#[target_feature(enable = "avx2,popcnt")]
pub(super) fn expand_two(
    bitmap: &[u8; BITMAP_BYTES],
    stored: &[u8; ROW_OF_TWO],
    row: &mut [u8; ROW_OF_TWO],
) -> usize {
    let mut count = 0;
    for (group, mask) in bitmap.iter().enumerate() {
        // SAFETY: `count <= 8 * group`, so this ends at byte `16 * group + 16` at the latest.
        let elements = unsafe { _mm_loadu_si128(stored.as_ptr().add(2 * count).cast()) };
        let spread = _mm_shuffle_epi8(elements, load(&SPREAD_PAIRS[usize::from(*mask)]));
        // SAFETY: sixteen groups of 16 bytes make up the row.
        unsafe { _mm_storeu_si128(row.as_mut_ptr().add(16 * group).cast(), spread) };
        count += mask.count_ones() as usize;
    }
    count
}

#[target_feature(enable = "avx2,popcnt")]
pub(super) fn count_two(src: &[u8]) -> usize {
    portable::count_two(src)
}

#[target_feature(enable = "avx2,popcnt")]
pub(super) fn count_four(src: &[u8]) -> usize {
    portable::count_four(src)
}

/// Eight bytes as eight 32-bit indices, sign extended.
#[inline]
#[target_feature(enable = "avx2")]
fn indices(bytes: &[u8; 8]) -> __m256i {
    // SAFETY: the load reads exactly the eight bytes.
    _mm256_cvtepi8_epi32(unsafe { _mm_loadl_epi64(bytes.as_ptr().cast()) })
}

#[inline]
#[target_feature(enable = "avx2")]
fn load(bytes: &[u8; 16]) -> __m128i {
    // SAFETY: the load reads exactly the sixteen bytes.
    unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx2")]
fn halves(vector: __m256i) -> (__m128i, __m128i) {
    (_mm256_castsi256_si128(vector), _mm256_extracti128_si256::<1>(vector))
}
