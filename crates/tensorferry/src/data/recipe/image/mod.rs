//! Pictures to numbers.
//!
//! ```text
//!   bytes ─► size ─► geometry::plan ─► decode what is needed ─► resize ─► values ─► slot of the batch
//!            header  chain, chance     JPEG, PNG, WebP          once      flip, scale, normalise, type
//! ```
//!
//! | file | what it knows |
//! |---|---|
//! | [`change`] | the steps that move pixels, checked |
//! | [`geometry`] | where the pixels of a result come from (pure) |
//! | [`decode`] and one file for each format | bytes to a size, then to pixels |
//! | `cached` | decoded pixels as a cache keeps them |
//! | `unsupported` | what is not decoded, by name |
//! | `orientation` | how the camera was held |
//! | [`workspace`] | memory and decoders of a thread |
//! | [`pixels`] | cutting, resizing, framing |
//! | [`values`] | pixels to numbers |
//!
//! # What agrees with what
//!
//! The reference is torchvision on Pillow's pictures. Decoding agrees with Pillow to one level of 255,
//! where their libraries differ in version. Resizing agrees to one level, and to three with
//! `lanczos`: both round to bytes between their passes, in another order. Numbers are the same to the
//! last bit in float32. With `fast`, large JPEG pictures that become less than half as large in both
//! directions are made smaller while they are decoded; the result then differs by one to three levels
//! on average, and by some twenty at most, which is why it has to be asked for.
//!
//! # Damage
//!
//! A file that ends before its picture does is [`Kind::Truncated`](crate::Kind::Truncated), one whose
//! bytes contradict their format [`Kind::Corrupt`](crate::Kind::Corrupt). Of a JPEG picture only the
//! rows down to the last one that is needed are read: damage below is seen by the samples that need
//! those rows.

mod cached;
pub mod change;
pub mod decode;
pub mod geometry;
mod jpeg;
mod orientation;
pub mod pixels;
mod png;
mod unsupported;
pub mod values;
mod webp;
pub mod workspace;

use std::iter;

use cached::CachedPixels;
use change::{Change, Size};
use decode::Decoded;
use geometry::{Act, Area, Plan, View};
use pixels::{Pixels, Resizer};
use values::{Norm, Tables, Values};
use workspace::Workspace;

use super::step::{Custom, Decode, Step};
use super::{Chain, Recipe, Scratch};
use crate::data::chance::Chance;
use crate::data::sample::{Field, Layout, Place, Raw};
use crate::dtype::Dtype;
use crate::error::{Error, Result};

/// How pictures are prepared.
#[derive(Debug)]
pub struct Picture {
    decode: Decode,
    /// The changes before the first stage of another kind.
    first: Vec<Change>,
    /// What comes then; nothing in the usual chain, whose numbers are made by `tables`.
    rest: Vec<Stage>,
    tables: Tables,
}

/// What a chain does after its first changes, if it calls functions.
#[derive(Debug)]
enum Stage {
    Changes(Vec<Change>),
    Call(Custom),
    Numbers(Values),
}

impl Picture {
    /// What `chain` makes of pictures.
    pub fn new(chain: &Chain) -> Result<Self> {
        let mut decode = Decode::default();
        let mut stages = vec![Stage::Changes(Vec::new())];
        for (at, step) in chain.steps().iter().enumerate() {
            match step {
                Step::Decode(options) if at == 0 => decode = *options,
                Step::Decode(_) => return Err(Error::invalid("Decode is the first step or none")),
                step => add(&mut stages, step)?,
            }
        }
        let mut stages = stages.into_iter();
        let Some(Stage::Changes(first)) = stages.next() else {
            unreachable!("the first stage was made above")
        };
        let mut rest: Vec<_> = stages.collect();
        let channels = decode.mode.channels();
        let default = Values::default().tables(channels)?;
        let tables = match rest.as_slice() {
            [Stage::Numbers(values)] => values.tables(channels)?,
            _ => default,
        };
        if let [Stage::Numbers(_)] = rest.as_slice() {
            rest.clear();
        }
        Ok(Self { decode, first, rest, tables })
    }

