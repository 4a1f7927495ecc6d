//! Pixels to numbers: flips, scale, normalisation, order of the dimensions and type, in one pass that
//! writes to where the result belongs.
//!
//! A pixel's byte has 256 values, so each result is looked up: the table of a channel holds what
//! torchvision computes, in float32 and in its order (divide by 255, less the mean, divided by the
//! deviation), rounded once to the type of the result. So float32 results are torchvision's to the last
//! bit, and the pass costs the same whatever is asked for.

use super::pixels::Pixels;
use crate::codec::half::{self, Format};
use crate::data::recipe::numbers;
use crate::data::recipe::step::{Number, Order};
use crate::data::sample::Layout;
use crate::error::{Error, Kind, Result};

/// Mean and deviation of each channel, or of all.
#[derive(Debug, Clone, PartialEq)]
pub struct Norm {
    mean: Vec<f32>,
    std: Vec<f32>,
}

/// How numbers are made of pixels, as the chain says it.
#[derive(Debug, Clone, PartialEq)]
pub struct Values {
    /// The type of the result.
    pub number: Number,
    /// Whether 0 to 255 become 0 to 1.
    pub scale: bool,
    /// Normalisations, one after the other.
    pub norms: Vec<Norm>,
    /// The order of the dimensions.
    pub order: Order,
}

/// What torchvision's `ToTensor` does.
impl Default for Values {
    fn default() -> Self {
        let (number, order) = (Number::default(), Order::default());
        Self { number, scale: true, norms: Vec::new(), order }
    }
}

/// The results for every byte, for each channel.
#[derive(Debug, Clone)]
pub struct Tables {
    order: Order,
    number: Number,
    entries: Entries,
}

/// By the bytes of a result.
#[derive(Debug, Clone)]
enum Entries {
    One(Vec<Table<1>>),
    Two(Vec<Table<2>>),
    Four(Vec<Table<4>>),
}

type Table<const N: usize> = [[u8; N]; 256];

impl Norm {
    /// Means and deviations, one for each channel or one for all.
    pub fn new(mean: &[f64], std: &[f64]) -> Result<Self> {
        let usable = |numbers: &[f64]| numbers.iter().all(|number| number.is_finite());
        if mean.is_empty() || std.is_empty() || !usable(mean) || !usable(std) {
            return Err(Error::invalid("Normalize takes a mean and a std of finite numbers"));
        }
        if std.iter().any(|std| *std as f32 == 0.0) {
            return Err(Error::invalid("Normalize can't divide by a std of zero"));
        }
        let narrow = |numbers: &[f64]| numbers.iter().map(|number| *number as f32).collect();
        Ok(Self { mean: narrow(mean), std: narrow(std) })
    }

    /// Whether it can be done to so many channels.
    pub fn check(&self, channels: usize) -> Result<()> {
        let fits = |numbers: &[f32]| numbers.len() == 1 || numbers.len() == channels;
        if fits(&self.mean) && fits(&self.std) {
            return Ok(());
        }
        let has = format!("{} means and {} stds", self.mean.len(), self.std.len());
        Err(Error::invalid(format!("Normalize has {has} for {channels} channels")))
    }

    /// One number of a channel, normalised.
    pub fn apply(&self, number: f32, channel: usize) -> f32 {
        let of = |numbers: &[f32]| numbers[channel % numbers.len()];
        (number - of(&self.mean)) / of(&self.std)
    }
}

impl Values {
    /// The tables for pixels of so many channels.
    pub fn tables(&self, channels: usize) -> Result<Tables> {
        for norm in &self.norms {
            norm.check(channels)?;
        }
        let entries = match self.number {
            Number::Uint8 if !self.norms.is_empty() => {
                let why = "Normalize gives floats: uint8 can't hold them";
                return Err(Error::invalid(format!("{why}; take another ToDtype")));
            }
            Number::Uint8 => Entries::One(tables(channels, |byte, _| [byte])),
            Number::Float32 => {
                Entries::Four(tables(channels, |byte, at| self.number(byte, at).to_le_bytes()))
            }
            Number::Float16 => self.halves(Format::F16, channels),
            Number::Bfloat16 => self.halves(Format::Bf16, channels),
        };
        Ok(Tables { order: self.order, number: self.number, entries })
    }

    /// Pixels as they are.
    pub fn bytes() -> Self {
        let (number, order) = (Number::Uint8, Order::Hwc);
        Self { number, scale: false, norms: Vec::new(), order }
    }

    /// `ToDtype`: floats may be scaled, bytes are as they are.
    pub fn set(&mut self, number: Number, scale: bool) {
        // After a normalisation the numbers are floats already, and only their type changes.
        if self.norms.is_empty() {
            self.scale = scale;
        }
        self.number = number;
    }

