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
//! A tensor can be discarded from wherever it is, once it was put: its step was refused, or has failed.
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
    /// Let go of: its step was refused, or has failed.
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
    pub memory: Option<Arc<Held>>,
    /// It was on its way back.
    pub fetch: Option<Fetch>,
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

    /// Lets go of what it has in memory or on disk: it will not be used. One whose memory is still to come
    /// stays as it is.
    pub fn discard(&mut self) -> Option<Discarded> {
        if matches!(self.phase, Phase::Admitted | Phase::Discarded) {
            return None;
        }
        self.attempt += 1;
        let (memory, fetch) = match std::mem::replace(&mut self.phase, Phase::Discarded) {
            Phase::Fetched { memory, .. } => (Some(memory), None),
            Phase::Fetching(fetch) => (None, Some(fetch)),
            _ => (self.original.take(), None),
        };
        Some(Discarded { memory, fetch, ranges: self.take_ranges() })
    }

    pub fn is_discarded(&self) -> bool {
        matches!(self.phase, Phase::Discarded)
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

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use crate::activations::encoding::Encoding;
    use crate::activations::shared::Shared;
    use crate::activations::step::fixtures::operation;
    use crate::activations::store::Config;
    use crate::io::{self, Choice};
    use crate::memory::Buffer;
    use crate::plan::activations::Planner;
    use crate::size::Size;
    use crate::sync::lock;

    const CHUNK_BYTES: usize = 4096;
    const STORED: StoredChunk = StoredChunk { encoding: Encoding::Raw, len: 10, checksum: 0 };

    fn shared() -> Arc<Shared> {
        let engine = io::open(&io::Config::of(Choice::Memory)).unwrap();
        let config = Config {
            directories: vec!["/scratch".into()],
            budget: Size(16 << 20),
            compress: Compress::None,
            planner: Planner::Timeline,
        };
        Arc::new(Shared::open(engine, config).unwrap())
    }

    fn block() -> Block {
        Buffer::zeroed(2 * CHUNK_BYTES).unwrap().into()
    }

    fn range(shared: &Arc<Shared>) -> ScratchRange {
        lock(&shared.state).scratch.take(CHUNK_BYTES as u64).unwrap()
    }

    /// A tensor of two chunks that was admitted.
    fn admitted() -> Record {
        let (bytes, element) = (2 * CHUNK_BYTES as u64, Element::Other);
        Record::new(1, 0, &Tensor { name: "a", bytes, element, operation: operation(1) })
    }

    fn resident(shared: &Arc<Shared>) -> Record {
        let mut record = admitted();
        record.put(Arc::new(Held::new(block(), Arc::new(Permit::new(shared, 0)))));
        record
    }

    fn offload(record: &mut Record) -> Vec<ChunkWrite> {
        record.begin_offload(7, CHUNK_BYTES, Compress::None).unwrap().collect()
    }

    fn offloaded(shared: &Arc<Shared>) -> Record {
        let mut record = resident(shared);
        for write in offload(&mut record) {
            record.chunk_written(&write, range(shared), STORED);
        }
        assert!(record.is_offloaded());
        record
    }

    #[test]
    fn memory_is_free_when_the_last_chunk_is_on_disk_and_not_before() {
        let shared = shared();
        let mut record = resident(&shared);
        let writes = offload(&mut record);
        assert_eq!(writes.len(), 2);
        assert!(record.begin_offload(7, CHUNK_BYTES, Compress::None).is_none(), "once");
        let first = record.chunk_written(&writes[1], range(&shared), STORED);
        assert!(matches!(first, ChunkWritten::More) && record.is_offloading());
        let last = record.chunk_written(&writes[0], range(&shared), STORED);
        assert!(matches!(last, ChunkWritten::Last { bytes: 20, original: Some(_) }));
        assert_eq!((record.is_offloaded(), record.bytes_in_memory()), (true, 0));
    }

    #[test]
    fn a_chunk_of_an_offload_that_was_called_off_is_too_late() {
        let shared = shared();
        let mut record = resident(&shared);
        let first = offload(&mut record);
        record.chunk_written(&first[0], range(&shared), STORED);
        assert_eq!(record.cancel_offload().len(), 1, "what was written is free again");
        assert!(record.is_kept_alone() && record.chunk_to_write(&first[1]).is_none());
        let second = offload(&mut record);
        let late = record.chunk_written(&first[1], range(&shared), STORED);
        assert!(matches!(late, ChunkWritten::TooLate(_)));
        assert!(record.chunk_to_write(&second[1]).is_some());
    }

    #[test]
    fn a_fetched_tensor_is_idle_while_nobody_holds_it_and_knows_whether_it_was_used() {
        let shared = shared();
        let mut record = offloaded(&shared);
        let reads = record.begin_fetch(7, block(), Permit::new(&shared, 0), CHUNK_BYTES);
        assert_eq!(record.bytes_in_memory(), record.bytes);
        assert!(record.hand_out().is_none() && record.evict().is_none(), "on its way");
        for read in reads {
            drop(read);
            assert!(record.chunk_read().is_none());
        }
        assert_eq!(record.is_idle(), Some(false));
        let memory = record.hand_out().unwrap();
        assert!(matches!(memory, TensorMemory::Restored(_)) && record.is_idle().is_none());
        drop(memory);
        assert_eq!(record.is_idle(), Some(true));
        assert!(record.evict().is_some_and(|(_, is_used)| is_used) && record.is_offloaded());
    }

    #[test]
    fn what_is_discarded_has_neither_memory_nor_places_on_disk() {
        let shared = shared();
        assert!(admitted().discard().is_none(), "its memory is still to come");
        let memory = resident(&shared).discard().unwrap();
        assert!(memory.memory.is_some() && memory.ranges.is_empty());
        let disk = offloaded(&shared).discard().unwrap();
        assert!(disk.memory.is_none() && disk.ranges.len() == 2);
        let mut coming = offloaded(&shared);
        let reads = coming.begin_fetch(7, block(), Permit::new(&shared, 0), CHUNK_BYTES);
        let fetch = coming.discard().unwrap();
        assert!(fetch.fetch.is_some() && fetch.ranges.len() == 2 && reads.len() == 2);
        let mut leaving = resident(&shared);
        let writes = offload(&mut leaving);
        assert!(leaving.discard().is_some());
        let late = leaving.chunk_written(&writes[0], range(&shared), STORED);
        assert!(matches!(late, ChunkWritten::TooLate(_)));
    }
}
