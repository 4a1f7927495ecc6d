//! Halves with AVX-512, thirty-two at a time.
//!
//! The rounding mode is part of the instruction for `f16`, which also ignores the flush-to-zero
//! modes. `bf16` is done with integers: AVX-512's own instruction for it flushes subnormals.

use std::arch::x86_64::{
    __m256i, __m512i, _MM_FROUND_NO_EXC, _MM_FROUND_TO_NEAREST_INT, _mm256_loadu_si256,
    _mm512_add_epi32, _mm512_and_si512, _mm512_castps_si512, _mm512_castsi256_si512,
    _mm512_castsi512_ps, _mm512_cmpgt_epi32_mask, _mm512_cvtepi32_epi16, _mm512_cvtepu16_epi32,
    _mm512_cvtph_ps, _mm512_cvtps_ph, _mm512_inserti64x4, _mm512_loadu_si512, _mm512_mask_or_epi32,
    _mm512_set1_epi32, _mm512_slli_epi32, _mm512_srli_epi32, _mm512_storeu_si512,
    _mm512_stream_si512,
};

use super::{finish, streams};

const NEAREST: i32 = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;

#[target_feature(enable = "avx512f,avx512bw")]
pub(super) fn narrow_f16(src: &[u8], dst: &mut [u8]) -> usize {
    let convert = |numbers: __m512i| _mm512_cvtps_ph::<NEAREST>(_mm512_castsi512_ps(numbers));
    if streams(dst) {
        narrow::<true>(src, dst, convert)
    } else {
        narrow::<false>(src, dst, convert)
    }
}

#[target_feature(enable = "avx512f,avx512bw")]
pub(super) fn narrow_bf16(src: &[u8], dst: &mut [u8]) -> usize {
    let convert = |numbers: __m512i| bf16_of(numbers);
    if streams(dst) {
        narrow::<true>(src, dst, convert)
    } else {
        narrow::<false>(src, dst, convert)
    }
}

#[target_feature(enable = "avx512f,avx512bw")]
pub(super) fn widen_f16(src: &[u8], dst: &mut [u8]) -> usize {
    let convert = |halves: __m256i| _mm512_castps_si512(_mm512_cvtph_ps(halves));
    if streams(dst) { widen::<true>(src, dst, convert) } else { widen::<false>(src, dst, convert) }
}

#[target_feature(enable = "avx512f,avx512bw")]
pub(super) fn widen_bf16(src: &[u8], dst: &mut [u8]) -> usize {
    let convert = |halves: __m256i| _mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(halves));
    if streams(dst) { widen::<true>(src, dst, convert) } else { widen::<false>(src, dst, convert) }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
pub(in crate::codec) fn bf16_of(numbers: __m512i) -> __m256i {
    let upper = _mm512_srli_epi32::<16>(numbers);
    let odd = _mm512_and_si512(upper, _mm512_set1_epi32(1));
    let bias = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff));
    let rounded = _mm512_srli_epi32::<16>(_mm512_add_epi32(numbers, bias));
    let magnitudes = _mm512_and_si512(numbers, _mm512_set1_epi32(0x7fff_ffff));
    let nans = _mm512_cmpgt_epi32_mask(magnitudes, _mm512_set1_epi32(0x7f80_0000));
    _mm512_cvtepi32_epi16(_mm512_mask_or_epi32(rounded, nans, upper, _mm512_set1_epi32(0x0040)))
}

/// Narrows blocks of thirty-two numbers. `STREAM` only if [`streams`] says so of `dst`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn narrow<const STREAM: bool>(
    src: &[u8],
    dst: &mut [u8],
    convert: impl Fn(__m512i) -> __m256i,
) -> usize {
    let (blocks, _) = src.as_chunks::<128>();
    let (outs, _) = dst.as_chunks_mut::<64>();
    for (block, out) in blocks.iter().zip(outs.iter_mut()) {
        // SAFETY: the two loads read the block of 128 bytes.
        let (low, high) = unsafe {
            let start = block.as_ptr().cast();
            (_mm512_loadu_si512(start), _mm512_loadu_si512(start.add(1)))
        };
        let both = _mm512_castsi256_si512(convert(low));
        let both = _mm512_inserti64x4::<1>(both, convert(high));
        // SAFETY: the store writes `out`, which if `STREAM` is aligned as `dst` is.
        unsafe { store::<STREAM>(out.as_mut_ptr().cast(), both) };
    }
    finish::<STREAM>();
    outs.len() * 64
}

/// Widens blocks of thirty-two halves. `STREAM` only if [`streams`] says so of `dst`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn widen<const STREAM: bool>(
    src: &[u8],
    dst: &mut [u8],
    convert: impl Fn(__m256i) -> __m512i,
) -> usize {
    let (blocks, _) = src.as_chunks::<64>();
    let (outs, _) = dst.as_chunks_mut::<128>();
    for (block, out) in blocks.iter().zip(outs.iter_mut()) {
        // SAFETY: the two loads read the block of 64 bytes.
        let (low, high) = unsafe {
            let start = block.as_ptr().cast();
            (_mm256_loadu_si256(start), _mm256_loadu_si256(start.add(1)))
        };
        let place: *mut __m512i = out.as_mut_ptr().cast();
        // SAFETY: the two stores write `out`, which if `STREAM` is aligned as `dst` is.
        unsafe {
            store::<STREAM>(place, convert(low));
            store::<STREAM>(place.add(1), convert(high));
        }
    }
    finish::<STREAM>();
    outs.len() * 128
}

/// Writes one register.
///
/// # Safety
///
/// `place` must be valid for a write, and aligned to it if `STREAM`.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn store<const STREAM: bool>(place: *mut __m512i, value: __m512i) {
    if STREAM {
        // SAFETY: as for this function. `finish` orders the write before those that follow.
        unsafe { _mm512_stream_si512(place, value) }
    } else {
        // SAFETY: as for this function.
        unsafe { _mm512_storeu_si512(place, value) }
    }
}
