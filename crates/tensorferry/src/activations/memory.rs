//! Bytes in memory that count against the budget.

use std::ops::Deref;
use std::sync::Arc;

use super::shared::Shared;
use crate::error::Result;
use crate::memory::{Block, Claim, Named, Priority};
use crate::sync::{Mutex, lock};

/// What the budgets of all stores take.
static ACCOUNT: Named = Named::new("activations", Priority::Needed);

/// A budget in the process's ledger: all of it is set aside, so that whoever has begun has its room.
pub(super) struct Counted(Mutex<Claim>);

impl Counted {
    /// For a budget, of which so much is staging and held from now on.
    pub(super) fn open(budget: u64, staging: u64) -> Result<Self> {
        let mut claim = ACCOUNT.reserve(budget)?;
        claim.grow(staging)?;
        Ok(Self(Mutex::new(claim)))
    }
}

/// So many bytes of the budget; they are free again when this is dropped.
#[must_use = "bytes that are given back at once permit nothing"]
pub(super) struct Permit {
    shared: Arc<Shared>,
    bytes: u64,
    /// Whether the ledger counts them: not beyond a budget where it has no more room.
    is_counted: bool,
}

impl Permit {
    /// The bytes have been counted by the caller, under the lock.
    pub(super) fn new(shared: &Arc<Shared>, bytes: u64) -> Self {
        let is_counted = lock(&shared.counted.0).try_grow(bytes);
        Self { shared: Arc::clone(shared), bytes, is_counted }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if self.shared.is_forked() {
            return;
        }
        if self.is_counted {
            lock(&self.shared.counted.0).shrink(self.bytes);
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
