//! From a tensor to its encoding, in one pass.
//!
//! The places of the bitmaps and offsets follow from the number of elements alone, so that rows
//! can be compressed straight to where they belong before it is known how many values there are.

use super::header::{BITMAP_BYTES, ELEMENTS_MAX, HEADER_BYTES, Header, OFFSET_BYTES};
use super::kernel::{self, Kernel};
use super::{Usable, Width};
use crate::error::{Error, Result};

pub(super) fn measure(usable: Usable, src: &[u8], width: Width) -> Result<usize> {
    let elements = elements_of(src, width)?;
    let stored = match width {
        Width::Two => kernel::two(usable).count(src),
        Width::Four => kernel::four(usable).count(src),
    };
    Ok(Header { width, elements, stored: stored as u64 }.encoded_len())
}

pub(super) fn encode(usable: Usable, src: &[u8], width: Width, dst: &mut [u8]) -> Result<usize> {
    let mut header = Header { width, elements: elements_of(src, width)?, stored: 0 };
    let room = dst.len();
    let Some((fixed, values)) = dst.split_at_mut_checked(header.values_start()) else {
        return Err(too_small(room));
    };
    let (head, index) = fixed.split_at_mut(HEADER_BYTES);
    let (bitmaps, offsets) = index.split_at_mut(header.rows() * BITMAP_BYTES);
    let index = Index { bitmaps: bitmaps.as_chunks_mut().0, offsets: offsets.as_chunks_mut().0 };
    let stored = match width {
        Width::Two => compress(&kernel::two(usable), src, index, values),
        Width::Four => compress(&kernel::four(usable), src, index, values),
    };
    header.stored = stored.ok_or_else(|| too_small(room))? as u64;
    head.copy_from_slice(&header.to_bytes());
    Ok(header.encoded_len())
}

/// The two sections that hold one entry for each row.
struct Index<'a> {
    bitmaps: &'a mut [[u8; BITMAP_BYTES]],
    offsets: &'a mut [[u8; OFFSET_BYTES]],
}

/// Compresses every row of `src`; how many elements were stored, or `None` if `values` is too
/// small for them.
fn compress<const ROW: usize>(
    kernel: &Kernel<ROW>,
    src: &[u8],
    index: Index<'_>,
    values: &mut [u8],
) -> Option<usize> {
    let (rows, tail) = src.as_chunks::<ROW>();
    let mut last = [0; ROW];
    last[..tail.len()].copy_from_slice(tail);
    let last = (!tail.is_empty()).then_some(&last);

    let mut stored = 0;
    let entries = index.bitmaps.iter_mut().zip(index.offsets);
    for (row, (bitmap, offset)) in rows.iter().chain(last).zip(entries) {
        *offset = (stored as u32).to_le_bytes();
        let rest = &mut values[stored * Kernel::<ROW>::WIDTH..];
        stored += match rest.first_chunk_mut() {
            Some(room) => kernel.compress(row, bitmap, room),
            None => compress_at_the_end(kernel, row, bitmap, rest)?,
        };
    }
    Some(stored)
}

/// Compresses a row where there is no room for a whole one any more.
fn compress_at_the_end<const ROW: usize>(
    kernel: &Kernel<ROW>,
    row: &[u8; ROW],
    bitmap: &mut [u8; BITMAP_BYTES],
    rest: &mut [u8],
) -> Option<usize> {
    let mut room = [0; ROW];
    let count = kernel.compress(row, bitmap, &mut room);
    let bytes = count * Kernel::<ROW>::WIDTH;
    rest.get_mut(..bytes)?.copy_from_slice(&room[..bytes]);
    Some(count)
}

/// How many elements `src` holds, if they are whole and not too many.
fn elements_of(src: &[u8], width: Width) -> Result<u64> {
    if !src.len().is_multiple_of(width.bytes()) {
        return Err(Error::invalid("the bytes to encode are not a whole number of elements")
            .with("bytes", src.len())
            .with("width", width.bytes()));
    }
    let elements = (src.len() / width.bytes()) as u64;
    if elements > ELEMENTS_MAX {
        return Err(Error::invalid("too many elements for one encoding; encode them in parts")
            .with("elements", elements)
            .with("elements_max", ELEMENTS_MAX));
    }
    Ok(elements)
}

#[cold]
fn too_small(room: usize) -> Error {
    Error::invalid("the destination is too small for the bitmap encoding").with("bytes", room)
}
