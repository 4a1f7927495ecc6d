//! Whole numbers written as text: the classes of samples.

use super::{Chain, Recipe, Scratch};
use crate::data::chance::Chance;
use crate::data::sample::{Field, Layout, Place};
use crate::dtype::Dtype;
use crate::error::{Error, Kind, Result};

/// Text to int64.
#[derive(Debug)]
pub struct Int;

/// The longest number has 20 characters; the rest may be space around it.
const TEXT_BYTES_MAX: u64 = 64;

impl Int {
    /// There is nothing to do with a number but to read it.
    pub fn new(chain: &Chain) -> Result<Self> {
        match chain.steps().first() {
            None => Ok(Self),
            Some(step) => Err(Chain::refuse(step, "a whole number")),
        }
    }
}

impl Recipe for Int {
    fn prepare(
        &self,
        field: Field<'_>,
        _: Chance,
        _: &mut Scratch,
        place: &mut dyn Place,
    ) -> Result<()> {
        let mut text = [0; TEXT_BYTES_MAX as usize];
        let text = &mut text[..field.len().min(TEXT_BYTES_MAX) as usize];
        field.read_at(0, text)?;
        let number =
            std::str::from_utf8(text).ok().and_then(|text| text.trim().parse::<i64>().ok());
        let number = number.filter(|_| field.len() <= TEXT_BYTES_MAX).ok_or_else(|| {
            let start = text[..text.len().min(20)].escape_ascii();
            Error::new(Kind::Corrupt, format!("\"{start}\" is no whole number"))
        })?;
        let slot = place.array("", &Layout::new(Dtype::I64, []))?;
        slot.copy_from_slice(&number.to_le_bytes());
        Ok(())
    }
}
