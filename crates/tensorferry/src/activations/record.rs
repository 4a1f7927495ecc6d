//! One saved tensor: where its bytes are, and what may happen to it next.
//!
//! ```text
//!   Admitted ──put──► Resident ──begin_offload──► Offloading ──last chunk written──► Offloaded
//!                        ▲  │                       │                                ▲  │ begin_fetch
//!                        │  └──────discard─────┐    │ cancel_offload           evict │  ▼
//!                        └─────────────────────│────┘                          Fetched ◄─ Fetching
//!                                              ▼                                     last chunk read
//!                                          Discarded
//! ```
//!
//! A tensor that is offloading or offloaded can be discarded too: its step was refused.
//!
//! These are transitions of one record and nothing else. Its places on disk and its memory are handed to the
//! caller, who gives the places back under the lock, and drops the memory after it.

use std::sync::Arc;

use super::chunk_queue::{ChunkRead, ChunkWrite};
use super::encoding::{Compress, Element, StoredChunk};
use super::memory::{Held, Permit, TensorMemory};
use super::operation::Operation;
use super::scratch::ScratchRange;
use super::store::Tensor;
use crate::memory::{Block, Parts};

/// Where the bytes of a tensor are.
pub(super) enum Phase {
    /// Admitted, its memory not given yet; or forgotten while it was.
    Admitted,
    /// Let go of: its step was refused.
    Discarded,
    /// In memory, where the caller saved it.
    Resident,
    /// In memory, while so many chunks are still to be written.
    Offloading { left: usize },
    /// On disk only.
    Offloaded,
    /// On its way back to memory.
    Fetching(Fetch),
    /// On disk, and in memory again.
    Fetched { memory: Arc<Held>, is_used: bool },
}

/// A tensor on its way back.
pub(super) struct Fetch {
    /// Joined when the last chunk is there.
    parts: Parts,
    permit: Arc<Permit>,
    left: usize,
}

/// A saved tensor.
pub(super) struct Record {
    pub step: u64,
    pub index: usize,
    pub name: String,
    pub element: Element,
    pub bytes: u64,
    pub phase: Phase,
    /// The caller's memory, until the last chunk is on disk.
    pub original: Option<Arc<Held>>,
    /// What is on disk, chunk by chunk.
    pub chunks: Vec<Option<(ScratchRange, StoredChunk)>>,
    /// Counts attempts to offload it, and their ends: a worker that comes back from an older one is too late.
    attempt: u32,
    pub compress: Compress,
    /// The last one that saved it.
    operation: Operation,
}

/// What a chunk that was written means for its record.
pub(super) enum ChunkWritten {
    /// The offload was called off meanwhile: the place is free again.
    TooLate(ScratchRange),
    /// More chunks are to come.
    More,
    /// It was the last: all of the tensor is on disk, in so many bytes.
    Last { bytes: u64, original: Option<Arc<Held>> },
}

/// What a record had that is not needed any more.
pub(super) struct Discarded {
    pub original: Option<Arc<Held>>,
    pub ranges: Vec<ScratchRange>,
}

impl Record {
    pub fn new(step: u64, index: usize, tensor: &Tensor<'_>) -> Self {
        Self {
            step,
            index,
            name: tensor.name.to_owned(),
            element: tensor.element,
            bytes: tensor.bytes,
            operation: tensor.operation,
            phase: Phase::Admitted,
            original: None,
            chunks: Vec::new(),
            attempt: 0,
            compress: Compress::None,
        }
    }

    /// Its memory is given.
    pub fn put(&mut self, held: Arc<Held>) {
        self.phase = Phase::Resident;
        self.original = Some(held);
    }

    /// Another operation has saved the same tensor. Returns whether it is another one than the last.
    pub fn share(&mut self, operation: Operation) -> bool {
        std::mem::replace(&mut self.operation, operation) != operation
    }

    // -- the way out --

    /// Begins to write a resident tensor: its chunks.
    pub fn begin_offload(
        &mut self,
        key: u64,
        chunk_bytes: usize,
        compress: Compress,
    ) -> Option<impl Iterator<Item = ChunkWrite> + use<>> {
        if !matches!(self.phase, Phase::Resident) {
            return None;
        }
        let count = (self.bytes as usize).div_ceil(chunk_bytes).max(1);
        self.attempt += 1;
        self.phase = Phase::Offloading { left: count };
        self.chunks = vec![None; count];
        self.compress = compress;
        let attempt = self.attempt;
        Some((0..count).map(move |chunk| ChunkWrite { key, attempt, chunk }))
    }

    /// The memory that a chunk is written from, unless its offload was called off.
    pub fn chunk_to_write(&self, write: &ChunkWrite) -> Option<&Arc<Held>> {
        let is_wanted =
            self.attempt == write.attempt && matches!(self.phase, Phase::Offloading { .. });
        self.original.as_ref().filter(|_| is_wanted)
    }

