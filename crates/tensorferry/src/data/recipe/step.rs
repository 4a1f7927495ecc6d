//! The steps of a chain, with torchvision's names and meanings.
//!
//! A step is plain data: it can be written as JSON (`{"name": "CenterCrop", "size": 224}`), which is
//! how other languages say it. Only [`Step::Custom`] is code and has no text.

use std::fmt;
use std::sync::Arc;

use serde::Deserialize;

use crate::data::sample::Layout;
use crate::data::spent;
use crate::dtype::Dtype;
use crate::error::{Error, Result};

/// A decompression bomb says in a few bytes that it is larger than this many pixels: Pillow's limit.
pub const PIXELS_MAX: u64 = 178_956_970;

/// One step.
#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "name", deny_unknown_fields)]
pub enum Step {
    /// How pictures are decoded; without it, by default.
    Decode(Decode),
    /// A random part of a picture, of random shape, resized.
    RandomResizedCrop {
        /// Of the result: a side, or height and width.
        size: Sides,
        /// Of the part's area in the picture's.
        #[serde(default = "default_scale")]
        scale: [f64; 2],
        /// Of the part's width to its height.
        #[serde(default = "default_ratio")]
        ratio: [f64; 2],
        /// How it is resized.
        #[serde(default)]
        interpolation: Interpolation,
        /// Has no effect, as on torchvision's PIL images: they are always antialiased.
        #[serde(default)]
        antialias: Option<bool>,
    },
    /// A picture resized.
    Resize {
        /// Height and width, or the shorter side alone.
        size: Sides,
        /// How it is resized.
        #[serde(default)]
        interpolation: Interpolation,
        /// The longer side is at most this; with a shorter side alone.
        #[serde(default)]
        max_size: Option<u32>,
        /// Has no effect, as on torchvision's PIL images: they are always antialiased.
        #[serde(default)]
        antialias: Option<bool>,
    },
    /// The middle of a picture, padded with black if that is smaller.
    CenterCrop {
        /// Of the result: a side, or height and width.
        size: Sides,
    },
    /// A random part of a picture.
    RandomCrop {
        /// Of the result: a side, or height and width.
        size: Sides,
        /// Put around the picture first: all sides, left and top, or left, top, right, bottom.
        #[serde(default)]
        padding: Option<Sides>,
        /// Whether a picture that is too small is padded.
        #[serde(default)]
        pad_if_needed: bool,
        /// The value of added pixels.
        #[serde(default)]
        fill: u8,
    },
    /// Left and right exchanged, or not.
    RandomHorizontalFlip {
        /// How likely.
        #[serde(default = "even")]
        p: f64,
    },
    /// Top and bottom exchanged, or not.
    RandomVerticalFlip {
        /// How likely.
        #[serde(default = "even")]
        p: f64,
    },
    /// Less the mean, divided by the deviation; for each channel.
    Normalize {
        /// Means.
        mean: Vec<f64>,
        /// Deviations.
        std: Vec<f64>,
    },
    /// The type of the result.
    ToDtype {
        /// Its name in PyTorch.
        dtype: Number,
        /// Whether bytes become 0 to 1, if it is a float.
        #[serde(default)]
        scale: bool,
    },
    /// The order of the dimensions of a picture's result.
    ToLayout {
        /// Channels first or last.
        layout: Order,
    },
    /// A random part of a volume, along its last three dimensions.
    #[serde(rename = "RandomCrop3D")]
    RandomCrop3d {
        /// Depth, height and width, or one side.
        size: Sides,
    },
    /// Each of the last three dimensions reversed, or not.
    #[serde(rename = "RandomFlip3D")]
    RandomFlip3d {
        /// How likely, for each.
        #[serde(default = "even")]
        p: f64,
    },
    /// The logarithm of every element plus `offset`.
    Log {
        /// Added first.
        #[serde(default = "one")]
        offset: f64,
    },
    /// Sound as it is in the file, not converted.
    AsStored {},
    /// A function of the caller's.
    #[serde(skip)]
    Custom(Custom),
}

/// How pictures are decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Decode {
    /// What a pixel is.
    pub mode: Mode,
    /// Whether a picture is turned as its camera was; torchvision's loader does not.
    pub apply_exif_orientation: bool,
    /// A picture with more pixels is refused before memory is asked for.
    pub max_pixels: u64,
    /// Whether large JPEG pictures that become small are decoded small: faster, and not exactly what
    /// torchvision gives.
    pub fast: bool,
}

impl Default for Decode {
    fn default() -> Self {
        let (mode, max_pixels) = (Mode::Rgb, PIXELS_MAX);
        Self { mode, apply_exif_orientation: false, max_pixels, fast: false }
    }
}

/// What a pixel is, as Pillow's modes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum Mode {
    /// Red, green, blue.
    #[serde(rename = "RGB")]
    Rgb,
    /// Lightness.
    #[serde(rename = "L")]
    Grey,
}

impl Mode {
    /// Bytes of one pixel.
    pub const fn channels(self) -> usize {
        match self {
            Self::Rgb => 3,
            Self::Grey => 1,
        }
    }
}

