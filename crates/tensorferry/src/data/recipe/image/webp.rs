//! WebP files, lossy and lossless.

use webp::{BitstreamFeatures, Decoder};

use super::change::Size;
use super::decode::Decoded;
use super::geometry::View;
use super::workspace::Buffers;
use crate::error::{Error, Kind, Result};

/// A file whose header was read.
pub struct Opened<'a> {
    bytes: &'a [u8],
    size: Size,
}

impl<'a> Opened<'a> {
    /// Reads the header.
    pub fn new(bytes: &'a [u8]) -> Result<Self> {
        let features = BitstreamFeatures::new(bytes).ok_or_else(damaged)?;
        if features.has_animation() {
            let what = "the WebP file is an animation, not a picture";
            return Err(Error::new(Kind::Unsupported, what));
        }
        Ok(Self { bytes, size: Size::new(features.width(), features.height()) })
    }

    /// Columns and rows.
    pub const fn size(&self) -> Size {
        self.size
    }

    /// Decodes the picture, as red, green and blue; alpha is left out, as Pillow's `convert("RGB")`
    /// does.
    pub fn decode(self, view: View, buffers: &mut Buffers) -> Result<Decoded> {
        let picture = Decoder::new(self.bytes).decode().ok_or_else(damaged)?;
        let pixels = &mut buffers.pixels;
        pixels.clear();
        if picture.is_alpha() {
            pixels.resize(picture.len() / 4 * 3, 0);
            let targets = pixels.as_chunks_mut::<3>().0.iter_mut();
            for (target, [red, green, blue, _]) in targets.zip(picture.as_chunks::<4>().0) {
                *target = [*red, *green, *blue];
            }
        } else {
            pixels.extend_from_slice(&picture);
        }
        Ok(Decoded { size: self.size, view })
    }
}

fn damaged() -> Error {
    Error::new(Kind::Corrupt, "the WebP file is damaged or ends too early")
}
