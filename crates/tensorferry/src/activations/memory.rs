//! Bytes in memory that count against the budget.

use std::ops::Deref;
use std::sync::Arc;

use super::shared::Shared;
use crate::memory::Block;
use crate::sync::lock;

/// So many bytes of the budget; they are free again when this is dropped.
#[must_use = "bytes that are given back at once permit nothing"]
pub(super) struct Permit {
    shared: Arc<Shared>,
    bytes: u64,
}

impl Permit {
    /// The bytes have been counted by the caller, under the lock.
    pub(super) fn new(shared: &Arc<Shared>, bytes: u64) -> Self {
        Self { shared: Arc::clone(shared), bytes }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if self.shared.is_forked() {
            return;
        }
        let mut state = lock(&self.shared.state);
        state.give_back(self.bytes);
        self.shared.fetch_ahead(&mut state);
        drop(state);
        self.shared.changed.notify_all();
    }
}

/// The bytes of a saved tensor.
#[derive(Clone)]
pub enum TensorMemory {
    /// They never left.
    Original(Arc<Held>),
    /// They came back from disk.
    Restored(Arc<Held>),
}

/// The former name of [`TensorMemory`].
pub type Memory = TensorMemory;

/// Bytes in memory that count.
pub struct Held {
    // In this order: the memory goes first, then it is said to be free.
    block: Block,
    _permit: Arc<Permit>,
}

impl Held {
    pub(super) fn new(block: Block, permit: Arc<Permit>) -> Self {
        Self { block, _permit: permit }
    }
}

impl Deref for Held {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.block
    }
}

impl Deref for TensorMemory {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Original(held) | Self::Restored(held) => held,
        }
    }
}