    /// The same on an array that is no picture any more.
    pub fn renumber(&self, layout: Layout, bytes: &[u8]) -> Result<(Layout, Vec<u8>)> {
        let mut floats = Vec::new();
        numbers::each(layout.dtype, bytes, |number| number, &mut floats)?;
        let channels = match self.order {
            Order::Chw => layout.shape.first(),
            Order::Hwc => layout.shape.last(),
        };
        let channels = channels.copied().unwrap_or(1).max(1);
        let plane = (floats.len() / channels).max(1);
        for norm in &self.norms {
            norm.check(channels)?;
            for (at, number) in floats.iter_mut().enumerate() {
                let channel = match self.order {
                    Order::Chw => at / plane,
                    Order::Hwc => at % channels,
                };
                *number = norm.apply(*number, channel);
            }
        }
        let layout = Layout::new(self.number.dtype(), layout.shape);
        let mut bytes = vec![0; layout.bytes().unwrap_or(0)];
        numbers::narrow_into(self.number, &floats, &mut bytes)?;
        Ok((layout, bytes))
    }

    fn halves(&self, format: Format, channels: usize) -> Entries {
        let half = |byte, at| half::narrow_one(format, self.number(byte, at)).to_le_bytes();
        Entries::Two(tables(channels, half))
    }

    fn number(&self, byte: u8, channel: usize) -> f32 {
        let start = if self.scale { f32::from(byte) / 255.0 } else { f32::from(byte) };
        self.norms.iter().fold(start, |number, norm| norm.apply(number, channel))
    }
}

fn tables<const N: usize>(channels: usize, of: impl Fn(u8, usize) -> [u8; N]) -> Vec<Table<N>> {
    (0..channels).map(|at| std::array::from_fn(|byte| of(byte as u8, at))).collect()
}

impl Tables {
    /// What the result of these pixels looks like.
    pub fn layout(&self, pixels: Pixels<'_>) -> Layout {
        let size = pixels.size();
        let (height, width) = (size.height as usize, size.width as usize);
        let shape = match self.order {
            Order::Chw => [pixels.channels(), height, width],
            Order::Hwc => [height, width, pixels.channels()],
        };
        Layout::new(self.number.dtype(), shape)
    }

    /// Writes the result of `pixels`, left and right or top and bottom exchanged, to `into`.
    pub fn spread(&self, pixels: Pixels<'_>, flips: (bool, bool), into: &mut [u8]) -> Result<()> {
        if self.layout(pixels).bytes() != Some(into.len()) {
            return Err(Error::new(Kind::Internal, "the slot of a picture has another size"));
        }
        match &self.entries {
            Entries::One(tables) => spread(tables, self.order, pixels, flips, into),
            Entries::Two(tables) => spread(tables, self.order, pixels, flips, into),
            Entries::Four(tables) => spread(tables, self.order, pixels, flips, into),
        }
        Ok(())
    }
}

fn spread<const N: usize>(
    tables: &[Table<N>],
    order: Order,
    pixels: Pixels<'_>,
    (flip_x, flip_y): (bool, bool),
    into: &mut [u8],
) {
    let into = into.as_chunks_mut::<N>().0;
    let width = pixels.size().width as usize;
    let rows = pixels.rows();
    let target = Target { into, width, flip: flip_x };
    match (order, tables, flip_y) {
        (Order::Chw, [red, green, blue], false) => target.planes([red, green, blue], rows),
        (Order::Chw, [red, green, blue], true) => target.planes([red, green, blue], rows.rev()),
        (_, tables, false) => target.mixed(tables, rows),
        (_, tables, true) => target.mixed(tables, rows.rev()),
    }
}

/// Where results go, and whether rows are turned round on the way.
struct Target<'a, const N: usize> {
    into: &'a mut [[u8; N]],
    width: usize,
    flip: bool,
}

impl<const N: usize> Target<'_, N> {
    /// Each channel to a plane of its own.
    fn planes<'a>(self, tables: [&Table<N>; 3], rows: impl Iterator<Item = &'a [u8]>) {
        let [red, green, blue] = tables;
        let plane = self.into.len() / 3;
        let (reds, rest) = self.into.split_at_mut(plane);
        let (greens, blues) = rest.split_at_mut(plane);
        let lines = reds.chunks_exact_mut(self.width).zip(greens.chunks_exact_mut(self.width));
        for (((reds, greens), blues), row) in
            lines.zip(blues.chunks_exact_mut(self.width)).zip(rows)
        {
            let targets = reds.iter_mut().zip(greens).zip(blues);
            let put = |(((r, g), b), pixel): (((&mut _, &mut _), &mut _), &[u8; 3])| {
                *r = red[usize::from(pixel[0])];
                *g = green[usize::from(pixel[1])];
                *b = blue[usize::from(pixel[2])];
            };
            let row = row.as_chunks::<3>().0;
            if self.flip {
                targets.zip(row.iter().rev()).for_each(put);
            } else {
                targets.zip(row).for_each(put);
            }
        }
    }

    /// Channels beside one another, as they come.
    fn mixed<'a>(self, tables: &[Table<N>], rows: impl Iterator<Item = &'a [u8]>) {
        let channels = tables.len();
        for (target, row) in self.into.chunks_exact_mut(self.width * channels).zip(rows) {
            let targets = target.chunks_exact_mut(channels);
            let put = |(numbers, pixel): (&mut [_], &[u8])| {
                for ((number, byte), table) in numbers.iter_mut().zip(pixel).zip(tables) {
                    *number = table[usize::from(*byte)];
                }
            };
            let pixels = row.chunks_exact(channels);
            if self.flip {
                targets.zip(pixels.rev()).for_each(put);
            } else {
                targets.zip(pixels).for_each(put);
            }
        }
    }
}
