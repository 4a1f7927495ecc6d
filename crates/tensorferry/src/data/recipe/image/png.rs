//! PNG files, all of their colour types, as Pillow's `convert("RGB")` gives them.

use std::io::Cursor;

use png::{BitDepth, ColorType, Decoder, DecodingError, Limits, Transformations};

use super::change::Size;
use super::decode::{Ask, Found, Tools};
use crate::data::recipe::step::Decode;
use crate::error::{Error, Kind, Result};

/// Decodes the picture, as red, green and blue.
pub fn decode(bytes: &[u8], options: &Decode, tools: &mut Tools, ask: Ask<'_>) -> Result<Found> {
    // Eight bytes for each pixel are what the largest colour type has, twice for what is on its way.
    let limit = options.max_pixels.saturating_mul(16).saturating_add(1 << 20);
    let limits = Limits { bytes: usize::try_from(limit).unwrap_or(usize::MAX) };
    let mut decoder = Decoder::new_with_limits(Cursor::new(bytes), limits);
    decoder.set_transformations(Transformations::EXPAND);
    decoder.set_ignore_text_chunk(true);
    decoder.set_ignore_iccp_chunk(true);
    let mut reader = decoder.read_info().map_err(|error| damaged(&error))?;
    let info = reader.info();
    let size = Size::new(info.width, info.height);
    let stored = (info.color_type, info.bit_depth);
    let view = ask(size)?;
    let buffer = reader.output_buffer_size();
    let buffer = buffer.ok_or_else(|| Error::new(Kind::Corrupt, "the PNG file has no size"))?;
    tools.inks.resize(buffer, 0);
    let frame = reader.next_frame(&mut tools.inks).map_err(|error| damaged(&error))?;
    let pixels = &tools.inks[..frame.buffer_size()];
    let clip = stored == (ColorType::Grayscale, BitDepth::Sixteen);
    convert(pixels, frame.color_type, frame.bit_depth, clip, &mut tools.decoded);
    Ok(Found { size, view })
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
