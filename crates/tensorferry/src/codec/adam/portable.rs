//! Steps in plain Rust: what is right.

use super::lanes::{self, Lanes};
use super::{Checked, Factors};
use crate::codec::half::{Format, narrow_one, widen_one};

pub(super) fn step(factors: &Factors, run: Checked<'_>) {
    // SAFETY: every processor has these instructions.
    unsafe { lanes::all::<Eight>(factors, run) }
}

/// As many as the compiler can make registers of.
#[derive(Clone, Copy)]
struct Eight([f32; 8]);

impl Eight {
    #[inline(always)]
    fn with(self, other: Self, operation: impl Fn(f32, f32) -> f32) -> Self {
        Self(std::array::from_fn(|lane| operation(self.0[lane], other.0[lane])))
    }
}

impl Lanes for Eight {
    type Halves = [u16; 8];
    const WIDTH: usize = 8;

    #[inline(always)]
    unsafe fn splat(number: f32) -> Self {
        Self([number; 8])
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: valid for eight numbers, as the trait demands.
        let bytes: [[u8; 4]; 8] = unsafe { from.cast::<[[u8; 4]; 8]>().read() };
        Self(bytes.map(f32::from_le_bytes))
    }

    #[inline(always)]
    unsafe fn store(self, into: *mut u8) {
        // SAFETY: as in `load`.
        unsafe { into.cast::<[[u8; 4]; 8]>().write(self.0.map(f32::to_le_bytes)) }
    }

    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        self.with(other, |a, b| a + b)
    }

    #[inline(always)]
    unsafe fn sub(self, other: Self) -> Self {
        self.with(other, |a, b| a - b)
    }

    #[inline(always)]
    unsafe fn mul(self, other: Self) -> Self {
        self.with(other, |a, b| a * b)
    }

    #[inline(always)]
    unsafe fn div(self, other: Self) -> Self {
        self.with(other, |a, b| a / b)
    }

    #[inline(always)]
    unsafe fn sqrt(self) -> Self {
        Self(self.0.map(f32::sqrt))
    }

    #[inline(always)]
    unsafe fn load_halves(from: *const u8) -> Self::Halves {
        // SAFETY: valid for eight halves, as the trait demands.
        let bytes: [[u8; 2]; 8] = unsafe { from.cast::<[[u8; 2]; 8]>().read() };
        bytes.map(u16::from_le_bytes)
    }

    #[inline(always)]
    unsafe fn store_halves(halves: Self::Halves, into: *mut u8) {
        // SAFETY: as in `load_halves`.
        unsafe { into.cast::<[[u8; 2]; 8]>().write(halves.map(u16::to_le_bytes)) }
    }

    #[inline(always)]
    unsafe fn f16_of(self) -> Self::Halves {
        self.0.map(|number| narrow_one(Format::F16, number))
    }

    #[inline(always)]
    unsafe fn bf16_of(self) -> Self::Halves {
        self.0.map(|number| narrow_one(Format::Bf16, number))
    }

    #[inline(always)]
    unsafe fn of_f16(halves: Self::Halves) -> Self {
        Self(halves.map(|half| widen_one(Format::F16, half)))
    }

    #[inline(always)]
    unsafe fn of_bf16(halves: Self::Halves) -> Self {
        Self(halves.map(|half| widen_one(Format::Bf16, half)))
    }

    #[inline(always)]
    unsafe fn prefetch(_from: *const u8) {}

    #[inline(always)]
    unsafe fn where_same(self, other: Self, [mine, truth]: [Self::Halves; 2]) -> Self {
        let choose = |lane| if mine[lane] == truth[lane] { self.0[lane] } else { other.0[lane] };
        Self(std::array::from_fn(choose))
    }
}
