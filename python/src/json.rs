//! Reports of the core as text that Python reads.

use serde::Serialize;
use tensorferry::{Error, Kind, Result};

/// The value as JSON.
pub fn json(value: &impl Serialize) -> Result<String> {
    serde_json::to_string(value)
        .map_err(|error| Error::new(Kind::Internal, "can't write JSON").caused_by(error))
}
