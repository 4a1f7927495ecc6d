//! Steps with AVX-512, sixteen elements at a time.

use std::arch::x86_64::{
    __m256i, __m512, _MM_FROUND_NO_EXC, _MM_FROUND_TO_NEAREST_INT, _MM_HINT_T0, _mm_prefetch,
    _mm256_cmpeq_epi16_mask, _mm256_loadu_si256, _mm256_storeu_si256, _mm512_add_ps,
    _mm512_castps_si512, _mm512_castsi512_ps, _mm512_cvtepu16_epi32, _mm512_cvtph_ps,
    _mm512_cvtps_ph, _mm512_div_ps, _mm512_loadu_ps, _mm512_mask_blend_ps, _mm512_mul_ps,
    _mm512_set1_ps, _mm512_slli_epi32, _mm512_sqrt_ps, _mm512_storeu_ps, _mm512_sub_ps,
};

use super::lanes::{self, Lanes};
use super::{Checked, Factors};
use crate::codec::half::avx512::bf16_of;

#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
pub(super) fn step(factors: &Factors, run: Checked<'_>) {
    // SAFETY: this function has the instructions.
    unsafe { lanes::all::<__m512>(factors, run) }
}

impl Lanes for __m512 {
    type Halves = __m256i;
    const WIDTH: usize = 16;

    #[inline(always)]
    unsafe fn splat(number: f32) -> Self {
        // SAFETY: the trait demands the instructions.
        unsafe { _mm512_set1_ps(number) }
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: as the trait demands.
        unsafe { _mm512_loadu_ps(from.cast()) }
    }

    #[inline(always)]
    unsafe fn store(self, into: *mut u8) {
        // SAFETY: as the trait demands.
        unsafe { _mm512_storeu_ps(into.cast(), self) }
    }

    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        // SAFETY: as the trait demands.
        unsafe { _mm512_add_ps(self, other) }
    }

    #[inline(always)]
    unsafe fn sub(self, other: Self) -> Self {
        // SAFETY: as the trait demands.
        unsafe { _mm512_sub_ps(self, other) }
    }

    #[inline(always)]
    unsafe fn mul(self, other: Self) -> Self {
        // SAFETY: as the trait demands.
        unsafe { _mm512_mul_ps(self, other) }
    }

    #[inline(always)]
    unsafe fn div(self, other: Self) -> Self {
        // SAFETY: as the trait demands.
        unsafe { _mm512_div_ps(self, other) }
    }

    #[inline(always)]
    unsafe fn sqrt(self) -> Self {
        // SAFETY: as the trait demands.
        unsafe { _mm512_sqrt_ps(self) }
    }

    #[inline(always)]
    unsafe fn load_halves(from: *const u8) -> Self::Halves {
        // SAFETY: as the trait demands.
        unsafe { _mm256_loadu_si256(from.cast()) }
    }

    #[inline(always)]
    unsafe fn store_halves(halves: Self::Halves, into: *mut u8) {
        // SAFETY: as the trait demands.
        unsafe { _mm256_storeu_si256(into.cast(), halves) }
    }

    #[inline(always)]
    unsafe fn f16_of(self) -> Self::Halves {
        const NEAREST: i32 = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
        // SAFETY: as the trait demands.
        unsafe { _mm512_cvtps_ph::<NEAREST>(self) }
    }

    #[inline(always)]
    unsafe fn bf16_of(self) -> Self::Halves {
        // SAFETY: as the trait demands.
        unsafe { bf16_of(_mm512_castps_si512(self)) }
    }

    #[inline(always)]
    unsafe fn of_f16(halves: Self::Halves) -> Self {
        // SAFETY: as the trait demands.
        unsafe { _mm512_cvtph_ps(halves) }
    }

    #[inline(always)]
    unsafe fn of_bf16(halves: Self::Halves) -> Self {
        // SAFETY: as the trait demands.
        unsafe { _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(halves))) }
    }

    #[inline(always)]
    unsafe fn prefetch(from: *const u8) {
        // SAFETY: it is a hint, for any address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(from.cast()) }
    }

    #[inline(always)]
    unsafe fn where_same(self, other: Self, [mine, truth]: [Self::Halves; 2]) -> Self {
        // SAFETY: as the trait demands.
        unsafe {
            let same = _mm256_cmpeq_epi16_mask(mine, truth);
            _mm512_mask_blend_ps(same, other, self)
        }
    }
}
