//! A tensor as its nonzero elements and one bit for each element.
//!
//! Elements are 2 or 4 bytes wide and are taken in rows of 128. An encoding is a header, one
//! 128-bit bitmap for each row (bit *i* is set if element *i* of the row is stored), one offset for
//! each row (how many elements are stored before it) and the stored elements in order. The bytes
//! are laid out in `docs/formats.md`.
//!
//! An element is left out only if all of its bits are zero: `-0.0` is stored, and so is every NaN
//! with its payload. So decoding gives back every bit.
//!
//! # The decoder trusts nothing
//!
//! An encoding comes from a disk. The header must agree with the length, each offset with the
//! bitmaps before it, and bits past the last element must be zero. Anything else is an error that
//! names the field and where it is. The stored values may be anything: give the whole encoding a
//! [checksum](super::checksum) to know that they are what was written.
//!
//! # How a row is done
//!
//! A kernel compresses one whole row into room for one whole row, or expands one from such room.
//! A vector store may then write past the elements that count but never past the room, so that no
//! kernel needs a bounds check. At the ends, where less room is left, a row goes through a copy on
//! the stack. The offsets are for readers that start in the middle: with [`decode_rows_into`]
//! several threads can decode one encoding.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod decode;
mod encode;
mod header;
mod kernel;
mod portable;
#[cfg(target_arch = "x86_64")]
mod tables;
#[cfg(test)]
mod tests;

use std::ops::Range;

pub use header::{ELEMENTS_MAX, Header};

use super::Level;
use super::level::Usable;
use crate::error::{Error, Kind, Result};

/// Elements in a row.
pub const ROW_ELEMENTS: usize = 128;

/// Bytes in a whole row of elements of 2 and of 4 bytes.
const ROW_OF_TWO: usize = ROW_ELEMENTS * 2;
const ROW_OF_FOUR: usize = ROW_ELEMENTS * 4;

/// The width of an element, the only thing that the codec knows about its type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Width {
    /// `f16`, `bf16`, `i16`, ...
    Two,
    /// `f32`, `i32`, ...
    Four,
}

impl Width {
    /// The width of elements of `bytes` bytes; only 2 and 4 are supported.
    pub fn from_bytes(bytes: usize) -> Result<Self> {
        match bytes {
            2 => Ok(Self::Two),
            4 => Ok(Self::Four),
            _ => Err(Error::new(
                Kind::Unsupported,
                "the bitmap codec takes elements of 2 or 4 bytes",
            )
            .with("width", bytes)),
        }
    }

    /// Bytes in an element.
    pub const fn bytes(self) -> usize {
        match self {
            Self::Two => 2,
            Self::Four => 4,
        }
    }
}

/// The exact length of the encoding of `src`, found by counting its nonzero elements.
///
/// This reads `src` once and writes nothing, so that a tensor which would not shrink can be left
/// as it is at little cost.
pub fn encoded_len(src: &[u8], width: Width) -> Result<usize> {
    encode::measure(Usable::best(), src, width)
}

/// [`encoded_len`] with the instructions of `level`.
pub fn encoded_len_at(level: Level, src: &[u8], width: Width) -> Result<usize> {
    encode::measure(level.check()?, src, width)
}

/// The length that no encoding of `len` bytes exceeds.
pub fn encoded_len_max(len: usize, width: Width) -> usize {
    let rows = len.div_ceil(width.bytes() * ROW_ELEMENTS);
    let index = rows.saturating_mul(header::BITMAP_BYTES + header::OFFSET_BYTES);
    header::HEADER_BYTES.saturating_add(index).saturating_add(len)
}

/// Encodes `src` into the beginning of `dst` and returns the length of the encoding.
///
/// `src` must hold whole elements, at most [`ELEMENTS_MAX`]. A `dst` of [`encoded_len`] bytes is
/// enough; with a shorter one the result is an error, and what `dst` then holds means nothing. The
/// bytes of `dst` after the encoding may be overwritten too.
pub fn encode_into(src: &[u8], width: Width, dst: &mut [u8]) -> Result<usize> {
    encode::encode(Usable::best(), src, width, dst)
}

/// [`encode_into`] with the instructions of `level`.
pub fn encode_into_at(level: Level, src: &[u8], width: Width, dst: &mut [u8]) -> Result<usize> {
    encode::encode(level.check()?, src, width, dst)
}

/// Reads and checks the header of an encoding, and that the encoding has the length it announces.
///
/// This is what a caller needs to make room for the decoded tensor, and takes constant time. A
/// header announces less than 26 times the bytes that are there (a row of 512 zero bytes takes
/// 20), so that a forged one can't make the caller reserve memory without bound.
pub fn inspect(encoded: &[u8]) -> Result<Header> {
    Header::parse(encoded)
}

/// Decodes the whole of `encoded` into `dst`, whose length must be [`Header::decoded_len`].
///
/// After an error, what `dst` holds means nothing.
pub fn decode_into(encoded: &[u8], dst: &mut [u8]) -> Result<()> {
    let header = inspect(encoded)?;
    decode::decode(Usable::best(), header, encoded, 0..header.rows(), dst)
}

/// [`decode_into`] with the instructions of `level`.
pub fn decode_into_at(level: Level, encoded: &[u8], dst: &mut [u8]) -> Result<()> {
    let header = inspect(encoded)?;
    decode::decode(level.check()?, header, encoded, 0..header.rows(), dst)
}

/// Decodes some of the rows into `dst`, whose length must be [`Header::rows_len`] of them.
///
/// Disjoint ranges can be decoded by several threads at once. Each checks its own rows and that
/// they meet their neighbours, so that an encoding is valid if ranges that cover it are.
pub fn decode_rows_into(encoded: &[u8], rows: Range<usize>, dst: &mut [u8]) -> Result<()> {
    decode::decode(Usable::best(), inspect(encoded)?, encoded, rows, dst)
}

/// [`decode_rows_into`] with the instructions of `level`.
pub fn decode_rows_into_at(
    level: Level,
    encoded: &[u8],
    rows: Range<usize>,
    dst: &mut [u8],
) -> Result<()> {
    decode::decode(level.check()?, inspect(encoded)?, encoded, rows, dst)
}
