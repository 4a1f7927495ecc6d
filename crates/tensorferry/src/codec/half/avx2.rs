//! Halves with AVX2 and F16C, sixteen at a time.
//!
//! The rounding mode is part of the F16C instruction, which also ignores the flush-to-zero modes;
//! `bf16` is done with integers. So no setting of the thread changes a bit.

use std::arch::x86_64::{
    __m128i, __m256i, _MM_FROUND_TO_NEAREST_INT, _mm_loadu_si128, _mm256_add_epi32,
    _mm256_and_si256, _mm256_blendv_epi8, _mm256_castps_si256, _mm256_castsi256_ps,
    _mm256_cmpgt_epi32, _mm256_cvtepu16_epi32, _mm256_cvtph_ps, _mm256_cvtps_ph,
    _mm256_loadu_si256, _mm256_or_si256, _mm256_packus_epi32, _mm256_permute4x64_epi64,
    _mm256_set_m128i, _mm256_set1_epi32, _mm256_slli_epi32, _mm256_srli_epi32, _mm256_storeu_si256,
    _mm256_stream_si256,
};

use super::{finish, streams};

const NEAREST: i32 = _MM_FROUND_TO_NEAREST_INT;

#[target_feature(enable = "avx2,f16c")]
pub(super) fn narrow_f16(src: &[u8], dst: &mut [u8]) -> usize {
    let convert = |low: __m256i, high: __m256i| {
        let half = |numbers| _mm256_cvtps_ph::<NEAREST>(_mm256_castsi256_ps(numbers));
        _mm256_set_m128i(half(high), half(low))
    };
    if streams(dst) {
        narrow::<true>(src, dst, convert)
    } else {
        narrow::<false>(src, dst, convert)
    }
}

#[target_feature(enable = "avx2,f16c")]
pub(super) fn narrow_bf16(src: &[u8], dst: &mut [u8]) -> usize {
    let convert = |low: __m256i, high: __m256i| {
        // Packing works within each half of the register; the permutation puts that right.
        let packed = _mm256_packus_epi32(bf16_of(low), bf16_of(high));
        _mm256_permute4x64_epi64::<0b11_01_10_00>(packed)
    };
    if streams(dst) {
        narrow::<true>(src, dst, convert)
    } else {
        narrow::<false>(src, dst, convert)
    }
}

#[target_feature(enable = "avx2,f16c")]
pub(super) fn widen_f16(src: &[u8], dst: &mut [u8]) -> usize {
    let convert = |halves: __m128i| _mm256_castps_si256(_mm256_cvtph_ps(halves));
    if streams(dst) { widen::<true>(src, dst, convert) } else { widen::<false>(src, dst, convert) }
}

#[target_feature(enable = "avx2,f16c")]
pub(super) fn widen_bf16(src: &[u8], dst: &mut [u8]) -> usize {
    let convert = |halves: __m128i| _mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(halves));
    if streams(dst) { widen::<true>(src, dst, convert) } else { widen::<false>(src, dst, convert) }
}

/// The lower 16 bits of each lane are the number narrowed, the upper ones are zero.
#[inline]
#[target_feature(enable = "avx2,f16c")]
pub(in crate::codec) fn bf16_of(numbers: __m256i) -> __m256i {
    let upper = _mm256_srli_epi32::<16>(numbers);
    let odd = _mm256_and_si256(upper, _mm256_set1_epi32(1));
    let bias = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff));
    let rounded = _mm256_srli_epi32::<16>(_mm256_add_epi32(numbers, bias));
    let magnitudes = _mm256_and_si256(numbers, _mm256_set1_epi32(0x7fff_ffff));
    let nans = _mm256_cmpgt_epi32(magnitudes, _mm256_set1_epi32(0x7f80_0000));
    _mm256_blendv_epi8(rounded, _mm256_or_si256(upper, _mm256_set1_epi32(0x0040)), nans)
}

/// Narrows blocks of sixteen numbers. `STREAM` only if [`streams`] says so of `dst`.
#[inline]
#[target_feature(enable = "avx2,f16c")]
fn narrow<const STREAM: bool>(
    src: &[u8],
    dst: &mut [u8],
    convert: impl Fn(__m256i, __m256i) -> __m256i,
) -> usize {
    let (blocks, _) = src.as_chunks::<64>();
    let (outs, _) = dst.as_chunks_mut::<32>();
    for (block, out) in blocks.iter().zip(outs.iter_mut()) {
        // SAFETY: the two loads read the block of 64 bytes.
        let (low, high) = unsafe {
            let start = block.as_ptr().cast();
            (_mm256_loadu_si256(start), _mm256_loadu_si256(start.add(1)))
        };
        // SAFETY: the store writes `out`, which if `STREAM` is aligned as `dst` is.
        unsafe { store::<STREAM>(out.as_mut_ptr().cast(), convert(low, high)) };
    }
    finish::<STREAM>();
    outs.len() * 32
}

/// Widens blocks of sixteen halves. `STREAM` only if [`streams`] says so of `dst`.
#[inline]
#[target_feature(enable = "avx2,f16c")]
fn widen<const STREAM: bool>(
    src: &[u8],
    dst: &mut [u8],
    convert: impl Fn(__m128i) -> __m256i,
) -> usize {
    let (blocks, _) = src.as_chunks::<32>();
    let (outs, _) = dst.as_chunks_mut::<64>();
    for (block, out) in blocks.iter().zip(outs.iter_mut()) {
        // SAFETY: the two loads read the block of 32 bytes.
        let (low, high) = unsafe {
            let start = block.as_ptr().cast();
            (_mm_loadu_si128(start), _mm_loadu_si128(start.add(1)))
        };
        let place: *mut __m256i = out.as_mut_ptr().cast();
        // SAFETY: the two stores write `out`, which if `STREAM` is aligned as `dst` is.
        unsafe {
            store::<STREAM>(place, convert(low));
            store::<STREAM>(place.add(1), convert(high));
        }
    }
    finish::<STREAM>();
    outs.len() * 64
}

/// Writes one register.
///
/// # Safety
///
/// `place` must be valid for a write, and aligned to it if `STREAM`.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn store<const STREAM: bool>(place: *mut __m256i, value: __m256i) {
    if STREAM {
        // SAFETY: as for this function. `finish` orders the write before those that follow.
        unsafe { _mm256_stream_si256(place, value) }
    } else {
        // SAFETY: as for this function.
        unsafe { _mm256_storeu_si256(place, value) }
    }
}
