//! Pixels in memory, cut without a copy, and the two things that make new ones: resizing, framing.

pub use fast_image_resize::Resizer;
use fast_image_resize::images::{TypedCroppedImage, TypedImage, TypedImageRef};
use fast_image_resize::pixels::{InnerPixel, U8, U8x3};
use fast_image_resize::{FilterType, PixelTrait, ResizeAlg, ResizeOptions};

use super::change::{Padding, Size};
use super::geometry::{Area, View};
use crate::data::recipe::step::Interpolation;
use crate::error::{Error, Kind, Result};

/// Rows of pixels, of which a part counts.
#[derive(Clone, Copy)]
pub struct Pixels<'a> {
    bytes: &'a [u8],
    /// Of all that is in `bytes`.
    full: Size,
    channels: usize,
    /// What counts.
    area: Area,
}

impl<'a> Pixels<'a> {
    /// A whole picture, row by row without gaps.
    pub fn new(bytes: &'a [u8], full: Size, channels: usize) -> Result<Self> {
        let needs = full.pixels().checked_mul(channels as u64);
        if needs != Some(bytes.len() as u64) || full.pixels() == 0 {
            return Err(Error::new(
                Kind::Internal,
                "the pixels are not as many as their size says",
            ));
        }
        Ok(Self { bytes, full, channels, area: Area::whole(full) })
    }

    /// A part of it.
    pub fn within(mut self, area: Area) -> Result<Self> {
        let inside = |start: u32, length: u32, end: u32| {
            length > 0 && u64::from(start) + u64::from(length) <= u64::from(end)
        };
        if !inside(area.left, area.width, self.area.width)
            || !inside(area.top, area.height, self.area.height)
        {
            return Err(Error::new(Kind::Internal, "a part of a picture lies outside of it"));
        }
        self.area.left += area.left;
        self.area.top += area.top;
        (self.area.width, self.area.height) = (area.width, area.height);
        Ok(self)
    }

    /// What counts, in pixels.
    pub const fn size(self) -> Size {
        self.area.size()
    }

    /// Bytes of a pixel.
    pub const fn channels(self) -> usize {
        self.channels
    }

    /// The rows, from top to bottom.
    pub fn rows(self) -> impl DoubleEndedIterator<Item = &'a [u8]> {
        let across = self.full.width as usize * self.channels;
        let start = self.area.left as usize * self.channels;
        let end = start + self.area.width as usize * self.channels;
        let rows = self.bytes.chunks_exact(across);
        let (top, height) = (self.area.top as usize, self.area.height as usize);
        rows.skip(top).take(height).map(move |row| &row[start..end])
    }

    /// Resizes as `view` says, whose region is what counts here, and leaves the result in `into`.
    pub fn resize(self, view: &View, resizer: &mut Resizer, into: &mut Vec<u8>) -> Result<()> {
        // By type, for the library would compile all of its own otherwise.
        match self.channels {
            3 => self.resize_as::<U8x3>(view, resizer, into),
            _ => self.resize_as::<U8>(view, resizer, into),
        }
    }

    fn resize_as<P: PixelTrait + InnerPixel>(
        self,
        view: &View,
        resizer: &mut Resizer,
        into: &mut Vec<u8>,
    ) -> Result<()> {
        let Some(filter) = view.filter else {
            return Err(Error::new(Kind::Internal, "nothing is resized without a filter"));
        };
        let target = view.target;
        into.resize(target.pixels() as usize * self.channels, 0);
        let source = TypedImageRef::<P>::from_buffer(self.full.width, self.full.height, self.bytes);
        let source = source.map_err(impossible)?;
        // What is outside of the area must not be seen: Pillow cuts first and resizes then.
        let Area { left, top, width, height } = self.area;
        let source = TypedCroppedImage::new(source, left, top, width, height);
        let source = source.map_err(impossible)?;
        let result = TypedImage::<P>::from_buffer(target.width, target.height, into);
        let window = view.local();
        // The last bit of a product may lie beyond the edge.
        let right = (f64::from(width) - window.left).min(window.width);
        let bottom = (f64::from(height) - window.top).min(window.height);
        let options = ResizeOptions::new().resize_alg(algorithm(filter)).crop(
            window.left,
            window.top,
            right,
            bottom,
        );
        let mut result = result.map_err(impossible)?;
        resizer.resize_typed(&source, &mut result, &options).map_err(impossible)
    }

    /// Puts pixels of one value around, and leaves the result in `into`.
    pub fn pad(self, padding: Padding, fill: u8, into: &mut Vec<u8>) -> Size {
        let size = self.size();
        let width = padding.left + size.width + padding.right;
        let height = padding.top + size.height + padding.bottom;
        let across = width as usize * self.channels;
        into.clear();
        into.resize(across * height as usize, fill);
        let start = padding.left as usize * self.channels;
        let targets = into.chunks_exact_mut(across).skip(padding.top as usize);
        for (target, row) in targets.zip(self.rows()) {
            target[start..start + row.len()].copy_from_slice(row);
        }
        Size::new(width, height)
    }
}

const fn algorithm(filter: Interpolation) -> ResizeAlg {
    match filter {
        Interpolation::Nearest => ResizeAlg::Nearest,
        Interpolation::Bilinear => ResizeAlg::Convolution(FilterType::Bilinear),
        Interpolation::Bicubic => ResizeAlg::Convolution(FilterType::CatmullRom),
        Interpolation::Box => ResizeAlg::Convolution(FilterType::Box),
        Interpolation::Hamming => ResizeAlg::Convolution(FilterType::Hamming),
        Interpolation::Lanczos => ResizeAlg::Convolution(FilterType::Lanczos3),
    }
}

fn impossible(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::new(Kind::Internal, "the picture can't be resized").caused_by(error)
}