    /// A chunk is on disk.
    pub fn chunk_written(
        &mut self,
        write: &ChunkWrite,
        range: ScratchRange,
        stored: StoredChunk,
    ) -> ChunkWritten {
        if self.attempt != write.attempt {
            return ChunkWritten::TooLate(range);
        }
        self.chunks[write.chunk] = Some((range, stored));
        let Phase::Offloading { left } = &mut self.phase else { return ChunkWritten::More };
        *left -= 1;
        if *left > 0 {
            return ChunkWritten::More;
        }
        self.phase = Phase::Offloaded;
        let bytes = self.chunks.iter().flatten().map(|(_, stored)| stored.len as u64).sum();
        ChunkWritten::Last { bytes, original: self.original.take() }
    }

    /// Keeps a tensor that was about to leave. Its places on disk are free again.
    pub fn cancel_offload(&mut self) -> Vec<ScratchRange> {
        self.attempt += 1;
        self.phase = Phase::Resident;
        self.take_ranges()
    }

    // -- the way back --

    /// Begins to read an offloaded tensor into `block`: its chunks.
    pub fn begin_fetch(
        &mut self,
        key: u64,
        block: Block,
        permit: Permit,
        chunk_bytes: usize,
    ) -> Vec<ChunkRead> {
        let (left, permit, mut parts) = (self.chunks.len(), Arc::new(permit), Parts::new(block));
        let read = |chunk| {
            let (part, permit) = (parts.cut(chunk_bytes), Arc::clone(&permit));
            ChunkRead { key, chunk, part, permit }
        };
        let reads = (0..left).map(read).collect();
        self.phase = Phase::Fetching(Fetch { parts, permit, left });
        reads
    }

    /// A chunk is in memory, and its part is gone. If the last chunk could not be joined with the others, its
    /// permit is for the caller to drop.
    pub fn chunk_read(&mut self) -> Option<Arc<Permit>> {
        let Phase::Fetching(fetch) = &mut self.phase else { return None };
        fetch.left -= 1;
        if fetch.left > 0 {
            return None;
        }
        let last = std::mem::replace(&mut self.phase, Phase::Offloaded);
        let Phase::Fetching(Fetch { parts, permit, .. }) = last else { return None };
        let Ok(block) = parts.join() else { return Some(permit) };
        let memory = Arc::new(Held::new(block, permit));
        self.phase = Phase::Fetched { memory, is_used: false };
        None
    }

    /// Its memory, if it is there. What is used is marked as such.
    pub fn hand_out(&mut self) -> Option<TensorMemory> {
        match &mut self.phase {
            Phase::Resident | Phase::Offloading { .. } => {
                Some(TensorMemory::Original(Arc::clone(self.original.as_ref()?)))
            }
            Phase::Fetched { memory, is_used } => {
                *is_used = true;
                Some(TensorMemory::Restored(Arc::clone(memory)))
            }
            _ => None,
        }
    }

    /// Takes the memory of a fetched tensor, and says whether it was used.
    pub fn evict(&mut self) -> Option<(Arc<Held>, bool)> {
        match std::mem::replace(&mut self.phase, Phase::Offloaded) {
            Phase::Fetched { memory, is_used } => Some((memory, is_used)),
            other => {
                self.phase = other;
                None
            }
        }
    }

    // -- its end --

    /// Lets go of what it has in memory or on disk: it will not be used. One that is expected or on its way
    /// back stays as it is.
    pub fn discard(&mut self) -> Option<Discarded> {
        if !matches!(self.phase, Phase::Resident | Phase::Offloading { .. } | Phase::Offloaded) {
            return None;
        }
        self.phase = Phase::Discarded;
        self.attempt += 1;
        Some(Discarded { original: self.original.take(), ranges: self.take_ranges() })
    }

    /// Its places on disk, for the caller to free.
    pub fn take_ranges(&mut self) -> Vec<ScratchRange> {
        std::mem::take(&mut self.chunks).into_iter().flatten().map(|(range, _)| range).collect()
    }

    // -- what it is --

    pub fn is_offloaded(&self) -> bool {
        matches!(self.phase, Phase::Offloaded)
    }

    pub fn is_offloading(&self) -> bool {
        matches!(self.phase, Phase::Offloading { .. })
    }

    /// Whether it is kept and would free its memory by leaving: nobody else has it.
    pub fn is_kept_alone(&self) -> bool {
        matches!(self.phase, Phase::Resident)
            && self.original.as_ref().is_some_and(|block| Arc::strong_count(block) == 1)
    }

    /// Whether it was fetched and nobody holds it; and then, whether it was used.
    pub fn is_idle(&self) -> Option<bool> {
        match &self.phase {
            Phase::Fetched { memory, is_used } if Arc::strong_count(memory) == 1 => Some(*is_used),
            _ => None,
        }
    }

    /// Bytes that it has in memory.
    pub fn bytes_in_memory(&self) -> u64 {
        match &self.phase {
            Phase::Admitted | Phase::Discarded | Phase::Offloaded => 0,
            Phase::Resident
            | Phase::Offloading { .. }
            | Phase::Fetching(_)
            | Phase::Fetched { .. } => self.bytes,
        }
    }
}
