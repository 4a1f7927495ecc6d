//! A random part of a volume, read from where it is stored: only the rows that it has.
//!
//! A volume is the last three dimensions of an array. Whatever stands before them is a number of
//! volumes, all cut and flipped alike.

use crate::data::chance::Chance;
use crate::data::recipe::step::{Step, probability};
use crate::data::sample::{Field, Layout};
use crate::error::{Error, Kind, Result};

/// A step that moves elements of a volume.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Turn {
    /// A random part of this size.
    Crop([usize; 3]),
    /// Each dimension reversed, so likely.
    Flip(f64),
}

impl Turn {
    /// What a step does to volumes; none if it does not move elements.
    pub fn of(step: &Step) -> Result<Option<Self>> {
        Ok(Some(match step {
            Step::RandomCrop3d { size } => {
                Self::Crop(size.all(step.name())?.map(|side: u32| side as usize))
            }
            Step::RandomFlip3d { p } => Self::Flip(probability(*p, step.name())?),
            _ => return Ok(None),
        }))
    }
}

/// Which part of every volume of an array, and how it is turned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cut {
    /// The dimensions before the last three.
    outer: Vec<usize>,
    /// Of the stored volume.
    full: [usize; 3],
    start: [usize; 3],
    size: [usize; 3],
    flip: [bool; 3],
}

impl Cut {
    /// What the steps do to an array of this shape.
    pub fn of(turns: &[Turn], shape: &[usize], chance: &mut Chance) -> Result<Self> {
        let Some((outer, full)) = shape.split_last_chunk::<3>() else {
            let what = format!("an array of shape {shape:?} is no volume");
            return Err(Error::invalid(format!("{what}: that takes three dimensions")));
        };
        let (start, size, flip) = ([0; 3], *full, [false; 3]);
        let mut cut = Self { outer: outer.to_vec(), full: *full, start, size, flip };
        for turn in turns {
            match turn {
                Turn::Crop(size) => cut.crop(*size, chance)?,
                Turn::Flip(p) => cut.flip = cut.flip.map(|flip| flip ^ (chance.unit() < *p)),
            }
        }
        Ok(cut)
    }

    fn crop(&mut self, size: [usize; 3], chance: &mut Chance) -> Result<()> {
        for (axis, side) in size.into_iter().enumerate() {
            let Some(spare) = self.size[axis].checked_sub(side) else {
                let has = format!("the volume is {:?}", self.size);
                return Err(Error::invalid(format!("{has}, and RandomCrop3D needs {size:?}")));
            };
            let left = chance.below(spare as u64 + 1) as usize;
            // What was flipped before is cut as it is seen.
            self.start[axis] += if self.flip[axis] { spare - left } else { left };
        }
        self.size = size;
        Ok(())
    }

    /// The shape of the result.
    pub fn shape(&self) -> Vec<usize> {
        self.outer.iter().chain(&self.size).copied().collect()
    }

    /// Reads the part from an array that starts at `start` of `field` into `slot`. `rows` is memory
    /// for rows that come from a file.
    pub fn read(
        &self,
        field: Field<'_>,
        (start, layout): (u64, &Layout),
        rows: &mut Vec<u8>,
        slot: &mut [u8],
    ) -> Result<()> {
        let element = layout.dtype.bytes() as usize;
        let [_, full_rows, full_columns] = self.full;
        let [depth, height, width] = self.size;
        if Layout::new(layout.dtype, self.shape()).bytes() != Some(slot.len()) {
            return Err(Error::new(Kind::Internal, "the slot of a volume has another size"));
        }
        if slot.is_empty() {
            return Ok(());
        }
        let across = full_columns * element;
        let planes = slot.chunks_exact_mut(height * width * element);
        for (at, plane) in planes.enumerate() {
            let (volume, z) = (at / depth, at % depth);
            let z = self.start[0] + if self.flip[0] { depth - 1 - z } else { z };
            // All rows of a plane at once: a call for each would cost more than what lies between.
            let first = ((volume * self.full[0] + z) * full_rows + self.start[1]) * across;
            let length = height * across;
            let stored = match field {
                Field::Memory(bytes) => &bytes[start as usize + first..][..length],
                Field::Stored { .. } => {
                    rows.resize(length, 0);
                    field.read_at(start + first as u64, rows)?;
                    rows.as_slice()
                }
            };
            self.plane(stored, element, plane);
        }
        Ok(())
    }

    /// Copies the part's columns of rows of a plane.
    fn plane(&self, stored: &[u8], element: usize, plane: &mut [u8]) {
        let [_, height, width] = self.size;
        let across = self.full[2] * element;
        let columns = self.start[2] * element..(self.start[2] + width) * element;
        for (y, target) in plane.chunks_exact_mut(width * element).enumerate() {
            let y = if self.flip[1] { height - 1 - y } else { y };
            let row = &stored[y * across..(y + 1) * across][columns.clone()];
            if self.flip[2] {
                match element {
                    1 => reverse::<1>(row, target),
                    2 => reverse::<2>(row, target),
                    4 => reverse::<4>(row, target),
                    _ => reverse::<8>(row, target),
                }
            } else {
                target.copy_from_slice(row);
            }
        }
    }
}

/// The elements of a row from the last to the first; their size is known here, for speed.
fn reverse<const N: usize>(row: &[u8], into: &mut [u8]) {
    let elements = row.as_chunks::<N>().0.iter().rev();
    for (target, element) in into.as_chunks_mut::<N>().0.iter_mut().zip(elements) {
        *target = *element;
    }
}
