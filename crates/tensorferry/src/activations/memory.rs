//! Bytes in memory that count against the budget.

use std::ops::Deref;
use std::sync::Arc;

use super::store::Shared;
use crate::memory::Block;
use crate::sync::lock;

/// So many bytes of the budget; they are free again when this is dropped.
#[must_use = "bytes that are given back at once permit nothing"]
pub struct Permit {
    shared: Arc<Shared>,
    bytes: u64,
    /// The record whose original it is for.
    original: Option<u64>,
}

impl Permit {
    /// For a record's memory from outside. The bytes have been counted by the caller, under the lock.
    pub(super) fn of_original(shared: &Arc<Shared>, bytes: u64, key: u64) -> Self {
        Self { shared: Arc::clone(shared), bytes, original: Some(key) }
    }

    /// For memory to read to, counted as above.
    pub(super) fn of_restored(shared: &Arc<Shared>, bytes: u64) -> Self {
        Self { shared: Arc::clone(shared), bytes, original: None }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if self.shared.is_forked() {
            return;
        }
        let mut state = lock(&self.shared.state);
        state.discount(self.bytes, self.original);
        self.shared.fetch_ahead(&mut state);
        drop(state);
        self.shared.changed.notify_all();
    }
}

/// The bytes of a saved tensor.
#[derive(Clone)]
pub enum Memory {
    /// They never left.
    Original(Arc<Block>),
    /// They came back from disk.
    Restored(Arc<Restored>),
}

/// Bytes that came back from disk.
pub struct Restored {
    block: Block,
    _permit: Arc<Permit>,
}

impl Restored {
    pub(super) fn new(block: Block, permit: Arc<Permit>) -> Self {
        Self { block, _permit: permit }
    }
}

impl Deref for Memory {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Original(block) => block,
            Self::Restored(restored) => &restored.block,
        }
    }
}
