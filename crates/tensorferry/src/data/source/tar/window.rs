//! Headers read from an object, as few bytes and requests as can be.
//!
//! Members that are small are read through, in large windows; the bytes of large ones are passed
//! over, and a window of a few headers is read behind them. What is small, the object says.

use std::ops::Range;

use crate::data::source::store::Object;
use crate::error::Result;

/// The part of an object that is in memory.
pub(super) struct Window<'a> {
    object: &'a dyn Object,
    start: u64,
    bytes: Vec<u8>,
}

impl<'a> Window<'a> {
    pub fn new(object: &'a dyn Object) -> Self {
        Self { object, start: 0, bytes: Vec::new() }
    }

    /// These bytes, which the object has.
    pub fn get(&mut self, range: Range<u64>) -> Result<&[u8]> {
        let end = self.start + self.bytes.len() as u64;
        if range.start < self.start || range.end > end {
            let next = range.start..range.end.max(range.start + self.ahead(range.start, end));
            self.bytes = self.object.read(next.start..next.end.min(self.object.bytes()))?;
            self.start = range.start;
        }
        let at = (range.start - self.start) as usize;
        Ok(&self.bytes[at..at + (range.end - range.start) as usize])
    }

    fn ahead(&self, start: u64, end: u64) -> u64 {
        let small = self.object.skip_min();
        // The first window is a guess: small members are as likely as large ones.
        if start.saturating_sub(end) < small && end > 0 { small * 4 } else { small / 16 }
    }
}
