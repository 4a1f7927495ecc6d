//! All that is known of activations, under one lock: the parts, and what concerns several of them.
//!
//! | part | what it knows |
//! |---|---|
//! | [`Records`] | each saved tensor, and where its bytes are |
//! | [`Steps`] | the steps under way, and the plans that they follow |
//! | [`Room`], [`Patience`] | the budget, and those who wait for it |
//! | [`ChunkQueue`] | chunks for the workers |
//! | [`Scratch`] | ranges on disk |
//!
//! Each part is a state machine of its own. Inline stands what moves a tensor through several of them: how it
//! comes and goes. Its way to disk is in `offload.rs`, the way back in `fetch.rs`.
//!
//! What must not be dropped under the lock is handed to the caller as [`Dropped`].

use std::sync::Arc;
use std::time::Duration;

use super::chunk_queue::{ChunkQueue, ChunkRead};
use super::eviction::{self, IdleTensor};
use super::fault::StepFault;
use super::memory::{Held, Permit};
use super::operation::Operation;
use super::patience::Patience;
use super::record::{Discarded, Fetch, Phase, Record};
use super::records::Records;
use super::room::Room;
use super::scratch::{Scratch, ScratchRange};
use super::sizes::SPARE_BYTES_MAX;
use super::step::Step;
use super::steps::Steps;
use super::store::Tensor;
use crate::error::{Error, Result};
use crate::memory::Share;
use crate::plan::activations::Place;
use crate::sync::now;

/// What must not be dropped under the lock: whatever keeps a caller's memory alive may come back to it.
pub(super) enum Dropped {
    #[expect(dead_code, reason = "it is only dropped")]
    Held(Arc<Held>),
    #[expect(dead_code, reason = "it is only dropped")]
    Fetch(Vec<ChunkRead>, Fetch),
    #[expect(dead_code, reason = "it is only dropped")]
    Permit(Arc<Permit>),
}

/// What the lock guards.
pub(super) struct State {
    pub records: Records,
    pub steps: Steps,
    pub room: Room,
    pub patience: Patience,
    pub queue: ChunkQueue,
    pub scratch: Scratch,
    /// Keeps blocks that come free for the next tensors.
    spare: Option<Share>,
    /// Bytes written to disk, in all.
    pub written_bytes: u64,
    /// Workers end when nothing is in line.
    pub is_closing: bool,
}

impl State {
    /// With room for so many bytes of tensors.
    pub fn new(scratch: Scratch, room: u64, spare: Option<Share>) -> Self {
        Self {
            records: Records::default(),
            steps: Steps::new(),
            room: Room::new(room),
            patience: Patience::default(),
            queue: ChunkQueue::default(),
            scratch,
            spare,
            written_bytes: 0,
            is_closing: false,
        }
    }

    // -- a tensor comes --

    /// Takes room for a tensor of the current step. Returns its place by the plan; nothing if no plan says it.
    pub fn reserve(&mut self, tensor: &Tensor<'_>) -> Option<Place> {
        self.take(tensor.bytes);
        // The next tensor of its size can use its memory again.
        if let Some(spare) = &mut self.spare {
            spare.fit(tensor.bytes.min(SPARE_BYTES_MAX) as usize);
        }
        self.steps.choose(tensor)
    }

    /// Adds a record for the next tensor of the current step. Returns its key.
    pub fn add(&mut self, tensor: &Tensor<'_>) -> u64 {
        let record = Record::new(self.steps.current(), self.steps.next_index(), tensor);
        let key = self.records.insert(record);
        self.steps.current_mut().save(key, tensor.name, tensor.bytes, tensor.operation);
        key
    }

    /// The memory of a tensor that was admitted, and what it would be encoded. In a step that was refused, or
    /// has failed, meanwhile nobody wants it.
    pub fn put(&mut self, key: u64, held: Arc<Held>, estimate: Option<u64>) -> Option<Dropped> {
        let Some(record) = self.records.get_mut(key) else { return Some(Dropped::Held(held)) };
        let (step, index) = (record.step, record.index);
        record.put(held);
        if let Some(bytes) = estimate {
            self.steps.at(step).estimated(index, bytes);
        }
        let is_over = self.steps.get(step).is_some_and(Step::has_failed);
        if is_over { self.discard(key) } else { None }
    }

    // -- operations --

    /// An operation will use a tensor, of a record perhaps that it shares with others. If there is no room for
    /// all that it uses, the step is refused; what held the memory of its tensors is for the caller to drop.
    pub fn use_together(
        &mut self,
        number: u64,
        operation: Operation,
        (name, bytes): (&str, u64),
    ) -> Vec<Dropped> {
        let limit = self.room.limit();
        let step = self.steps.at(number);
        let fits = step.operations.add(operation, name, bytes) <= limit;
        if fits || std::mem::replace(&mut step.refused, true) {
            return Vec::new();
        }
        self.discard_step(number)
    }

    /// Another operation has saved the tensor of a record; `None` if the record is of a step that has failed:
    /// then it is saved anew. A step that is refused goes on, to say what would do for all of it.
    pub fn share(&mut self, key: u64, operation: Operation) -> Option<Vec<Dropped>> {
        let record = self.records.get_mut(key)?;
        let step = self.steps.get(record.step)?;
        if step.fault.is_some() || (step.refused && record.step != self.steps.current()) {
            return None;
        }
        if !record.share(operation) {
            return Some(Vec::new());
        }
        let (step, name, bytes) = (record.step, record.name.clone(), record.bytes);
        Some(self.use_together(step, operation, (&name, bytes)))
    }

