//! `f32` narrowed to a 16-bit float and widened back.
//!
//! # What is kept
//!
//! Widening is exact for every number. Narrowing rounds to the nearest half, ties to the one whose
//! last bit is zero, subnormals included; what is too large for the format becomes an infinity.
//! Signs are kept, also of zeros and NaNs, and infinities stay infinities.
//!
//! A NaN stays a NaN: narrowing keeps the upper bits of its payload and sets the quiet bit, without
//! which a payload in the lower bits alone would turn into an infinity. Widening an `f16` sets the
//! quiet bit too, because the processor's instruction does; widening a `bf16` moves bits and sets
//! nothing. So a half that is widened and narrowed again is the same, except that a signalling
//! NaN is then quiet.
//!
//! All levels agree on every bit of this, whatever rounding mode or flush-to-zero mode the thread
//! has set: activations must not depend on the machine they were read on.
//!
//! # Large outputs
//!
//! An output too large for the cache is written past it: fetching each line only to overwrite it
//! would cost a third of the memory traffic.

#[cfg(target_arch = "x86_64")]
pub(super) mod avx2;
#[cfg(target_arch = "x86_64")]
pub(super) mod avx512;
mod portable;
#[cfg(test)]
mod tests;

use super::Level;
use super::level::Usable;
use crate::error::{Error, Result};

/// A 16-bit format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// IEEE 754 binary16: 5 bits of exponent, 10 of fraction.
    F16,
    /// The upper half of an `f32`: 8 bits of exponent, 7 of fraction.
    Bf16,
}

impl Format {
    /// Both formats.
    pub const ALL: [Self; 2] = [Self::F16, Self::Bf16];

    /// The format's name as PyTorch spells it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F16 => "float16",
            Self::Bf16 => "bfloat16",
        }
    }
}

/// Narrows the `f32`s in `src` to halves in `dst`, which has half as many bytes.
pub fn narrow(format: Format, src: &[u8], dst: &mut [u8]) -> Result<()> {
    narrow_with(Usable::best(), format, src, dst)
}

/// [`narrow`] with the instructions of `level`.
pub fn narrow_at(level: Level, format: Format, src: &[u8], dst: &mut [u8]) -> Result<()> {
    narrow_with(level.check()?, format, src, dst)
}

/// Widens the halves in `src` to `f32`s in `dst`, which has twice as many bytes.
pub fn widen(format: Format, src: &[u8], dst: &mut [u8]) -> Result<()> {
    widen_with(Usable::best(), format, src, dst)
}

/// [`widen`] with the instructions of `level`.
pub fn widen_at(level: Level, format: Format, src: &[u8], dst: &mut [u8]) -> Result<()> {
    widen_with(level.check()?, format, src, dst)
}

/// Narrows one number.
pub fn narrow_one(format: Format, number: f32) -> u16 {
    match format {
        Format::F16 => portable::f16_of(number.to_bits()),
        Format::Bf16 => portable::bf16_of(number.to_bits()),
    }
}

/// Widens one half.
pub fn widen_one(format: Format, half: u16) -> f32 {
    f32::from_bits(match format {
        Format::F16 => portable::f32_of_f16(half),
        Format::Bf16 => portable::f32_of_bf16(half),
    })
}

/// Outputs of at least this many bytes are written past the cache, which would not hold them.
/// The unit tests set it low so that small cases go both ways.
const STREAM_BYTES_MIN: usize = if cfg!(test) { 4 << 10 } else { 16 << 20 };

/// The alignment that a kernel needs to write past the cache: a line of it.
const STREAM_ALIGN: usize = 64;

fn narrow_with(usable: Usable, format: Format, src: &[u8], dst: &mut [u8]) -> Result<()> {
    if !src.len().is_multiple_of(4) || dst.len() != src.len() / 2 {
        return Err(wrong_lengths("narrowing takes whole f32s to half as many bytes", src, dst));
    }
    let kernel = kernels(usable, format).narrow;
    let scalar = kernels(Usable::portable(), format).narrow;
    run::<4, 2>(kernel, scalar, src, dst);
    Ok(())
}