    /// Calls functions and does what comes after them, on an array of its own.
    fn go_on(&self, mut array: Array, mut chance: Chance, space: &mut Workspace) -> Result<Array> {
        let channels = self.decode.mode.channels();
        let mut numbers = false;
        for stage in &self.rest {
            array = match stage {
                Stage::Call(custom) => custom.call(array.0, array.1)?,
                Stage::Changes(changes) => {
                    let size = picture_size(&array.0, channels)
                        .filter(|_| !numbers)
                        .ok_or_else(|| no_picture(&array.0, channels))?;
                    let plan = geometry::plan(changes, size, self.decode.max_pixels, &mut chance)?;
                    let source = Pixels::new(&array.1, size, channels)?;
                    let Workspace { resizer, front, back, .. } = space;
                    copy(carry_out(source, plan.first, &plan.rest, resizer, (front, back))?, &plan)?
                }
                Stage::Numbers(values) => {
                    let size = picture_size(&array.0, channels).filter(|_| !numbers);
                    numbers = true;
                    match size {
                        Some(size) => spread(&values.tables(channels)?, &array.1, size, channels)?,
                        None => values.renumber(array.0, &array.1)?,
                    }
                }
            };
        }
        match picture_size(&array.0, channels).filter(|_| !numbers) {
            Some(size) => spread(&self.tables, &array.1, size, channels),
            None => Ok(array),
        }
    }
}

type Array = (Layout, Vec<u8>);

/// Adds a step to the stages: to the last one, if it is of the same kind.
fn add(stages: &mut Vec<Stage>, step: &Step) -> Result<()> {
    if let Some(change) = Change::of(step)? {
        match stages.last_mut() {
            Some(Stage::Changes(changes)) => changes.push(change),
            Some(Stage::Numbers(_)) => {
                let why = "goes before ToDtype, Normalize and ToLayout: pixels are moved as bytes";
                return Err(Error::invalid(format!("{} {why}", step.name())));
            }
            _ => stages.push(Stage::Changes(vec![change])),
        }
        return Ok(());
    }
    if let Step::Custom(custom) = step {
        stages.push(Stage::Call(custom.clone()));
        return Ok(());
    }
    if !matches!(stages.last(), Some(Stage::Numbers(_))) {
        let earlier = stages.iter().any(|stage| matches!(stage, Stage::Numbers(_)));
        // After a function that got numbers, nothing is left to scale.
        stages.push(Stage::Numbers(Values { scale: !earlier, ..Values::default() }));
    }
    let Some(Stage::Numbers(values)) = stages.last_mut() else { return Ok(()) };
    match step {
        Step::Normalize { mean, std } => values.norms.push(Norm::new(mean, std)?),
        Step::ToDtype { dtype, scale } => values.set(*dtype, *scale),
        Step::ToLayout { layout } => values.order = *layout,
        step => return Err(Chain::refuse(step, "a picture")),
    }
    Ok(())
}

impl Recipe for Picture {
    fn prepare(
        &self,
        field: Field<'_>,
        mut chance: Chance,
        scratch: &mut Scratch,
        place: &mut dyn Place,
    ) -> Result<()> {
        let channels = self.decode.mode.channels();
        let Workspace { jpeg, buffers, resizer, front, back } = &mut scratch.image;
        let (cached, plan, decoded);
        let pixels = if let Some(header) = self.cached(field)? {
            plan = self.plan(header.size, &mut chance)?;
            (cached, decoded) = header.rows(field, &plan.first)?;
            Pixels::new(&cached, decoded.size, channels)?
        } else {
            let bytes = field.all()?;
            let picture = decode::open(&bytes, &self.decode, jpeg)?;
            plan = self.plan(picture.size(), &mut chance)?;
            decoded = picture.decode(plan.first, buffers)?;
            Pixels::new(buffers.pixels(), decoded.size, channels)?
        };
        let pixels = carry_out(pixels, decoded.view, &plan.rest, resizer, (front, back))?;
        if self.rest.is_empty() {
            let slot = place.array("", &self.tables.layout(pixels))?;
            self.tables.spread(pixels, (plan.flip_x, plan.flip_y), slot)?;
        } else {
            let array = copy(pixels, &plan)?;
            let (layout, bytes) = self.go_on(array, chance, &mut scratch.image)?;
            place.array("", &layout)?.copy_from_slice(&bytes);
        }
        scratch.image.shrink();
        Ok(())
    }