    // -- a tensor goes --

    /// Lets go of what a tensor has in memory or on disk: it will not be used.
    fn discard(&mut self, key: u64) -> Option<Dropped> {
        let record = self.records.get_mut(key)?;
        let step = record.step;
        let Discarded { memory, fetch, ranges } = record.discard()?;
        self.free(ranges);
        self.queue.cancel_writes(key);
        self.room.settle_tensor(key);
        match fetch {
            Some(fetch) => Some(self.cancel_fetch(key, step, fetch)),
            None => memory.map(Dropped::Held),
        }
    }

    /// Lets go of all tensors of a step.
    fn discard_step(&mut self, number: u64) -> Vec<Dropped> {
        let of_step = self.records.of_step(number);
        of_step.into_iter().filter_map(|key| self.discard(key)).collect()
    }

    /// Takes the chunks of a record of a step out of the line of reads.
    fn cancel_fetch(&mut self, key: u64, step: u64, fetch: Fetch) -> Dropped {
        let reads = self.queue.cancel_reads(key);
        self.steps.at(step).reads.leave(reads.len());
        Dropped::Fetch(reads, fetch)
    }

    /// Forgets a record, with its range on disk; what held its memory is for the caller to drop.
    pub fn forget(&mut self, key: u64) -> Vec<Dropped> {
        let Some(mut record) = self.records.remove(key) else { return Vec::new() };
        self.queue.cancel_writes(key);
        self.room.settle_tensor(key);
        self.free(record.take_ranges());
        let original = record.original.take().map(Dropped::Held);
        let phase = match record.phase {
            Phase::Fetched { memory, .. } => Some(Dropped::Held(memory)),
            Phase::Fetching(fetch) => Some(self.cancel_fetch(key, record.step, fetch)),
            _ => None,
        };
        self.steps.at(record.step).released(record.index);
        original.into_iter().chain(phase).collect()
    }

    pub(super) fn free(&mut self, ranges: Vec<ScratchRange>) {
        for range in ranges {
            self.scratch.free(range);
        }
    }

    /// A step failed because of this record: nothing of it is handed out any more, and its memory is the next
    /// one's.
    pub fn fail(&mut self, key: u64, error: &Error) -> Vec<Dropped> {
        let record = self.records.get(key);
        // Of one that was discarded, a read may still be under way, and find another's bytes.
        let Some(record) = record.filter(|record| !record.is_discarded()) else {
            return Vec::new();
        };
        let (step, fault) = (record.step, StepFault::new(error, record.index, &record.name));
        self.steps.at(step).fault.get_or_insert(fault);
        self.discard_step(step)
    }

    /// The step that a record is of.
    pub fn step_of(&mut self, key: u64) -> Result<&mut Step> {
        Ok(self.steps.at(self.records.step_of(key)?))
    }

    // -- room --

    /// So many bytes more are in memory.
    pub fn take(&mut self, bytes: u64) {
        self.room.take(bytes);
        self.steps.note_bytes(self.room.used());
    }

    /// So many bytes are free again. Who waits for room waits on: another thread is at work.
    pub fn give_back(&mut self, bytes: u64) {
        self.room.give_back(bytes);
        self.patience.renew();
    }

    /// For how long somebody has waited for room while nothing moved that frees memory by itself.
    pub fn still_for(&mut self) -> Duration {
        self.patience.look(self.queue.is_moving(), now())
    }

    /// Bytes that would do for all that is known of now: every tensor that is saved, and what callers hold of
    /// others.
    pub fn all_bytes(&self) -> u64 {
        let known = self.records.bytes_in_memory();
        self.records.saved_bytes() + self.room.used().saturating_sub(known)
    }

    /// Lets go of restored tensors that nobody holds, until so many bytes come free.
    pub fn drop_idle(&mut self, bytes: u64) -> Vec<Dropped> {
        let idle = self.records.iter().filter_map(|(key, record)| {
            let is_used = record.is_idle()?;
            let step = self.steps.get(record.step);
            let position = step.and_then(|step| step.order.position(record.index));
            Some(IdleTensor { key, bytes: record.bytes, is_used, position })
        });
        let keys = eviction::idle_to_drop(idle.collect(), bytes);
        keys.into_iter().filter_map(|key| self.evict(key)).collect()
    }

    fn evict(&mut self, key: u64) -> Option<Dropped> {
        let record = self.records.get_mut(key)?;
        let (memory, is_used) = record.evict()?;
        let (step, index) = (record.step, record.index);
        // One that was used already is fetched if it is asked for again.
        if !is_used {
            self.steps.at(step).order.fetch_again(index);
        }
        Some(Dropped::Held(memory))
    }

    /// Kept tensors that would free so many bytes by leaving, in the order in which they were saved.
    pub fn kept_to_offload(&self, bytes: u64) -> Vec<u64> {
        let kept = self.records.iter().filter(|(_, record)| record.is_kept_alone());
        eviction::kept_to_offload(kept.map(|(key, record)| (key, record.bytes)), bytes)
    }
}
