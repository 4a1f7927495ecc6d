//! Decoded pixels as a cache keeps them: a header, then the pixels, row by row.

use std::borrow::Cow;

use super::change::Size;
use super::decode::Decoded;
use super::geometry::View;
use crate::data::sample::{Field, Raw};
use crate::error::{Error, Kind, Result};

/// The header: size and bytes of a pixel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CachedPixels {
    /// The size of the picture.
    pub size: Size,
    /// Bytes of a pixel.
    pub channels: usize,
}

impl CachedPixels {
    /// No picture file starts like this.
    const MAGIC: [u8; 8] = *b"\x93TFpix1\n";
    /// Bytes of the header.
    pub const BYTES: usize = 20;

    /// The header in front of cached pixels; none if these are something else.
    pub fn of(field: Field<'_>) -> Result<Option<Self>> {
        let mut header = [0; Self::BYTES];
        if field.len() < Self::BYTES as u64 {
            return Ok(None);
        }
        field.read_at(0, &mut header)?;
        if header[..8] != Self::MAGIC {
            return Ok(None);
        }
        let number =
            |at| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let (size, channels) = (Size::new(number(8), number(12)), number(16) as usize);
        let bytes = size.pixels().checked_mul(channels as u64);
        let fits = bytes.is_some_and(|bytes| bytes == field.len() - Self::BYTES as u64);
        if !fits || size.pixels() == 0 || !matches!(channels, 1 | 3) {
            return Err(Error::new(Kind::Corrupt, "decoded pixels are not as many as they say"));
        }
        Ok(Some(Self { size, channels }))
    }

    /// Header and pixels.
    pub fn raw(self, pixels: &[u8]) -> Raw {
        let mut bytes = Vec::with_capacity(Self::BYTES + pixels.len());
        bytes.extend(Self::MAGIC);
        for number in [self.size.width, self.size.height, self.channels as u32] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(pixels);
        Raw::single(bytes)
    }

    /// The rows that a view needs, and the view on them.
    pub fn rows<'a>(self, field: Field<'a>, view: &View) -> Result<(Cow<'a, [u8]>, Decoded)> {
        let needed = view.needed();
        let across = self.size.width as usize * self.channels;
        let start = Self::BYTES + needed.top as usize * across;
        let length = needed.height as usize * across;
        let rows = match field {
            Field::Memory(bytes) => Cow::Borrowed(&bytes[start..start + length]),
            Field::Stored { .. } => {
                let mut rows = vec![0; length];
                field.read_at(start as u64, &mut rows)?;
                Cow::Owned(rows)
            }
        };
        let size = Size::new(self.size.width, needed.height);
        Ok((rows, Decoded { size, view: view.onto(needed, (0, needed.top)) }))
    }
}
