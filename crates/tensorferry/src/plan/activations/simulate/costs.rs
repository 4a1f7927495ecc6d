//! What it costs to move each tensor, worked out once for many runs.

use crate::plan::activations::{Place, Profile};

/// One tensor.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cost {
    pub(super) bytes: u64,
    /// As it is, and encoded.
    moved: [Moved; 2],
}

/// One tensor in one form.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moved {
    pub(super) write_seconds: f64,
    pub(super) read_seconds: f64,
    pub(super) stored_bytes: u64,
}

impl Cost {
    pub(super) fn of(profile: &Profile, tensor: usize) -> Self {
        let moved = |encoded| Moved {
            write_seconds: profile.write_seconds(tensor, encoded),
            read_seconds: profile.read_seconds(tensor, encoded),
            stored_bytes: profile.tensors[tensor].stored_bytes(encoded),
        };
        Self { bytes: profile.tensors[tensor].bytes, moved: [moved(false), moved(true)] }
    }

    pub(super) fn moved(&self, place: Place) -> Moved {
        self.moved[usize::from(place.is_encoded())]
    }
}
