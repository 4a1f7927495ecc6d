//! The header of an encoding and the places of its sections; see `docs/formats.md`.

use std::ops::Range;

use super::{ROW_ELEMENTS, Width};
use crate::error::{Error, Kind, Result};

/// The most elements in one encoding: as many as a row's 32-bit offset can count.
pub const ELEMENTS_MAX: u64 = u32::MAX as u64;

pub(super) const HEADER_BYTES: usize = 32;
pub(super) const BITMAP_BYTES: usize = ROW_ELEMENTS / 8;
pub(super) const OFFSET_BYTES: usize = 4;

const MAGIC: [u8; 4] = *b"TFBM";
const VERSION: u16 = 1;

/// What an encoding says about itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The width of an element.
    pub width: Width,
    /// How many elements the tensor has.
    pub elements: u64,
    /// How many of them are stored; the others are zero.
    pub stored: u64,
}

impl Header {
    /// How many rows the tensor has; the last one may be shorter.
    pub fn rows(&self) -> usize {
        self.elements.div_ceil(ROW_ELEMENTS as u64) as usize
    }

    /// Bytes in the tensor.
    pub fn decoded_len(&self) -> usize {
        self.elements as usize * self.width.bytes()
    }

    /// Bytes in these rows of the tensor; rows that it does not have count as empty.
    pub fn rows_len(&self, rows: &Range<usize>) -> usize {
        let start = |row: usize| {
            let elements = row.saturating_mul(ROW_ELEMENTS).min(self.elements as usize);
            elements * self.width.bytes()
        };
        start(rows.end).saturating_sub(start(rows.start))
    }

    /// Bytes in the encoding.
    pub fn encoded_len(&self) -> usize {
        self.values_start() + self.stored as usize * self.width.bytes()
    }

    /// Where the row offsets begin.
    pub(super) fn offsets_start(&self) -> usize {
        HEADER_BYTES + self.rows() * BITMAP_BYTES
    }

    /// Where the stored elements begin.
    pub(super) fn values_start(&self) -> usize {
        self.offsets_start() + self.rows() * OFFSET_BYTES
    }

    pub(super) fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..6].copy_from_slice(&VERSION.to_le_bytes());
        bytes[6] = self.width.bytes() as u8;
        bytes[8..16].copy_from_slice(&self.elements.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.stored.to_le_bytes());
        bytes
    }

    /// Reads the header at the beginning of a whole encoding.
    pub(super) fn parse(encoded: &[u8]) -> Result<Self> {
        let Some(bytes) = encoded.first_chunk::<HEADER_BYTES>() else {
            return Err(Error::new(Kind::Truncated, "the bitmap encoding ends in its header")
                .with("length", encoded.len())
                .with("header", HEADER_BYTES));
        };
        if bytes[..4] != MAGIC {
            return Err(corrupt("magic", 0, "these bytes are not a bitmap encoding"));
        }
        let version = u16::from_le_bytes([bytes[4], bytes[5]]);
        if version != VERSION {
            return Err(Error::new(Kind::Unsupported, "bitmap encoding of an unknown version")
                .with("version", version)
                .with("known", VERSION));
        }
        let width = Width::from_bytes(usize::from(bytes[6]))
            .map_err(|_| corrupt("width", 6, "the element width is neither 2 nor 4"))?;
        if bytes[7] != 0 || bytes[24..] != [0; 8] {
            return Err(corrupt("reserved", 7, "a reserved byte of the header is not zero"));
        }
        let header = Self { width, elements: number(bytes, 8), stored: number(bytes, 16) };
        header.check(encoded.len() as u64)
    }

    /// Refuses counts that contradict one another or the length. The counts are bounded first, so
    /// that the sums after that can't overflow.
    fn check(self, length: u64) -> Result<Self> {
        if self.elements > ELEMENTS_MAX || usize::try_from(self.elements * 5 + 64).is_err() {
            return Err(corrupt("elements", 8, "more elements than an encoding can hold")
                .with("elements", self.elements));
        }
        if self.stored > self.elements {
            return Err(corrupt("stored", 16, "more elements are stored than there are")
                .with("stored", self.stored)
                .with("elements", self.elements));
        }
        let announced = self.encoded_len() as u64;
        if length < announced {
            return Err(Error::new(Kind::Truncated, "the bitmap encoding ends too early")
                .with("length", length)
                .with("announced", announced));
        }
        if length > announced {
            return Err(corrupt("length", announced as usize, "bytes follow the bitmap encoding")
                .with("length", length));
        }
        Ok(self)
    }
}

/// The little-endian number at `place`, which is a constant within the header.
fn number(bytes: &[u8; HEADER_BYTES], place: usize) -> u64 {
    bytes[place..place + 8].iter().rev().fold(0, |high, byte| high << 8 | u64::from(*byte))
}

/// An error that names the field and the byte at which it begins.
#[cold]
pub(super) fn corrupt(field: &'static str, offset: usize, message: &str) -> Error {
    Error::new(Kind::Corrupt, message).with("field", field).with("offset", offset)
}
