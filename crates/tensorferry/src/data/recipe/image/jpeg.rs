//! JPEG files: the part that is needed, at the size that is enough.

use super::change::Size;
use super::decode::Decoded;
use super::geometry::{Area, View};
use super::workspace::Buffers;
use crate::codec::jpeg::{Colour, Decoder, MARGIN, Part, Picture};
use crate::data::recipe::step::Interpolation;
use crate::error::{Error, Kind, Result};

/// Reads the header of a file.
pub fn open<'a>(bytes: &'a [u8], decoder: &'a mut Option<Decoder>) -> Result<Picture<'a>> {
    if !is_whole(bytes) {
        return Err(Error::new(Kind::Truncated, "the JPEG file ends before its picture does"));
    }
    let decoder = match decoder {
        Some(decoder) => decoder,
        none => none.insert(Decoder::new()?),
    };
    decoder.open(bytes)
}

/// Decodes what `view` needs, as red, green and blue; with `fast`, perhaps made smaller on the way.
pub fn decode(
    picture: Picture<'_>,
    view: View,
    fast: bool,
    buffers: &mut Buffers,
) -> Result<Decoded> {
    let denominator = if fast { shrink(&view) } else { 1 };
    let view = view.shrunk(denominator);
    let (width, height) = picture.scaled(denominator);
    let needed = view.needed();
    let part = match picture.step(denominator) {
        Some(step) => part(needed, step, width),
        None => Part { left: 0, top: 0, width, height },
    };
    let Buffers { pixels, staging } = buffers;
    if picture.colour() == Colour::Cmyk {
        picture.decode(part, denominator, Colour::Cmyk, staging)?;
        without_inks(staging, pixels);
    } else {
        picture.decode(part, denominator, Colour::Rgb, pixels)?;
    }
    let view = view.onto(needed, (part.left, part.top));
    Ok(Decoded { size: Size::new(part.width, part.height), view })
}

/// Whether there is an end of the picture behind its start. A decoder that stops below the part it was
/// asked for would not miss it, and damage that is noticed by chance is worse than damage.
fn is_whole(bytes: &[u8]) -> bool {
    let scan = Segments::of(bytes).scan();
    bytes[scan..].windows(2).rev().any(|pair| pair == [0xff, 0xd9])
}

/// By how much a picture may be made smaller while it is decoded: what is then left to do is still to
/// make it smaller, so that nothing is lost that the result could show.
fn shrink(view: &View) -> u32 {
    let averaged = view.filter.is_some_and(|filter| filter != Interpolation::Nearest);
    let (across, down) = view.factors();
    let factor = if averaged { across.min(down) } else { 1.0 };
    [8, 4, 2].into_iter().find(|denominator| f64::from(*denominator) <= factor).unwrap_or(1)
}

/// The columns that must be decoded for `needed` to be exact.
fn part(needed: Area, step: u32, width: u32) -> Part {
    let left = needed.left.saturating_sub(MARGIN) / step * step;
    let right = (needed.left + needed.width + MARGIN).min(width);
    Part { left, top: needed.top, width: right - left, height: needed.height }
}

/// Inks to colours as Pillow does it: the inks are inverted, as Adobe's programs write them.
fn without_inks(inks: &[u8], into: &mut Vec<u8>) {
    into.resize(inks.len() / 4 * 3, 0);
    for ([red, green, blue], [cyan, magenta, yellow, key]) in
        into.as_chunks_mut().0.iter_mut().zip(inks.as_chunks().0)
    {
        let light = |ink: u8| key - scaled(255 - ink, *key);
        (*red, *green, *blue) = (light(*cyan), light(*magenta), light(*yellow));
    }
}

/// `a * b / 255`, rounded to the nearest.
fn scaled(a: u8, b: u8) -> u8 {
    let product = u32::from(a) * u32::from(b) + 128;
    (((product >> 8) + product) >> 8) as u8
}

/// What stands before the picture's data: markers, each with a length.
pub struct Segments<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Segments<'a> {
    /// The segments of a file.
    pub fn of(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 2.min(bytes.len()) }
    }

    /// Where the data of the picture starts, or the bytes end.
    fn scan(mut self) -> usize {
        while self.next().is_some() {}
        self.at
    }
}

impl<'a> Iterator for Segments<'a> {
    /// Marker and content.
    type Item = (u8, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        const START_OF_SCAN: u8 = 0xda;
        let rest = &self.bytes[self.at..];
        // Anything may stand between two segments, and any number of 0xff before a marker.
        let first = rest.iter().position(|byte| *byte == 0xff)?;
        let marker = first + rest[first..].iter().position(|byte| *byte != 0xff)?;
        let length = rest.get(marker + 1..marker + 3)?;
        let length = usize::from(u16::from_be_bytes([length[0], length[1]]));
        let content = rest.get(marker + 3..marker + 1 + length)?;
        if rest[marker] == START_OF_SCAN {
            return None;
        }
        self.at += marker + 1 + length;
        Some((rest[marker], content))
    }
}
