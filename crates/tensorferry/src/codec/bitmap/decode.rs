//! From an encoding back to the tensor, checking each row on the way.
//!
//! The number of elements stored before a row is known from the bitmaps before it, and must be what
//! the row's offset says. It never exceeds the number of stored elements, so that a row can only be
//! read from where values are.

use std::ops::Range;

use super::header::{BITMAP_BYTES, HEADER_BYTES, Header, OFFSET_BYTES, corrupt};
use super::kernel::{self, Kernel};
use super::{ROW_ELEMENTS, Usable, Width};
use crate::error::{Error, Result};

/// Decodes `rows` of an encoding whose header was checked against its length.
pub(super) fn decode(
    usable: Usable,
    header: Header,
    encoded: &[u8],
    rows: Range<usize>,
    dst: &mut [u8],
) -> Result<()> {
    if rows.start > rows.end || rows.end > header.rows() {
        return Err(Error::invalid("the encoding does not have these rows")
            .with("rows", format!("{rows:?}"))
            .with("of", header.rows()));
    }
    if dst.len() != header.rows_len(&rows) {
        return Err(Error::invalid("the destination does not have the length of the decoded rows")
            .with("bytes", dst.len())
            .with("decoded", header.rows_len(&rows)));
    }
    let (fixed, values) = encoded.split_at(header.values_start());
    let (bitmaps, offsets) = fixed[HEADER_BYTES..].split_at(header.rows() * BITMAP_BYTES);
    let source =
        Source { header, bitmaps: bitmaps.as_chunks().0, offsets: offsets.as_chunks().0, values };
    match header.width {
        Width::Two => source.expand(&kernel::two(usable), rows, dst),
        Width::Four => source.expand(&kernel::four(usable), rows, dst),
    }
}

/// The sections of an encoding.
struct Source<'a> {
    header: Header,
    bitmaps: &'a [[u8; BITMAP_BYTES]],
    offsets: &'a [[u8; OFFSET_BYTES]],
    values: &'a [u8],
}

impl Source<'_> {
    fn expand<const ROW: usize>(
        &self,
        kernel: &Kernel<ROW>,
        rows: Range<usize>,
        dst: &mut [u8],
    ) -> Result<()> {
        let mut before = self.stored_before(rows.start)?;
        let (whole, tail) = dst.as_chunks_mut::<ROW>();
        let mut row = rows.start;
        for out in whole {
            before = self.expand_row(kernel, row, before, out)?;
            row += 1;
        }
        if !tail.is_empty() {
            self.check_tail(row)?;
            let mut out = [0; ROW];
            before = self.expand_row(kernel, row, before, &mut out)?;
            tail.copy_from_slice(&out[..tail.len()]);
        }
        self.check_offset(rows.end, before)
    }

    /// Expands a row and returns how many elements are stored up to its end.
    #[inline]
    fn expand_row<const ROW: usize>(
        &self,
        kernel: &Kernel<ROW>,
        row: usize,
        before: usize,
        out: &mut [u8; ROW],
    ) -> Result<usize> {
        self.check_offset(row, before)?;
        let bitmap = &self.bitmaps[row];
        let rest = &self.values[before * Kernel::<ROW>::WIDTH..];
        let count = if let Some(stored) = rest.first_chunk() {
            kernel.expand(bitmap, stored, out)
        } else {
            let mut stored = [0; ROW];
            stored[..rest.len()].copy_from_slice(rest);
            kernel.expand(bitmap, &stored, out)
        };
        let after = before + count;
        if after > self.header.stored as usize {
            let place = HEADER_BYTES + row * BITMAP_BYTES;
            return Err(corrupt(
                "bitmap",
                place,
                "a bitmap asks for more elements than are stored",
            )
            .with("row", row)
            .with("asked", after)
            .with("stored", self.header.stored));
        }
        Ok(after)
    }

    /// How many elements the encoding says are stored before `row`, within bounds.
    fn stored_before(&self, row: usize) -> Result<usize> {
        let before = match self.offsets.get(row) {
            Some(offset) if row > 0 => u32::from_le_bytes(*offset) as usize,
            Some(_) => 0,
            // No such row: the range is empty and at the end.
            None => self.header.stored as usize,
        };
        if before as u64 > self.header.stored {
            return Err(self.bad_offset(row, self.header.stored as usize));
        }
        Ok(before)
    }

    /// Checks what is said to be stored before `row`, or before the end, against what was counted.
    #[inline]
    fn check_offset(&self, row: usize, counted: usize) -> Result<()> {
        match self.offsets.get(row) {
            Some(offset) if u32::from_le_bytes(*offset) as usize == counted => Ok(()),
            None if self.header.stored as usize == counted => Ok(()),
            _ => Err(self.bad_offset(row, counted)),
        }
    }

    /// Bits of the last bitmap that belong to no element must be zero.
    fn check_tail(&self, row: usize) -> Result<()> {
        let used = self.header.elements as usize % ROW_ELEMENTS;
        if u128::from_le_bytes(self.bitmaps[row]) >> used == 0 {
            return Ok(());
        }
        let place = HEADER_BYTES + row * BITMAP_BYTES;
        Err(corrupt("bitmap", place, "a bit is set past the last element").with("row", row))
    }

    #[cold]
    fn bad_offset(&self, row: usize, counted: usize) -> Error {
        let (field, place, said) = match self.offsets.get(row) {
            Some(offset) => (
                "row offset",
                self.header.offsets_start() + row * OFFSET_BYTES,
                u64::from(u32::from_le_bytes(*offset)),
            ),
            None => ("stored", 16, self.header.stored),
        };
        corrupt(field, place, "the number of stored elements contradicts the bitmaps")
            .with("row", row)
            .with("said", said)
            .with("counted", counted)
    }
}
