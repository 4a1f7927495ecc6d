//! A tensor's way out: from memory to disk, chunk by chunk.
//!
//! ```text
//!   Resident ─► writes in line ─► a worker encodes and writes each ─► the last one: memory is free
//!      ▲              │
//!      └─ used before it left: what was written is forgotten
//! ```

use std::sync::Arc;

use super::chunk_queue::ChunkWrite;
use super::encoding::{Compress, Element, StoredChunk};
use super::memory::{Held, TensorMemory};
use super::record::ChunkWritten;
use super::scratch::ScratchRange;
use super::state::{Dropped, State};
use super::step::Step;

impl State {
    /// Begins to write a resident tensor.
    pub fn begin_offload(&mut self, key: u64, chunk_bytes: usize, compress: Compress) {
        let record = self.records.get_mut(key);
        let writes = record.and_then(|record| record.begin_offload(key, chunk_bytes, compress));
        self.queue.push_writes(writes.into_iter().flatten());
    }

    /// The memory of a tensor that is there. One that was about to leave stays.
    pub fn hand_out(&mut self, key: u64) -> Option<TensorMemory> {
        let record = self.records.get_mut(key)?;
        let memory = record.hand_out()?;
        let (step, index) = (record.step, record.index);
        if record.is_offloading() {
            let ranges = record.cancel_offload();
            self.queue.cancel_writes(key);
            self.free(ranges);
        }
        self.steps.at(step).used(index);
        Some(memory)
    }

    /// The next chunk to write. What backward is about to use need not leave any more, unless its
    /// room is wanted for something that is used before it.
    pub fn next_write(&mut self) -> Option<ChunkWrite> {
        let write = self.queue.first_write()?;
        let record = self.records.get(write.key);
        let step = record.and_then(|record| self.steps.get(record.step));
        let is_late = step.is_some_and(Step::is_used);
        if is_late && self.room.claimed() == 0 && !self.room.is_full {
            return None;
        }
        self.queue.pop_write()
    }

    /// The memory and description of a chunk that is still to be written.
    pub fn chunk_to_write(&self, write: &ChunkWrite) -> Option<(Arc<Held>, Element, Compress)> {
        let record = self.records.get(write.key)?;
        let memory = record.chunk_to_write(write)?;
        Some((Arc::clone(memory), record.element, record.compress))
    }

    /// A chunk is on disk. With the last one, the memory of the tensor is free.
    pub fn chunk_written(
        &mut self,
        write: &ChunkWrite,
        range: ScratchRange,
        stored: StoredChunk,
    ) -> Option<Dropped> {
        self.written_bytes += stored.len as u64;
        let Some(record) = self.records.get_mut(write.key) else {
            self.scratch.free(range);
            return None;
        };
        match record.chunk_written(write, range, stored) {
            ChunkWritten::TooLate(range) => {
                self.scratch.free(range);
                None
            }
            ChunkWritten::More => None,
            ChunkWritten::Last { bytes, original } => {
                let (step, index) = (record.step, record.index);
                let is_encoded = record.compress != Compress::None;
                let step = self.steps.at(step);
                step.stored(index, bytes, is_encoded);
                step.order.fetch_again(index);
                original.map(Dropped::Held)
            }
        }
    }
}
