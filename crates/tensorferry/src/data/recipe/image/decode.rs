//! Stored pictures to pixels, whatever their format, which is known by their first bytes.
//!
//! [`open`] reads the header and says how large the picture is. From that the caller decides which
//! [`View`] of it is wanted ([`plan`](super::geometry::plan)), and [`Opened::decode`] decodes at least
//! that. A picture that is too large is refused by its header, and costs nothing.

use super::change::Size;
use super::geometry::{View, too_large};
use super::orientation::Orientation;
use super::workspace::Buffers;
use super::{jpeg, png, unsupported, webp};
use crate::codec;
use crate::data::recipe::step::{Decode, Mode};
use crate::error::{Error, Kind, Result};

/// A picture whose header was read.
pub struct Opened<'a> {
    format: Format<'a>,
    /// The size in the file, before the picture is turned upright.
    stored: Size,
    orientation: Orientation,
    options: Decode,
}

enum Format<'a> {
    Jpeg(codec::jpeg::Picture<'a>),
    Png(Box<png::Opened<'a>>),
    Webp(webp::Opened<'a>),
}

/// What was decoded into [`Buffers`].
#[derive(Debug, Clone, Copy)]
pub struct Decoded {
    /// The size of what was decoded.
    pub size: Size,
    /// The view that was asked for, as it is on what was decoded.
    pub view: View,
}

/// Reads the header of a picture. `decoder` is made by the first JPEG picture, and used again.
pub fn open<'a>(
    bytes: &'a [u8],
    options: &Decode,
    decoder: &'a mut Option<codec::jpeg::Decoder>,
) -> Result<Opened<'a>> {
    let format = match bytes {
        [0xff, 0xd8, 0xff, ..] => Format::Jpeg(jpeg::open(bytes, decoder)?),
        [0x89, b'P', b'N', b'G', ..] => {
            Format::Png(Box::new(png::Opened::new(bytes, options.max_pixels)?))
        }
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => {
            Format::Webp(webp::Opened::new(bytes)?)
        }
        _ => return Err(unknown(bytes)),
    };
    let stored = match &format {
        Format::Jpeg(picture) => Size::new(picture.width(), picture.height()),
        Format::Png(picture) => picture.size(),
        Format::Webp(picture) => picture.size(),
    };
    if stored.pixels() > options.max_pixels {
        return Err(too_large(stored.width.into(), stored.height.into(), options.max_pixels));
    }
    let orientation = if options.apply_exif_orientation {
        Orientation::of(bytes)
    } else {
        Orientation::default()
    };
    Ok(Opened { format, stored, orientation, options: *options })
}

impl Opened<'_> {
    /// The size of the picture as it is seen: upright, where that was asked for.
    pub const fn size(&self) -> Size {
        self.orientation.size(self.stored)
    }

    /// Decodes at least `view` into `buffers`.
    pub fn decode(self, view: View, buffers: &mut Buffers) -> Result<Decoded> {
        let upright = self.orientation.is_upright();
        let needed = if upright { view } else { View::whole(self.stored) };
        let mut decoded = match self.format {
            Format::Jpeg(picture) => jpeg::decode(picture, needed, self.options.fast, buffers)?,
            Format::Png(picture) => picture.decode(needed, buffers)?,
            Format::Webp(picture) => picture.decode(needed, buffers)?,
        };
        if !upright {
            let Buffers { pixels, staging } = buffers;
            self.orientation.apply(pixels, decoded.size, staging);
            std::mem::swap(pixels, staging);
            decoded = Decoded { size: self.orientation.size(decoded.size), view };
        }
        if self.options.mode == Mode::Grey {
            to_grey(&mut buffers.pixels);
        }
        Ok(decoded)
    }
}

fn unknown(bytes: &[u8]) -> Error {
    if bytes.is_empty() {
        return Error::new(Kind::Truncated, "the picture is empty");
    }
    let what = unsupported::kind(bytes).map_or_else(
        || format!("starts with \"{}\"", bytes[..bytes.len().min(8)].escape_ascii()),
        |kind| format!("is {kind}"),
    );
    let advice = "convert it, take it off the list (extensions= of ImageFolder), or pass over it with \
                  on_error=\"skip\"";
    let message = format!("the file {what}, and only JPEG, PNG and WebP are decoded: {advice}");
    Error::new(Kind::Unsupported, message)
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
