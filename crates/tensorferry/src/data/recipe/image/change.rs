//! The steps of a chain that move pixels, checked once when the chain is made.

use crate::data::recipe::step::{Interpolation, Sides, Step, probability};
use crate::error::{Error, Result};

/// A step that moves pixels.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Change {
    /// [`Step::RandomResizedCrop`].
    ResizedCrop {
        /// Width and height of the result.
        size: Size,
        /// Of the part's area in the picture's.
        scale: [f64; 2],
        /// Of the part's width to its height.
        ratio: [f64; 2],
        /// How it is resized.
        filter: Interpolation,
    },
    /// [`Step::Resize`] to these sides.
    Resize {
        /// Width and height of the result.
        size: Size,
        /// How it is resized.
        filter: Interpolation,
    },
    /// [`Step::Resize`] by the shorter side.
    Shorter {
        /// The shorter side of the result.
        side: u32,
        /// What the longer one may be.
        longer_max: Option<u32>,
        /// How it is resized.
        filter: Interpolation,
    },
    /// [`Step::CenterCrop`].
    Centre(Size),
    /// [`Step::RandomCrop`].
    Crop {
        /// Width and height of the result.
        size: Size,
        /// Put around the picture first.
        padding: Padding,
        /// Whether a picture that is too small is padded.
        if_needed: bool,
        /// The value of added pixels.
        fill: u8,
    },
    /// [`Step::RandomHorizontalFlip`], so likely.
    FlipX(f64),
    /// [`Step::RandomVerticalFlip`], so likely.
    FlipY(f64),
}

/// Width and height.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// Columns.
    pub width: u32,
    /// Rows.
    pub height: u32,
}

impl Size {
    /// So many columns and rows.
    pub const fn new(width: u32, height: u32) -> Self {
        Self { width, height }
    }

    /// Pixels in all.
    pub fn pixels(self) -> u64 {
        u64::from(self.width) * u64::from(self.height)
    }
}

/// Pixels added at each side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Padding {
    pub left: u32,
    pub top: u32,
    pub right: u32,
    pub bottom: u32,
}

impl Change {
    /// What `step` does to pixels; none if it does not move them.
    pub fn of(step: &Step) -> Result<Option<Self>> {
        Ok(Some(match step {
            Step::RandomResizedCrop { size, scale, ratio, interpolation, .. } => {
                let size = both(size, step)?;
                let [scale, ratio] = [(scale, "scale"), (ratio, "ratio")]
                    .map(|(range, what)| ordered(*range, step, what));
                Self::ResizedCrop { size, scale: scale?, ratio: ratio?, filter: *interpolation }
            }
            Step::Resize { size, interpolation, max_size, .. } => {
                resize(size, *interpolation, *max_size, step)?
            }
            Step::CenterCrop { size } => Self::Centre(both(size, step)?),
            Step::RandomCrop { size, padding, pad_if_needed, fill } => {
                let padding = padding.as_ref().map_or(Ok(Padding::default()), of_sides)?;
                Self::Crop {
                    size: both(size, step)?,
                    padding,
                    if_needed: *pad_if_needed,
                    fill: *fill,
                }
            }
            Step::RandomHorizontalFlip { p } => Self::FlipX(probability(*p, step.name())?),
            Step::RandomVerticalFlip { p } => Self::FlipY(probability(*p, step.name())?),
            _ => return Ok(None),
        }))
    }
}

/// Sizes are given as torchvision gives them: the height first.
fn both(sides: &Sides, step: &Step) -> Result<Size> {
    let [height, width] = sides.all(step.name())?;
    Ok(Size { width, height })
}

fn resize(
    sides: &Sides,
    filter: Interpolation,
    longer_max: Option<u32>,
    step: &Step,
) -> Result<Change> {
    let [shorter] = match sides.as_slice() {
        [_, _] if longer_max.is_some() => {
            let why = "max_size goes with a shorter side alone, not with a height and a width";
            return Err(Error::invalid(format!("Resize: {why}")));
        }
        [_, _] => return Ok(Change::Resize { size: both(sides, step)?, filter }),
        _ => sides.all(step.name())?,
    };
    if longer_max.is_some_and(|max| max <= shorter) {
        let why = format!("max_size must be above the shorter side, {shorter}");
        return Err(Error::invalid(format!("Resize: {why}")));
    }
    Ok(Change::Shorter { side: shorter, longer_max, filter })
}

fn of_sides(sides: &Sides) -> Result<Padding> {
    let (left, top, right, bottom) = match *sides.as_slice() {
        [all] => (all, all, all, all),
        [x, y] => (x, y, x, y),
        [left, top, right, bottom] => (left, top, right, bottom),
        _ => return Err(Error::invalid("RandomCrop takes 1, 2 or 4 numbers as its padding")),
    };
    if left.max(top).max(right).max(bottom) > PADDING_MAX {
        return Err(Error::invalid(format!("RandomCrop takes a padding of up to {PADDING_MAX}")));
    }
    Ok(Padding { left, top, right, bottom })
}

const PADDING_MAX: u32 = 1 << 16;

fn ordered(range: [f64; 2], step: &Step, what: &str) -> Result<[f64; 2]> {
    let [low, high] = range;
    if low > 0.0 && low <= high && high.is_finite() {
        return Ok(range);
    }
    let takes =
        format!("{} takes a {what} of two numbers above zero, the smaller first", step.name());
    Err(Error::invalid(format!("{takes}, not {range:?}")))
}
