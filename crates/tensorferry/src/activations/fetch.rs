//! A tensor's way back: from disk to memory, in the order of use, as far as there is room.
//!
//! ```text
//!   Offloaded ─► room, a block ─► reads in line ─► a worker reads, checks and decodes each ─► Fetched
//! ```
//!
//! Tensors are fetched ahead whenever room comes free, and when one is used. What backward stands still for
//! goes before all others.

use std::sync::Arc;

use super::chunk_queue::ChunkRead;
use super::encoding::StoredChunk;
use super::memory::Permit;
use super::scratch::{Drive, ScratchRange};
use super::shared::Shared;
use super::state::{Dropped, State};
use crate::error::Result;
use crate::io::Priority;
use crate::memory::{Block, SpareBlocks};

/// Where a chunk to read lies, and how urgent it is.
pub(super) struct ChunkSource {
    pub range: ScratchRange,
    pub drive: Arc<Drive>,
    pub offset: u64,
    pub priority: Priority,
}

impl State {
    /// The next tensor that backward will want and that is on disk only.
    pub fn next_to_fetch(&mut self) -> Option<u64> {
        let step = self.steps.backward_mut()?;
        while let Some(index) = step.order.next() {
            // A step may be shorter than its plan.
            let key = step.entries.get(index).map(|entry| entry.key);
            if let Some(key) = key.filter(|key| self.records.is_offloaded(*key)) {
                return Some(key);
            }
            step.order.skip();
        }
        None
    }

    /// Queues the reads of an offloaded tensor, into `block`, and counts its bytes.
    pub fn begin_fetch(&mut self, key: u64, block: Block, shared: &Arc<Shared>) {
        let Some(record) = self.records.get_mut(key) else { return };
        let (step, index, bytes) = (record.step, record.index, record.bytes);
        let permit = Permit::new(shared, bytes);
        let reads = record.begin_fetch(key, block, permit, shared.chunk_bytes);
        let count = reads.len();
        self.queue.push_reads(reads);
        self.room.settle_tensor(key);
        self.take(bytes);
        let step = self.steps.at(step);
        step.reads.queue(count);
        step.order.fetched(index);
    }

    /// Where a chunk lies, and how; it is on its way from now on.
    pub fn chunk_to_read(&mut self, read: &ChunkRead) -> Option<(ChunkSource, StoredChunk)> {
        let record = self.records.get(read.key)?;
        let (range, stored) = (*record.chunks.get(read.chunk)?)?;
        let (drive, offset) = self.scratch.at(range);
        let is_awaited = self.queue.is_awaited(read.key);
        let priority = if is_awaited { Priority::Waiting } else { Priority::Prefetch };
        self.scratch.begin(range, stored.len as u64);
        Some((ChunkSource { range, drive, offset, priority }, stored))
    }

    /// A chunk is in memory, and its part is gone.
    pub fn chunk_read(&mut self, key: u64) -> Option<Dropped> {
        self.records.get_mut(key)?.chunk_read().map(Dropped::Permit)
    }
}

impl Shared {
    /// Fetches what backward will want next, as far as there is room.
    pub fn fetch_ahead(self: &Arc<Self>, state: &mut State) {
        state.room.is_full = false;
        while let Some(key) = state.next_to_fetch() {
            let bytes = state.records.bytes_of(key);
            state.room.is_full = !state.room.has_spare(bytes) || self.fetch(state, key).is_err();
            if state.room.is_full {
                self.work.notify_all();
                break;
            }
        }
    }

    /// Begins to read an offloaded tensor, for which there is room.
    pub fn fetch(self: &Arc<Self>, state: &mut State, key: u64) -> Result<()> {
        let block = SpareBlocks::block(state.records.bytes_of(key) as usize)?;
        state.begin_fetch(key, block, self);
        self.work.notify_all();
        Ok(())
    }
}