    fn decode(&self, field: Field<'_>, scratch: &mut Scratch) -> Result<Option<Raw>> {
        if self.cached(field)?.is_some() {
            return Ok(None);
        }
        let space = &mut scratch.image;
        let bytes = field.all()?;
        let picture = decode::open(&bytes, &self.decode, &mut space.jpeg)?;
        let whole = View::whole(picture.size());
        let Decoded { size, .. } = picture.decode(whole, &mut space.buffers)?;
        let header = CachedPixels { size, channels: self.decode.mode.channels() };
        let raw = header.raw(space.buffers.pixels());
        space.shrink();
        Ok(Some(raw))
    }
}

impl Picture {
    /// What the first changes make of a picture of this size.
    fn plan(&self, size: Size, chance: &mut Chance) -> Result<Plan> {
        geometry::plan(&self.first, size, self.decode.max_pixels, chance)
    }

    /// The header of pixels that this recipe decoded before.
    fn cached(&self, field: Field<'_>) -> Result<Option<CachedPixels>> {
        let cached = CachedPixels::of(field)?;
        let wrong = cached.is_some_and(|cached| cached.channels != self.decode.mode.channels());
        if wrong {
            let why = "the decoded picture was kept in another mode; empty the cache";
            return Err(Error::invalid(why));
        }
        Ok(cached)
    }
}

/// Carries out a plan, in two buffers in turn; cuts cost nothing.
fn carry_out<'a>(
    source: Pixels<'a>,
    first: View,
    rest: &[Act],
    resizer: &mut Resizer,
    (front, back): (&'a mut Vec<u8>, &'a mut Vec<u8>),
) -> Result<Pixels<'a>> {
    let channels = source.channels();
    let mut made: Option<Size> = None;
    let mut part = Area::whole(source.size());
    for act in iter::once(&Act::View(first)).chain(rest) {
        let now = match made {
            None => source.within(part)?,
            Some(size) => Pixels::new(front, size, channels)?.within(part)?,
        };
        let size = match act {
            Act::View(view) if view.filter.is_none() => {
                now.within(view.region)?;
                part.left += view.region.left;
                part.top += view.region.top;
                (part.width, part.height) = (view.region.width, view.region.height);
                continue;
            }
            Act::View(view) => {
                now.within(view.region)?.resize(view, resizer, back)?;
                view.target
            }
            Act::Pad(padding, fill) => now.pad(*padding, *fill, back),
        };
        std::mem::swap(front, back);
        (made, part) = (Some(size), Area::whole(size));
    }
    match made {
        None => source.within(part),
        Some(size) => Pixels::new(front, size, channels)?.within(part),
    }
}

/// The pixels as an array of their own, flipped as planned.
fn copy(pixels: Pixels<'_>, plan: &Plan) -> Result<Array> {
    let tables = Values::bytes().tables(pixels.channels())?;
    let layout = tables.layout(pixels);
    let mut bytes = vec![0; layout.bytes().unwrap_or(0)];
    tables.spread(pixels, (plan.flip_x, plan.flip_y), &mut bytes)?;
    Ok((layout, bytes))
}

fn spread(tables: &Tables, bytes: &[u8], size: Size, channels: usize) -> Result<Array> {
    let pixels = Pixels::new(bytes, size, channels)?;
    let layout = tables.layout(pixels);
    let mut result = vec![0; layout.bytes().unwrap_or(0)];
    tables.spread(pixels, (false, false), &mut result)?;
    Ok((layout, result))
}

/// The size of the picture that an array is, if it is one.
fn picture_size(layout: &Layout, channels: usize) -> Option<Size> {
    let &[height, width, depth] = layout.shape.as_slice() else { return None };
    let above_zero = |side: usize| u32::try_from(side).ok().filter(|side| *side > 0);
    let size = Size::new(above_zero(width)?, above_zero(height)?);
    (layout.dtype == Dtype::U8 && depth == channels).then_some(size)
}

fn no_picture(layout: &Layout, channels: usize) -> Error {
    let needs = format!("steps that move pixels need U8[height, width, {channels}]");
    Error::invalid(format!("{needs}, and a function in the transform gave {layout}"))
}