/// Between pixels, as Pillow does it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Interpolation {
    /// The nearest pixel.
    Nearest,
    /// Linear in both directions.
    #[default]
    Bilinear,
    /// Cubic in both directions.
    Bicubic,
    /// The mean of the pixels.
    Box,
    /// Sharper than bilinear, as fast.
    Hamming,
    /// A windowed sinc of three lobes.
    Lanczos,
}

/// The order of the dimensions of a picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
pub enum Order {
    /// Channels, height, width.
    #[default]
    #[serde(rename = "CHW")]
    Chw,
    /// Height, width, channels.
    #[serde(rename = "HWC")]
    Hwc,
}

/// The types that a chain can give.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the names say it")]
pub enum Number {
    #[default]
    Float32,
    Float16,
    Bfloat16,
    Uint8,
}

impl Number {
    /// Its type.
    pub const fn dtype(self) -> Dtype {
        match self {
            Self::Float32 => Dtype::F32,
            Self::Float16 => Dtype::F16,
            Self::Bfloat16 => Dtype::Bf16,
            Self::Uint8 => Dtype::U8,
        }
    }
}

/// One number for all sides, or one for each.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum Sides {
    /// For all.
    One(u32),
    /// For each.
    Each(Vec<u32>),
}

impl Sides {
    /// The numbers as they were given.
    pub fn as_slice(&self) -> &[u32] {
        match self {
            Self::One(side) => std::slice::from_ref(side),
            Self::Each(sides) => sides,
        }
    }

    /// `N` numbers above zero, of which one may stand for all.
    pub fn all<const N: usize>(&self, what: &str) -> Result<[u32; N]> {
        let sides = match self.as_slice() {
            [side] => [*side; N],
            sides => sides.try_into().map_err(|_| {
                Error::invalid(format!("{what} takes one side or {N}, not {}", sides.len()))
            })?,
        };
        match sides.iter().find(|side| **side == 0 || **side > SIDE_MAX) {
            None => Ok(sides),
            Some(side) => {
                let range = format!("takes sides from 1 to {SIDE_MAX}");
                Err(Error::invalid(format!("{what} {range}, not {side}")))
            }
        }
    }
}

/// No picture is larger in any direction.
const SIDE_MAX: u32 = 1 << 20;

/// A function of the caller's, at its place in a chain. It gets an array and gives another one.
///
/// Before the steps that make numbers of pixels it gets pixels, bytes of shape [height, width,
/// channels], and what it gives is a picture again if it has such a shape.
#[derive(Clone)]
pub struct Custom(Arc<Function>);

type Function = dyn Fn(Layout, Vec<u8>) -> Result<(Layout, Vec<u8>)> + Send + Sync;

impl Custom {
    /// A step that calls `function`.
    pub fn new(
        function: impl Fn(Layout, Vec<u8>) -> Result<(Layout, Vec<u8>)> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(function))
    }

    /// Calls it, and holds it to its word on the size of the result.
    pub fn call(&self, layout: Layout, bytes: Vec<u8>) -> Result<(Layout, Vec<u8>)> {
        let (layout, bytes) = spent::calling(|| (self.0)(layout, bytes))?;
        if layout.bytes() != Some(bytes.len()) {
            let said = format!("a function in the transform gave {} bytes", bytes.len());
            return Err(Error::invalid(format!("{said} for an array {layout}")));
        }
        Ok((layout, bytes))
    }
}

impl fmt::Debug for Custom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Custom")
    }
}

impl Step {
    /// The step's name.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Decode(_) => "Decode",
            Self::RandomResizedCrop { .. } => "RandomResizedCrop",
            Self::Resize { .. } => "Resize",
            Self::CenterCrop { .. } => "CenterCrop",
            Self::RandomCrop { .. } => "RandomCrop",
            Self::RandomHorizontalFlip { .. } => "RandomHorizontalFlip",
            Self::RandomVerticalFlip { .. } => "RandomVerticalFlip",
            Self::Normalize { .. } => "Normalize",
            Self::ToDtype { .. } => "ToDtype",
            Self::ToLayout { .. } => "ToLayout",
            Self::RandomCrop3d { .. } => "RandomCrop3D",
            Self::RandomFlip3d { .. } => "RandomFlip3D",
            Self::Log { .. } => "Log",
            Self::AsStored {} => "AsStored",
            Self::Custom(_) => "Lambda",
        }
    }
}

/// A probability, or an error that names the step.
pub(super) fn probability(p: f64, step: &str) -> Result<f64> {
    if (0.0..=1.0).contains(&p) {
        return Ok(p);
    }
    Err(Error::invalid(format!("{step} takes a probability from 0 to 1, not {p}")))
}

const fn default_scale() -> [f64; 2] {
    [0.08, 1.0]
}

const fn default_ratio() -> [f64; 2] {
    [3.0 / 4.0, 4.0 / 3.0]
}

const fn even() -> f64 {
    0.5
}

const fn one() -> f64 {
    1.0
}
