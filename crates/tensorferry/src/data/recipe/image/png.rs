//! PNG files, all of their colour types, as Pillow's `convert("RGB")` gives them.

use std::io::Cursor;

use png::{BitDepth, ColorType, Decoder, DecodingError, Limits, Reader, Transformations};

use super::change::Size;
use super::decode::Decoded;
use super::geometry::View;
use super::workspace::Buffers;
use crate::error::{Error, Kind, Result};

/// A file whose header was read.
pub struct Opened<'a> {
    reader: Reader<Cursor<&'a [u8]>>,
}

impl<'a> Opened<'a> {
    /// Reads the header; the library takes no more memory than `pixels_max` pixels need.
    pub fn new(bytes: &'a [u8], pixels_max: u64) -> Result<Self> {
        // Eight bytes for each pixel are what the largest colour type has, twice for what is on its
        // way.
        let limit = pixels_max.saturating_mul(16).saturating_add(1 << 20);
        let limits = Limits { bytes: usize::try_from(limit).unwrap_or(usize::MAX) };
        let mut decoder = Decoder::new_with_limits(Cursor::new(bytes), limits);
        decoder.set_transformations(Transformations::EXPAND);
        decoder.set_ignore_text_chunk(true);
        decoder.set_ignore_iccp_chunk(true);
        Ok(Self { reader: decoder.read_info().map_err(|error| damaged(&error))? })
    }

    /// Columns and rows.
    pub fn size(&self) -> Size {
        let info = self.reader.info();
        Size::new(info.width, info.height)
    }

    /// Decodes the picture, as red, green and blue.
    pub fn decode(mut self, view: View, buffers: &mut Buffers) -> Result<Decoded> {
        let size = self.size();
        let info = self.reader.info();
        let clip = (info.color_type, info.bit_depth) == (ColorType::Grayscale, BitDepth::Sixteen);
        let bytes = self.reader.output_buffer_size();
        let bytes = bytes.ok_or_else(|| Error::new(Kind::Corrupt, "the PNG file has no size"))?;
        let Buffers { pixels, staging } = buffers;
        staging.resize(bytes, 0);
        let frame = self.reader.next_frame(staging).map_err(|error| damaged(&error))?;
        let read = &staging[..frame.buffer_size()];
        convert(read, frame.color_type, frame.bit_depth, clip, pixels);
        Ok(Decoded { size, view })
    }
}

/// To three bytes a pixel. Alpha is left out; of 16 bits the upper eight are kept, but grey alone is
/// cut off at 255 (`clip`): both are what Pillow does.
fn convert(pixels: &[u8], colour: ColorType, depth: BitDepth, clip: bool, into: &mut Vec<u8>) {
    let wide = depth == BitDepth::Sixteen;
    let bytes = if wide { 2 } else { 1 };
    let (samples, grey) = match colour {
        ColorType::Grayscale => (1, true),
        ColorType::GrayscaleAlpha => (2, true),
        ColorType::Rgb | ColorType::Indexed => (3, false),
        ColorType::Rgba => (4, false),
    };
    let value = |sample: &[u8]| match sample {
        [0, low] if clip => *low,
        [_, _] if clip => u8::MAX,
        _ => sample[0],
    };
    let pixels = pixels.chunks_exact(samples * bytes);
    into.resize(pixels.len() * 3, 0);
    for (target, pixel) in into.as_chunks_mut::<3>().0.iter_mut().zip(pixels) {
        *target =
            if grey { [value(&pixel[..bytes]); 3] } else { [0, 1, 2].map(|at| pixel[at * bytes]) };
    }
}

fn damaged(error: &DecodingError) -> Error {
    let kind = match error {
        DecodingError::IoError(_) => Kind::Truncated,
        _ => Kind::Corrupt,
    };
    Error::new(kind, format!("the PNG file can't be decoded: {error}"))
}