fn widen_with(usable: Usable, format: Format, src: &[u8], dst: &mut [u8]) -> Result<()> {
    if !src.len().is_multiple_of(2) || src.len().checked_mul(2) != Some(dst.len()) {
        return Err(wrong_lengths("widening takes whole halves to twice as many bytes", src, dst));
    }
    let kernel = kernels(usable, format).widen;
    let scalar = kernels(Usable::portable(), format).widen;
    run::<2, 4>(kernel, scalar, src, dst);
    Ok(())
}

/// Converts elements from the front of a slice, as many as make up whole blocks of the kernel, and
/// returns how many bytes of the output that was.
type Kernel = unsafe fn(&[u8], &mut [u8]) -> usize;

struct Kernels {
    narrow: Kernel,
    widen: Kernel,
}

fn kernels(usable: Usable, format: Format) -> Kernels {
    match (usable.level(), format) {
        #[cfg(target_arch = "x86_64")]
        (Level::Avx512, Format::F16) => {
            Kernels { narrow: avx512::narrow_f16, widen: avx512::widen_f16 }
        }
        #[cfg(target_arch = "x86_64")]
        (Level::Avx512, Format::Bf16) => {
            Kernels { narrow: avx512::narrow_bf16, widen: avx512::widen_bf16 }
        }
        #[cfg(target_arch = "x86_64")]
        (Level::Avx2, Format::F16) => Kernels { narrow: avx2::narrow_f16, widen: avx2::widen_f16 },
        #[cfg(target_arch = "x86_64")]
        (Level::Avx2, Format::Bf16) => {
            Kernels { narrow: avx2::narrow_bf16, widen: avx2::widen_bf16 }
        }
        (_, Format::F16) => Kernels { narrow: portable::narrow_f16, widen: portable::widen_f16 },
        (_, Format::Bf16) => Kernels { narrow: portable::narrow_bf16, widen: portable::widen_bf16 },
    }
}

/// Converts elements of `IN` bytes to elements of `OUT` bytes: with `scalar` up to where the
/// output is aligned for streaming (if it is large) and after the last whole block, and with
/// `kernel` between.
fn run<const IN: usize, const OUT: usize>(
    kernel: Kernel,
    scalar: Kernel,
    src: &[u8],
    dst: &mut [u8],
) {
    let unaligned = dst.as_ptr().align_offset(STREAM_ALIGN);
    let streams = dst.len() >= STREAM_BYTES_MIN && unaligned.is_multiple_of(OUT);
    let head = if streams { unaligned / OUT } else { 0 };
    let (src_head, src) = src.split_at(head * IN);
    let (dst_head, dst) = dst.split_at_mut(head * OUT);
    // SAFETY: kernels ask only that the processor has their level, which `Usable` proved to
    // `kernels`.
    unsafe {
        scalar(src_head, dst_head);
        let done = kernel(src, dst) / OUT;
        scalar(&src[done * IN..], &mut dst[done * OUT..]);
    }
}

/// Whether a kernel writes `dst` past the cache.
#[cfg(target_arch = "x86_64")]
fn streams(dst: &[u8]) -> bool {
    // The head that was split off is too short to matter.
    dst.len() + STREAM_ALIGN > STREAM_BYTES_MIN && dst.as_ptr().addr().is_multiple_of(STREAM_ALIGN)
}

/// Ends a kernel. Writes past the cache are not ordered with others, as every other write in Rust
/// is, until a fence.
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "sse")]
fn finish<const STREAM: bool>() {
    if STREAM {
        std::arch::x86_64::_mm_sfence();
    }
}

#[cold]
fn wrong_lengths(message: &str, src: &[u8], dst: &[u8]) -> Error {
    Error::invalid(message).with("source_bytes", src.len()).with("destination_bytes", dst.len())
}
