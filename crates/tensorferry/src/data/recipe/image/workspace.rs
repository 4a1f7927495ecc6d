//! Memory and decoders of one thread, used again for every picture.

use super::pixels::Resizer;
use crate::codec;

/// What a thread keeps between two pictures, in each of its buffers: a rare large one must not stay.
const KEPT_BYTES_MAX: usize = 64 << 20;

/// All of it.
#[derive(Default)]
pub struct Workspace {
    /// None until there is a JPEG picture.
    pub(super) jpeg: Option<codec::jpeg::Decoder>,
    pub(super) buffers: Buffers,
    pub(super) resizer: Resizer,
    /// Results of resizing and padding, in turn.
    pub(super) front: Vec<u8>,
    pub(super) back: Vec<u8>,
}

/// What a picture is decoded into.
#[derive(Default)]
pub struct Buffers {
    pub(super) pixels: Vec<u8>,
    /// What was decoded on the way, before colours were converted.
    pub(super) staging: Vec<u8>,
}

impl Buffers {
    /// What was decoded, row by row without gaps.
    pub fn pixels(&self) -> &[u8] {
        &self.pixels
    }
}

impl Workspace {
    /// Gives back what a very large picture needed.
    pub fn shrink(&mut self) {
        let Buffers { pixels, staging } = &mut self.buffers;
        for buffer in [pixels, staging, &mut self.front, &mut self.back] {
            if buffer.capacity() > KEPT_BYTES_MAX {
                *buffer = Vec::new();
            }
        }
        if self.resizer.size_of_internal_buffers() > KEPT_BYTES_MAX {
            self.resizer.reset_internal_buffers();
        }
    }
}
