//! Stored arrays to arrays in a batch.
//!
//! Without steps an array goes from storage to its slot and nowhere between: large samples move at the
//! speed of a copy. A random part of a volume reads the rows it has. Only steps that change elements
//! ([`Step::Log`], [`Step::ToDtype`]) or functions need memory on the way.

pub mod npy;
mod npz;
pub mod volume;

use npy::Header;
use volume::{Cut, Turn};

use super::step::{Custom, Number, Step};
use super::{Chain, Recipe, Scratch, numbers};
use crate::data::chance::Chance;
use crate::data::sample::{Field, Layout, Place};
use crate::error::{Error, Result};

/// How arrays are prepared: `.npy` files, or all members of `.npz` files.
#[derive(Debug)]
pub struct Array {
    archive: bool,
    /// First elements are moved,
    turns: Vec<Turn>,
    /// then changed.
    works: Vec<Work>,
}

#[derive(Debug)]
enum Work {
    Log(f64),
    Type { number: Number, scale: bool },
    Call(Custom),
}

impl Array {
    /// What `chain` makes of an array.
    pub fn new(chain: &Chain, archive: bool) -> Result<Self> {
        let mut array = Self { archive, turns: Vec::new(), works: Vec::new() };
        for step in chain.steps() {
            if let Some(turn) = Turn::of(step)? {
                if !array.works.is_empty() {
                    let why = "goes before the steps that change elements: then less is read";
                    return Err(Error::invalid(format!("{} {why}", step.name())));
                }
                array.turns.push(turn);
                continue;
            }
            array.works.push(match step {
                Step::Log { offset } => Work::Log(*offset),
                Step::ToDtype { dtype, scale } => Work::Type { number: *dtype, scale: *scale },
                Step::Custom(custom) => Work::Call(custom.clone()),
                step => return Err(Chain::refuse(step, "an array")),
            });
        }
        Ok(array)
    }

    fn one(
        &self,
        member: &str,
        field: Field<'_>,
        mut chance: Chance,
        scratch: &mut Scratch,
        place: &mut dyn Place,
    ) -> Result<()> {
        let header = Header::of(field)?;
        let cut = match self.turns.as_slice() {
            [] => None,
            turns => Some(Cut::of(turns, &header.layout.shape, &mut chance)?),
        };
        let mut layout = header.layout.clone();
        if let Some(cut) = &cut {
            layout.shape = cut.shape();
        }
        let mut read = |slot: &mut [u8]| match &cut {
            None => field.read_at(header.start, slot),
            Some(cut) => cut.read(field, (header.start, &header.layout), &mut scratch.rows, slot),
        };
        if self.works.is_empty() {
            return read(place.array(member, &layout)?);
        }
        let mut bytes = vec![0; layout.bytes().unwrap_or(0)];
        read(&mut bytes)?;
        let (layout, bytes) = work(&self.works, layout, bytes, &mut scratch.floats)?;
        place.array(member, &layout)?.copy_from_slice(&bytes);
        Ok(())
    }
}

impl Recipe for Array {
    fn prepare(
        &self,
        field: Field<'_>,
        chance: Chance,
        scratch: &mut Scratch,
        place: &mut dyn Place,
    ) -> Result<()> {
        if !self.archive {
            return self.one("", field, chance, scratch, place);
        }
        // Every member starts from the same chance: an image and its mask are cut alike.
        npz::members(field, |member, field| self.one(member, field, chance, scratch, place))
    }
}

/// Changes elements as the steps say.
fn work(
    works: &[Work],
    mut layout: Layout,
    mut bytes: Vec<u8>,
    floats: &mut Vec<f32>,
) -> Result<(Layout, Vec<u8>)> {
    for work in works {
        let number = match work {
            Work::Call(custom) => {
                (layout, bytes) = custom.call(layout, bytes)?;
                continue;
            }
            Work::Log(offset) => {
                let offset = *offset as f32;
                numbers::each(layout.dtype, &bytes, |number| (number + offset).ln(), floats)?;
                Number::Float32
            }
            Work::Type { number, .. } if number.dtype() == layout.dtype => continue,
            Work::Type { number, scale } => {
                let by = if *scale { numbers::largest(layout.dtype) } else { 1.0 };
                numbers::each(layout.dtype, &bytes, |number| number / by, floats)?;
                *number
            }
        };
        bytes.resize(floats.len() * number.dtype().bytes() as usize, 0);
        numbers::narrow_into(number, floats, &mut bytes)?;
        layout.dtype = number.dtype();
    }
    Ok((layout, bytes))
}
