//! Halves in plain Rust, one number at a time.
//!
//! Every candidate is computed and one is selected: a branch on the data would often be
//! mispredicted. Rounding is done with integers, so that no rounding mode or flush-to-zero mode of
//! the thread can change a bit.

const INFINITY: u32 = 0x7f80_0000;
/// What the exponents' biases differ by, 127 and 15, where an `f32` has its exponent.
const BIAS: u32 = (127 - 15) << 23;
/// The smallest normal `f16`, 2^-14, and the smallest power of two that none reaches, 2^16.
const F16_NORMAL_MIN: u32 = 0x3880_0000;
const F16_TOO_LARGE: u32 = 0x4780_0000;
/// The smallest subnormal `f16`, 2^-24.
const F16_STEP: f32 = f32::from_bits(0x3380_0000);

/// An `f16`'s bits from an `f32`'s.
#[inline]
pub(super) fn f16_of(bits: u32) -> u16 {
    let sign = (bits >> 16) as u16 & 0x8000;
    let magnitude = bits & 0x7fff_ffff;
    // Below the normal ones an f16 counts multiples of 2^-24. Shifts by 25 give zero, as all
    // larger ones would.
    let significand = (magnitude & 0x007f_ffff) | 0x0080_0000;
    let shift = 126u32.saturating_sub(magnitude >> 23).clamp(1, 25);
    let subnormal = shift_to_nearest_even(significand, shift) as u16;
    // A carry out of the fraction goes to the exponent, up to infinity.
    let normal = shift_to_nearest_even(magnitude.wrapping_sub(BIAS) & 0x7fff_ffff, 13) as u16;
    let nan = 0x7e00 | (magnitude >> 13) as u16 & 0x03ff;
    let infinity = 0x7c00;

    let finite = if magnitude < F16_NORMAL_MIN { subnormal } else { normal };
    let number = if magnitude < F16_TOO_LARGE { finite } else { infinity };
    sign | if magnitude <= INFINITY { number } else { nan }
}

/// An `f32`'s bits from an `f16`'s.
#[inline]
pub(super) fn f32_of_f16(half: u16) -> u32 {
    let sign = u32::from(half & 0x8000) << 16;
    let magnitude = u32::from(half & 0x7fff);
    // Exact, and never a subnormal f32 that a mode could flush.
    let subnormal = (magnitude as f32 * F16_STEP).to_bits();
    let normal = (magnitude << 13) + BIAS;
    let special = (magnitude << 13) | INFINITY;
    let quiet = if magnitude > 0x7c00 { 0x0040_0000 } else { 0 };

    let finite = if magnitude < 0x0400 { subnormal } else { normal };
    sign | if magnitude < 0x7c00 { finite } else { special | quiet }
}

/// A `bf16`'s bits from an `f32`'s.
#[inline]
pub(super) fn bf16_of(bits: u32) -> u16 {
    if bits & 0x7fff_ffff > INFINITY {
        return (bits >> 16) as u16 | 0x0040;
    }
    shift_to_nearest_even(bits, 16) as u16
}

/// An `f32`'s bits from a `bf16`'s.
#[inline]
pub(super) fn f32_of_bf16(half: u16) -> u32 {
    u32::from(half) << 16
}

/// `number / 2^shift`, rounded to the nearest, ties to even; `shift` is at least one. Nothing that
/// is passed here is large enough for the sum to overflow.
#[inline]
const fn shift_to_nearest_even(number: u32, shift: u32) -> u32 {
    let odd = number >> shift & 1;
    (number + (1 << (shift - 1)) - 1 + odd) >> shift
}

pub(super) fn narrow_f16(src: &[u8], dst: &mut [u8]) -> usize {
    narrow(src, dst, f16_of)
}

pub(super) fn narrow_bf16(src: &[u8], dst: &mut [u8]) -> usize {
    narrow(src, dst, bf16_of)
}

pub(super) fn widen_f16(src: &[u8], dst: &mut [u8]) -> usize {
    widen(src, dst, f32_of_f16)
}

pub(super) fn widen_bf16(src: &[u8], dst: &mut [u8]) -> usize {
    widen(src, dst, f32_of_bf16)
}

fn narrow(src: &[u8], dst: &mut [u8], convert: impl Fn(u32) -> u16) -> usize {
    for (number, half) in src.as_chunks().0.iter().zip(dst.as_chunks_mut().0) {
        *half = convert(u32::from_le_bytes(*number)).to_le_bytes();
    }
    dst.len()
}

fn widen(src: &[u8], dst: &mut [u8], convert: impl Fn(u16) -> u32) -> usize {
    for (half, number) in src.as_chunks().0.iter().zip(dst.as_chunks_mut().0) {
        *number = convert(u16::from_le_bytes(*half)).to_le_bytes();
    }
    dst.len()
}
