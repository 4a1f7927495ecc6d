//! Memory that a calling thread only borrows to the engine.
//!
//! An operation of the driver's owns its memory, because the kernel may use it for longer than the caller
//! waits. A call of the kernel's is over before its thread goes on: what it moves may be a slot of a batch or
//! the unused room of a vector, and nothing is allocated, cleared or copied for it. It goes through the page
//! cache, which takes any address and length.

use std::io::IoSliceMut;
use std::mem;

use rustix::buffer::spare_capacity;
use rustix::io::{Errno, pread, preadv, pwrite};

use super::file::File;
use super::memory::{copy_out, write_at};
use super::piece::Flow;

/// The kernel takes no more slices in one call.
const SLICES_MAX: usize = 1024;

/// What is read into, or written.
#[derive(Debug)]
pub enum Borrowed<'a, 'b> {
    /// Filled, one slice after the other.
    Slices(&'a mut [IoSliceMut<'b>]),
    /// Read behind what a vector holds: at least so many bytes are wanted, and as many as its memory
    /// has room for are taken if they come with them.
    Behind {
        /// The vector; it grows if it has to.
        bytes: &'a mut Vec<u8>,
        /// Bytes that are wanted.
        least: usize,
    },
    /// Written.
    Bytes(&'a [u8]),
}

impl Borrowed<'_, '_> {
    pub(super) fn flow(&self) -> Flow {
        if matches!(self, Self::Bytes(_)) { Flow::Write } else { Flow::Read }
    }

    /// How many bytes are to be moved yet.
    pub(super) fn wanted(&self) -> usize {
        match self {
            Self::Slices(slices) => slices.iter().map(|slice| slice.len()).sum(),
            Self::Behind { least, .. } => *least,
            Self::Bytes(bytes) => bytes.len(),
        }
    }

    /// Moves bytes by one call, at most so many, and says how many; what was moved is not wanted any more.
    pub(super) fn carry_out(
        &mut self,
        file: &File,
        offset: u64,
        most: Option<usize>,
    ) -> Result<usize, Errno> {
        let moved = match self {
            Self::Slices(slices) => {
                IoSliceMut::advance_slices(slices, 0);
                read_slices(file, offset, slices, most)
            }
            Self::Behind { bytes, least } => read_behind(file, offset, bytes, *least, most),
            Self::Bytes(bytes) => {
                let most = most.unwrap_or(bytes.len()).min(bytes.len());
                write(file, offset, &bytes[..most])
            }
        }?;
        match self {
            Self::Slices(slices) => IoSliceMut::advance_slices(slices, moved),
            Self::Behind { least, .. } => *least = least.saturating_sub(moved),
            Self::Bytes(bytes) => *bytes = &mem::take(bytes)[moved..],
        }
        Ok(moved)
    }
}

fn read_slices(
    file: &File,
    offset: u64,
    slices: &mut [IoSliceMut<'_>],
    most: Option<usize>,
) -> Result<usize, Errno> {
    let taken = slices.len().min(SLICES_MAX);
    match (slices, file.descriptor(false)) {
        ([], _) => Ok(0),
        (slices @ [_, _, ..], Some(descriptor)) if most.is_none() => {
            preadv(descriptor, &mut slices[..taken], offset)
        }
        ([first, ..], _) => {
            let alone = most.unwrap_or(first.len()).min(first.len());
            read(file, offset, &mut first[..alone])
        }
    }
}

fn read_behind(
    file: &File,
    offset: u64,
    bytes: &mut Vec<u8>,
    least: usize,
    most: Option<usize>,
) -> Result<usize, Errno> {
    bytes.reserve(least);
    if let (Some(descriptor), None) = (file.descriptor(false), most) {
        return or_end(pread(descriptor, spare_capacity(bytes), offset));
    }
    let start = bytes.len();
    let room = bytes.capacity() - start;
    bytes.resize(start + most.unwrap_or(room).min(room), 0);
    let result = read(file, offset, &mut bytes[start..]);
    bytes.truncate(start + *result.as_ref().unwrap_or(&0));
    result
}

fn read(file: &File, offset: u64, into: &mut [u8]) -> Result<usize, Errno> {
    match (file.content(), file.descriptor(false)) {
        (Some(content), _) => copy_out(content, offset, into),
        (None, Some(descriptor)) => or_end(pread(descriptor, into, offset)),
        (None, None) => Err(Errno::BADF),
    }
}

fn write(file: &File, offset: u64, from: &[u8]) -> Result<usize, Errno> {
    match (file.content(), file.descriptor(false)) {
        (Some(content), _) => write_at(content, offset, from),
        (None, Some(descriptor)) => pwrite(descriptor, from, offset),
        (None, None) => Err(Errno::BADF),
    }
}

/// A pipe has no offsets, and nothing is stored in it.
fn or_end(read: Result<usize, Errno>) -> Result<usize, Errno> {
    if read == Err(Errno::SPIPE) { Ok(0) } else { read }
}
