//! Steps with AVX2 and F16C, eight elements at a time.

use std::arch::x86_64::{
    __m128i, __m256, _MM_FROUND_TO_NEAREST_INT, _MM_HINT_T0, _mm_cmpeq_epi16, _mm_loadu_si128,
    _mm_packus_epi32, _mm_prefetch, _mm_storeu_si128, _mm256_add_ps, _mm256_blendv_ps,
    _mm256_castps_si256, _mm256_castsi256_ps, _mm256_castsi256_si128, _mm256_cvtepi16_epi32,
    _mm256_cvtepu16_epi32, _mm256_cvtph_ps, _mm256_cvtps_ph, _mm256_div_ps,
    _mm256_extracti128_si256, _mm256_loadu_ps, _mm256_mul_ps, _mm256_set1_ps, _mm256_slli_epi32,
    _mm256_sqrt_ps, _mm256_storeu_ps, _mm256_sub_ps,
};

use super::lanes::{self, Lanes};
use super::{Checked, Factors};
use crate::codec::half::avx2::bf16_of;

#[target_feature(enable = "avx2,f16c")]
pub(super) fn step(factors: &Factors, run: Checked<'_>) {
    // SAFETY: this function has the instructions.
    unsafe { lanes::all::<__m256>(factors, run) }
}

impl Lanes for __m256 {
    type Halves = __m128i;
    const WIDTH: usize = 8;

    #[inline(always)]
    unsafe fn splat(number: f32) -> Self {
        // SAFETY: the trait demands the instructions.
        unsafe { _mm256_set1_ps(number) }
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: as the trait demands.
        unsafe { _mm256_loadu_ps(from.cast()) }
    }

    #[inline(always)]
    unsafe fn store(self, into: *mut u8) {
        // SAFETY: as the trait demands.
        unsafe { _mm256_storeu_ps(into.cast(), self) }
    }

    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        // SAFETY: as the trait demands.
        unsafe { _mm256_add_ps(self, other) }
    }

    #[inline(always)]
    unsafe fn sub(self, other: Self) -> Self {
        // SAFETY: as the trait demands.
        unsafe { _mm256_sub_ps(self, other) }
    }

    #[inline(always)]
    unsafe fn mul(self, other: Self) -> Self {
        // SAFETY: as the trait demands.
        unsafe { _mm256_mul_ps(self, other) }
    }

    #[inline(always)]
    unsafe fn div(self, other: Self) -> Self {
        // SAFETY: as the trait demands.
        unsafe { _mm256_div_ps(self, other) }
    }

    #[inline(always)]
    unsafe fn sqrt(self) -> Self {
        // SAFETY: as the trait demands.
        unsafe { _mm256_sqrt_ps(self) }
    }

    #[inline(always)]
    unsafe fn load_halves(from: *const u8) -> Self::Halves {
        // SAFETY: as the trait demands.
        unsafe { _mm_loadu_si128(from.cast()) }
    }

    #[inline(always)]
    unsafe fn store_halves(halves: Self::Halves, into: *mut u8) {
        // SAFETY: as the trait demands.
        unsafe { _mm_storeu_si128(into.cast(), halves) }
    }

    #[inline(always)]
    unsafe fn f16_of(self) -> Self::Halves {
        // SAFETY: as the trait demands.
        unsafe { _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(self) }
    }

    #[inline(always)]
    unsafe fn bf16_of(self) -> Self::Halves {
        // SAFETY: as the trait demands.
        unsafe {
            let halves = bf16_of(_mm256_castps_si256(self));
            let upper = _mm256_extracti128_si256::<1>(halves);
            _mm_packus_epi32(_mm256_castsi256_si128(halves), upper)
        }
    }

    #[inline(always)]
    unsafe fn of_f16(halves: Self::Halves) -> Self {
        // SAFETY: as the trait demands.
        unsafe { _mm256_cvtph_ps(halves) }
    }

    #[inline(always)]
    unsafe fn of_bf16(halves: Self::Halves) -> Self {
        // SAFETY: as the trait demands.
        unsafe { _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(halves))) }
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
            let same = _mm256_cvtepi16_epi32(_mm_cmpeq_epi16(mine, truth));
            _mm256_blendv_ps(other, self, _mm256_castsi256_ps(same))
        }
    }
}
