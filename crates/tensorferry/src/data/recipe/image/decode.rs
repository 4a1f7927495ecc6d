//! Stored pictures to pixels, whatever their format, which is known by their first bytes.
//!
//! A decoder first says how large the picture is, is told which [`View`] of it is wanted, and then
//! decodes at least that. So the chain decides before anything is decoded, and a picture that is too
//! large costs nothing.

use std::borrow::Cow;

use super::change::Size;
use super::foreign;
use super::geometry::{View, too_large};
use super::orientation::Turn;
use super::pixels::Resizer;
use super::{jpeg, png, webp};
use crate::codec;
use crate::data::recipe::step::{Decode, Mode};
use crate::data::sample::{Field, Raw};
use crate::error::{Error, Kind, Result};

/// Decoders and memory of one thread, used again for every picture.
#[derive(Default)]
pub struct Tools {
    pub(super) jpeg: Option<codec::jpeg::Decoder>,
    pub(super) resizer: Resizer,
    pub(super) decoded: Vec<u8>,
    /// What was decoded on the way, before colours were converted.
    pub(super) inks: Vec<u8>,
    /// Results of resizing.
    pub(super) front: Vec<u8>,
    pub(super) back: Vec<u8>,
}

/// What a thread keeps between two pictures, in each of its buffers: a rare large one must not stay.
const KEPT_BYTES_MAX: usize = 64 << 20;

impl Tools {
    /// What was decoded.
    pub fn decoded(&self) -> &[u8] {
        &self.decoded
    }

    /// Gives back what a very large picture needed.
    pub fn tidy(&mut self) {
        for buffer in [&mut self.decoded, &mut self.inks, &mut self.front, &mut self.back] {
            if buffer.capacity() > KEPT_BYTES_MAX {
                *buffer = Vec::new();
            }
        }
        if self.resizer.size_of_internal_buffers() > KEPT_BYTES_MAX {
            self.resizer.reset_internal_buffers();
        }
    }
}

/// Tells, for a picture of this size, what of it is wanted.
pub type Ask<'a> = &'a mut dyn FnMut(Size) -> Result<View>;

/// Pixels, and the view of them that was asked for.
#[derive(Debug, Clone, Copy)]
pub struct Found {
    /// The size of what was decoded.
    pub size: Size,
    /// The view that was asked for, as it is on what was decoded.
    pub view: View,
}

/// Decodes at least what `ask` wants into `tools.decoded`.
pub fn decode(bytes: &[u8], options: &Decode, tools: &mut Tools, ask: Ask<'_>) -> Result<Found> {
    let turn = if options.apply_exif_orientation { Turn::of(bytes) } else { Turn::default() };
    let mut wanted = None;
    let mut limited = |size: Size| {
        if size.pixels() > options.max_pixels {
            return Err(too_large(size.width.into(), size.height.into(), options.max_pixels));
        }
        let view = ask(turn.size(size))?;
        wanted = Some(view);
        Ok(if turn.is_upright() { view } else { View::whole(size) })
    };
    let mut found = match bytes {
        [0xff, 0xd8, 0xff, ..] => jpeg::decode(bytes, options, tools, &mut limited)?,
        [0x89, b'P', b'N', b'G', ..] => png::decode(bytes, options, tools, &mut limited)?,
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => {
            webp::decode(bytes, tools, &mut limited)?
        }
        _ => return Err(unknown(bytes)),
    };
    if let (false, Some(view)) = (turn.is_upright(), wanted) {
        turn.apply(&tools.decoded, found.size, &mut tools.inks);
        std::mem::swap(&mut tools.decoded, &mut tools.inks);
        found = Found { size: turn.size(found.size), view };
    }
    if options.mode == Mode::Grey {
        to_grey(&mut tools.decoded);
    }
    Ok(found)
}

fn unknown(bytes: &[u8]) -> Error {
    if bytes.is_empty() {
        return Error::new(Kind::Truncated, "the picture is empty");
    }
    let what = foreign::kind(bytes).map_or_else(
        || format!("starts with \"{}\"", bytes[..bytes.len().min(8)].escape_ascii()),
        |kind| format!("is {kind}"),
    );
    let advice = "convert it, take it off the list (extensions= of ImageFolder), or pass over it with \
                  on_error=\"skip\"";
    let told = format!("the file {what}, and only JPEG, PNG and WebP are decoded: {advice}");
    Error::new(Kind::Unsupported, told)
}

/// Lightness as Pillow computes it, in place.
fn to_grey(pixels: &mut Vec<u8>) {
    let count = pixels.len() / 3;
    for at in 0..count {
        let [red, green, blue] = [0, 1, 2].map(|channel| u32::from(pixels[at * 3 + channel]));
        pixels[at] = ((red * 19595 + green * 38470 + blue * 7471 + 0x8000) >> 16) as u8;
    }
    pixels.truncate(count);
}

/// Decoded pixels as a cache keeps them: this header, then the pixels, row by row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kept {
    /// The size of the picture.
    pub size: Size,
    /// Bytes of a pixel.
    pub channels: usize,
}

impl Kept {
    /// No picture file starts like this.
    const MAGIC: [u8; 8] = *b"\x93TFpix1\n";
    /// Bytes of the header.
    pub const BYTES: usize = 20;

    /// The header in front of kept pixels; none if these are something else.
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
    pub fn rows<'a>(self, field: Field<'a>, view: &View) -> Result<(Cow<'a, [u8]>, Found)> {
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
        Ok((rows, Found { size, view: view.onto(needed, (0, needed.top)) }))
    }
}
