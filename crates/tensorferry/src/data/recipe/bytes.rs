//! Fields that stay what they are.

use super::step::Custom;
use super::{Chain, Recipe, Scratch, audio};
use crate::data::chance::Chance;
use crate::data::sample::{Field, Layout, Place};
use crate::dtype::Dtype;
use crate::error::Result;

/// Bytes as they are stored, or what the functions of a chain make of them.
#[derive(Debug)]
pub struct Bytes(Vec<Custom>);

impl Bytes {
    /// Bytes, given to the functions of `chain`.
    pub fn new(chain: &Chain) -> Result<Self> {
        audio::calls(
            chain.steps(),
            "bytes, as files of several kinds or of an unknown one are taken",
        )
        .map(Self)
    }
}

impl Recipe for Bytes {
    fn prepare(
        &self,
        field: Field<'_>,
        _: Chance,
        _: &mut Scratch,
        place: &mut dyn Place,
    ) -> Result<()> {
        let bytes = field.all()?;
        if self.0.is_empty() {
            return place.bytes("", &bytes);
        }
        let mut array = (Layout::new(Dtype::U8, [bytes.len()]), bytes.into_owned());
        for call in &self.0 {
            array = call.call(array.0, array.1)?;
        }
        place.array("", &array.0)?.copy_from_slice(&array.1);
        Ok(())
    }
}
