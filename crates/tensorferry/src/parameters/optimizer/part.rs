//! What is lent for a segment, and what is done with it when its chunk is in memory.

use super::layout::{Chunk, Segment, Shape};
use super::store::{Contents, Work};
use super::stream::Worker;
use crate::codec::adam::{self, Factors, Run};
use crate::codec::checksum::crc32c;
use crate::dtype::Dtype;
use crate::error::{Error, Kind, Result};

/// What a segment needs for its step.
pub(super) struct Part<'a> {
    factors: Factors,
    dtype: Dtype,
    parameter: &'a mut [u8],
    gradient_dtype: Dtype,
    gradient: &'a [u8],
}

impl<'a> Part<'a> {
    pub fn check(work: &Work<'_>, shape: &Shape) -> Result<()> {
        if shape.master == (work.dtype == Dtype::F32) {
            let why = "the parameter's dtype is not the one that its state was made for";
            return Err(Error::invalid(why).with("dtype", work.dtype.name()));
        }
        let bytes = |dtype: Dtype| shape.elements * dtype.bytes();
        let expected = (bytes(work.dtype), bytes(work.gradient_dtype));
        if (work.parameter.len() as u64, work.gradient.len() as u64) != expected {
            let why = "parameter and gradient do not have as many elements as their state";
            return Err(Error::invalid(why).with("elements", shape.elements));
        }
        Ok(())
    }

    pub fn of(work: Work<'a>) -> Self {
        let Work { factors, dtype, parameter, gradient_dtype, gradient, .. } = work;
        Self { factors, dtype, parameter, gradient_dtype, gradient }
    }

    pub fn cut(self, elements: usize) -> (Self, Self) {
        let Self { factors, dtype, parameter, gradient_dtype, gradient } = self;
        let (parameter, behind) = parameter.split_at_mut(elements * dtype.bytes() as usize);
        let (gradient, gradient_behind) =
            gradient.split_at(elements * gradient_dtype.bytes() as usize);
        let part =
            |parameter, gradient| Self { factors, dtype, parameter, gradient_dtype, gradient };
        (part(parameter, gradient), part(behind, gradient_behind))
    }
}

/// Memory for a segment's state.
pub(super) struct Planes<'a>([&'a mut [u8]; 3]);

impl<'a> Planes<'a> {
    pub fn check(contents: &Contents<'_>, shape: &Shape) -> Result<()> {
        let bytes = shape.elements as usize * 4;
        let expected = [bytes, bytes, if shape.master { bytes } else { 0 }];
        let found = [contents.first.len(), contents.second.len(), contents.master.len()];
        if found == expected {
            return Ok(());
        }
        let why = "the state of a parameter does not have as many elements as the parameter";
        Err(Error::invalid(why).with("elements", shape.elements))
    }

    pub fn of(contents: Contents<'a>) -> Self {
        Self([contents.first, contents.second, contents.master])
    }

    pub fn cut(self, elements: usize) -> (Self, Self) {
        let mut behind: [&mut [u8]; 3] = Default::default();
        let mut at = 0;
        let here = self.0.map(|plane| {
            let (here, rest) = plane.split_at_mut((elements * 4).min(plane.len()));
            behind[at] = rest;
            at += 1;
            here
        });
        (Self(here), Self(behind))
    }
}

/// Copies chunks to memory.
pub(super) struct Reading<'a>(pub &'a [Chunk]);

impl<'a> Worker<Planes<'a>> for Reading<'_> {
    fn work(
        &self,
        chunk: usize,
        bytes: &mut [u8],
        parts: Vec<(usize, Planes<'a>)>,
    ) -> Result<Vec<(usize, Option<u32>)>> {
        let chunk = &self.0[chunk];
        for (segment, Planes(planes)) in parts {
            for (plane, into) in planes.into_iter().enumerate().take(chunk.planes) {
                into.copy_from_slice(&bytes[chunk.range(&chunk.segments[segment], plane)]);
            }
        }
        Ok(Vec::new())
    }
}

/// Changes chunks: by a step, or by what is in memory.
pub(super) struct Changing<'a>(pub &'a [Chunk]);

impl<'a> Worker<Planes<'a>> for Changing<'_> {
    fn work(
        &self,
        chunk: usize,
        bytes: &mut [u8],
        parts: Vec<(usize, Planes<'a>)>,
    ) -> Result<Vec<(usize, Option<u32>)>> {
        let chunk = &self.0[chunk];
        let mut changed = Vec::with_capacity(parts.len());
        for (segment, Planes(planes)) in parts {
            for (plane, from) in planes.into_iter().enumerate().take(chunk.planes) {
                bytes[chunk.range(&chunk.segments[segment], plane)].copy_from_slice(from);
            }
            // Which parameters go with it will be known after the next step.
            changed.push((segment, None));
        }
        Ok(changed)
    }
}

impl<'a> Worker<Part<'a>> for Changing<'_> {
    fn work(
        &self,
        chunk: usize,
        bytes: &mut [u8],
        parts: Vec<(usize, Part<'a>)>,
    ) -> Result<Vec<(usize, Option<u32>)>> {
        let chunk = &self.0[chunk];
        let mut changed = Vec::with_capacity(parts.len());
        for (at, Part { factors, dtype, parameter, gradient_dtype, gradient }) in parts {
            let segment = &chunk.segments[at];
            let [first, second, master] = planes_of(chunk, segment, bytes)?;
            let parameter = &mut *parameter;
            let run = Run { dtype, parameter, gradient_dtype, gradient, first, second, master };
            adam::step(&factors, run)?;
            changed.push((at, Some(crc32c(parameter))));
        }
        Ok(changed)
    }
}

/// A segment's numbers in the bytes of its chunk.
fn planes_of<'a>(
    chunk: &Chunk,
    segment: &Segment,
    bytes: &'a mut [u8],
) -> Result<[&'a mut [u8]; 3]> {
    let master = if chunk.planes == 3 { chunk.range(segment, 2) } else { 0..0 };
    let planes = [chunk.range(segment, 0), chunk.range(segment, 1), master];
    let cut = bytes.get_disjoint_mut(planes);
    cut.map_err(|error| Error::new(Kind::Internal, format!("a chunk is cut wrongly: {error}")))
}
