//! Stored bytes to numbers.
//!
//! A recipe prepares one field of a sample. It is a pure function of the bytes and of the sample's
//! [`Chance`]; it runs on many threads at once, each with a [`Scratch`] of its own.

use super::chance::Chance;
use super::sample::{Field, Place, Raw};
use crate::error::Result;

/// How one field of every sample is prepared.
pub trait Recipe: Send + Sync {
    /// Prepares `field` and writes the result to `place`.
    fn prepare(
        &self,
        field: Field<'_>,
        chance: Chance,
        scratch: &mut Scratch,
        place: &mut dyn Place,
    ) -> Result<()>;

    /// The part of the work that is the same in every epoch (decoding), if that is worth keeping:
    /// bytes that `prepare` takes in place of the stored ones.
    fn decode(&self, field: Field<'_>, scratch: &mut Scratch) -> Result<Option<Raw>> {
        let _ = (field, scratch);
        Ok(None)
    }
}

/// Memory and decoders that a thread uses again for every sample.
#[derive(Default)]
pub struct Scratch {}
