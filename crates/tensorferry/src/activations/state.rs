//! All that is known of activations, under one lock.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::form::{Compress, Element, Stored};
use super::knowledge::{Knowledge, Question};
use super::memory::{Memory, Permit, Restored};
use super::report::Report;
use super::scratch::{Drive, Place as ScratchPlace, Scratch};
use super::step::{Fault, Step};
use super::store::{Shared, Tensor};
use crate::error::{Error, Kind, Result};
use crate::io::Priority;
use crate::memory::{Block, Part, Parts, Share};
use crate::plan::offload::{Place, Plan, Profile};
use crate::sync::now;

/// What must not be dropped under the lock.
pub(super) enum Dropped {
    #[expect(dead_code, reason = "it is only dropped")]
    Original(Arc<Block>),
    #[expect(dead_code, reason = "it is only dropped")]
    Restored(Arc<Restored>),
    #[expect(dead_code, reason = "it is only dropped")]
    Coming(Vec<Incoming>, Coming),
    #[expect(dead_code, reason = "it is only dropped")]
    Permit(Arc<Permit>),
}

/// Where the bytes of a tensor are; see the [module](super).
pub(super) enum Phase {
    /// Admitted, its memory not given yet; or forgotten while it was.
    Expected,
    Here,
    Leaving {
        left: usize,
    },
    Stored,
    Coming(Coming),
    Back {
        memory: Arc<Restored>,
        taken: bool,
    },
}

/// A tensor on its way back.
pub(super) struct Coming {
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
    pub original: Option<Arc<Block>>,
    /// What is on disk, chunk by chunk.
    pub chunks: Vec<Option<(ScratchPlace, Stored)>>,
    /// Counts turns of mind: a worker that comes back from an older one is too late.
    pub turn: u32,
    pub compress: Compress,
}

impl Record {
    pub fn new(step: u64, index: usize, name: String, element: Element, bytes: u64) -> Self {
        Self {
            step,
            index,
            name,
            element,
            bytes,
            phase: Phase::Expected,
            original: None,
            chunks: Vec::new(),
            turn: 0,
            compress: Compress::None,
        }
    }
}

/// A chunk to write.
#[derive(Debug, Clone, Copy)]
pub(super) struct Outgoing {
    pub key: u64,
    pub turn: u32,
    pub chunk: usize,
}

/// A chunk to read, and where to.
pub(super) struct Incoming {
    pub key: u64,
    pub chunk: usize,
    pub part: Part,
    /// Who reads has a share in it: if all others are gone, the memory goes with the last read.
    pub permit: Arc<Permit>,
}

/// Where a chunk to read lies, and how urgent it is.
pub(super) struct Origin {
    pub drive: Arc<Drive>,
    pub offset: u64,
    pub priority: Priority,
}

pub(super) struct State {
    /// Bytes of activations in memory.
    pub used: u64,
    /// Bytes that callers wait for: what comes free is theirs, and not for fetching ahead.
    pub wanted: u64,
    /// Fetching ahead has stopped for want of room.
    pub is_full: bool,
    pub records: BTreeMap<u64, Record>,
    pub steps: BTreeMap<u64, Step>,
    pub writes: VecDeque<Outgoing>,
    pub reads: VecDeque<Incoming>,
    /// Since when nothing moves, and nothing is given back, although somebody waits for room.
    pub still_since: Option<Instant>,
    /// Chunks in the hands of workers.
    pub in_hand: usize,
    /// Records whose originals nobody here holds any more; to let go of them takes their owner a while.
    pub departing: BTreeSet<u64>,
    pub scratch: Scratch,
    pub closing: bool,
    pub written_bytes: u64,
    keys: u64,
    /// The record that backward stands still for.
    awaited: Option<u64>,
    /// Forward passes that are open: threads may have several.
    open: usize,
    current: u64,
    /// The step that uses tensors now.
    backward: u64,
    /// Keeps blocks that come free for the next tensors.
    share: Option<Share>,
    knowledge: Knowledge,
}

impl State {
    pub fn new(scratch: Scratch, share: Option<Share>) -> Self {
        Self {
            used: 0,
            wanted: 0,
            is_full: false,
            records: BTreeMap::new(),
            steps: BTreeMap::from([(0, Step::begin(0, false))]),
            writes: VecDeque::new(),
            reads: VecDeque::new(),
            still_since: None,
            in_hand: 0,
            departing: BTreeSet::new(),
            scratch,
            closing: false,
            written_bytes: 0,
            keys: 0,
            awaited: None,
            open: 0,
            current: 0,
            backward: 0,
            share,
            knowledge: Knowledge::default(),
        }
    }

    // -- steps --

    /// A forward pass begins: a new step, unless the last one was not used yet.
    pub fn begin(&mut self, staging: u64) -> Option<Question> {
        self.open += 1;
        if self.open > 1 || !self.is_current_over() {
            return None;
        }
        self.next_step(staging)
    }

    /// Whether the next tensor is of another step than the last one, although no forward pass has begun
    /// since: one context may be around many steps.
    pub fn is_behind(&self) -> bool {
        let step = self.steps.get(&self.current);
        step.is_none_or(|step| step.live == 0 && (step.is_used() || step.fault.is_some()))
    }

    pub fn next_step(&mut self, staging: u64) -> Option<Question> {
        let question = self.learn(staging);
        self.knowledge.turn();
        self.current += 1;
        let step = Step::begin(self.current, self.knowledge.plan.is_some());
        self.steps.insert(self.current, step);
        let current = self.current;
        self.steps.retain(|number, step| *number == current || step.live > 0);
        question
    }

    fn is_current_over(&self) -> bool {
        let step = self.steps.get(&self.current);
        step.is_none_or(|step| step.is_used() || step.live == 0 || step.fault.is_some())
    }

    pub fn end(&mut self, well: bool) {
        self.open = self.open.saturating_sub(1);
        let current = self.current;
        self.step_mut(current).end_forward(well);
    }

    pub fn current(&self) -> u64 {
        self.current
    }

    pub fn next_index(&self) -> usize {
        self.steps.get(&self.current).map_or(0, |step| step.entries.len())
    }

    pub fn next_key(&mut self) -> u64 {
        self.keys += 1;
        self.keys
    }

    /// A step that has records, or is the current one.
    pub fn step_mut(&mut self, number: u64) -> &mut Step {
        self.steps.entry(number).or_insert_with(|| Step::begin(number, false))
    }

    pub fn step_of(&self, key: u64) -> Result<u64> {
        self.records.get(&key).map(|record| record.step).ok_or_else(forgotten)
    }

    pub fn check_step(&self, number: u64) -> Result<()> {
        let fault = self.steps.get(&number).and_then(|step| step.fault.as_ref());
        fault.map_or(Ok(()), |fault| Err(fault.raise()))
    }

    /// Whether the step of a record went well so far.
    pub fn check(&self, key: u64) -> Result<()> {
        self.check_step(self.step_of(key)?)
    }

    /// What becomes of the next tensor.
    pub fn choose(&mut self, tensor: &Tensor<'_>) -> Place {
        let index = self.next_index();
        let offload = Place::Offload { encoded: true };
        let expected = self.knowledge.plan.as_ref().zip(self.knowledge.profile.as_ref());
        let Some((plan, profile)) = expected else { return offload };
        let planned = profile.tensors.get(index).zip(plan.choices.get(index));
        let place = planned
            .filter(|(expected, _)| expected.bytes == tensor.bytes && expected.name == tensor.name)
            .map(|(_, choice)| choice.place);
        let current = self.current;
        let step = self.step_mut(current);
        match place {
            Some(place) if step.follows && !step.differs => place,
            _ => {
                step.differs = true;
                offload
            }
        }
    }

    /// Learns from steps that are over; where there is no plan that fits, one is asked for.
    pub fn learn(&mut self, staging: u64) -> Option<Question> {
        let over: Vec<u64> = self
            .steps
            .iter()
            .filter(|(_, step)| step.is_whole())
            .map(|(number, _)| *number)
            .collect();
        let mut question = None;
        for number in over {
            if let Some(step) = self.steps.remove(&number) {
                question = self.knowledge.learn(&step, staging).or(question);
            }
        }
        question
    }

    /// A plan was made. The step under way follows it if nothing was saved yet, or else the next.
    pub fn answer(&mut self, question: &Question, plan: Result<Plan>) {
        let step = self.steps.get_mut(&self.current);
        let untouched = step.as_ref().is_none_or(|step| step.entries.is_empty());
        self.knowledge.answer(question, plan, untouched);
        if let Some(step) = step.filter(|_| untouched) {
            step.follows = self.knowledge.plan.is_some();
        }
    }

    pub fn plan(&self) -> Option<&Plan> {
        self.knowledge.plan.as_ref()
    }

    pub fn explain(&self) -> Option<String> {
        self.knowledge.explain()
    }

    pub fn profile(&self) -> Option<&Profile> {
        self.knowledge.profile.as_ref()
    }

    // -- records --

    pub fn name_of(&self, key: u64) -> &str {
        self.records.get(&key).map_or("?", |record| &record.name)
    }

    pub fn bytes_of(&self, key: u64) -> u64 {
        self.records.get(&key).map_or(0, |record| record.bytes)
    }

    pub fn is_stored(&self, key: u64) -> bool {
        self.records.get(&key).is_some_and(|record| matches!(record.phase, Phase::Stored))
    }

    /// Begins to write a tensor that is here.
    pub fn leave(&mut self, key: u64, chunk_bytes: usize, compress: Compress) {
        let Some(record) = self.records.get_mut(&key) else { return };
        if !matches!(record.phase, Phase::Here) {
            return;
        }
        let count = (record.bytes as usize).div_ceil(chunk_bytes).max(1);
        record.turn += 1;
        record.phase = Phase::Leaving { left: count };
        record.chunks = vec![None; count];
        record.compress = compress;
        let turn = record.turn;
        self.writes.extend((0..count).map(|chunk| Outgoing { key, turn, chunk }));
    }

    /// The first use in a step: what backward will want is known from now on.
    pub fn begin_backward(&mut self, key: u64) -> Result<()> {
        let number = self.step_of(key)?;
        self.backward = number;
        let planned = self.knowledge.plan.as_ref().zip(self.knowledge.profile.as_ref());
        if let Some(step) = self.steps.get_mut(&number) {
            step.begin_backward(planned);
        }
        Ok(())
    }

    /// The memory of a tensor that is here or back.
    pub fn hand_out(&mut self, key: u64) -> Option<Memory> {
        let record = self.records.get_mut(&key)?;
        let memory = match &mut record.phase {
            Phase::Here | Phase::Leaving { .. } => {
                Memory::Original(Arc::clone(record.original.as_ref()?))
            }
            Phase::Back { memory, taken } => {
                *taken = true;
                Memory::Restored(Arc::clone(memory))
            }
            _ => return None,
        };
        let (step, index) = (record.step, record.index);
        if matches!(record.phase, Phase::Leaving { .. }) {
            self.stay(key);
        }
        self.step_mut(step).used(index);
        Some(memory)
    }

    /// Calls a tensor back that was about to leave.
    fn stay(&mut self, key: u64) {
        let Some(record) = self.records.get_mut(&key) else { return };
        record.turn += 1;
        record.phase = Phase::Here;
        let places: Vec<_> = record.chunks.drain(..).flatten().map(|(place, _)| place).collect();
        self.unqueue(key);
        for place in places {
            self.scratch.free(place);
        }
    }

    /// Takes the chunks of a record out of the line of writes.
    fn unqueue(&mut self, key: u64) {
        self.writes.retain(|write| write.key != key);
    }

    /// Puts the chunks of a tensor that somebody waits for before all others.
    pub fn hurry(&mut self, key: u64) {
        self.awaited = Some(key);
        let is_first = self.reads.front().is_none_or(|read| read.key == key);
        if !is_first {
            let (first, rest): (Vec<_>, Vec<_>) =
                self.reads.drain(..).partition(|read| read.key == key);
            self.reads = first.into_iter().chain(rest).collect();
        }
    }

    /// Forgets a record, with its place on disk; what held its memory is for the caller to drop.
    pub fn forget(&mut self, key: u64) -> Vec<Dropped> {
        let Some(mut record) = self.records.remove(&key) else { return Vec::new() };
        self.unqueue(key);
        for (place, _) in record.chunks.drain(..).flatten() {
            self.scratch.free(place);
        }
        let mut dropped: Vec<Dropped> = self.departed(key, record.original.take());
        match record.phase {
            Phase::Back { memory, .. } => dropped.push(Dropped::Restored(memory)),
            Phase::Coming(coming) => {
                let (gone, rest): (Vec<_>, Vec<_>) =
                    self.reads.drain(..).partition(|read| read.key == key);
                self.reads = rest.into();
                self.step_mut(record.step).reads.leave(gone.len());
                dropped.push(Dropped::Coming(gone, coming));
            }
            _ => {}
        }
        self.step_mut(record.step).released(record.index);
        dropped
    }

    // -- the way out --

    /// The memory and description of a chunk that is still to be written.
    pub fn outgoing(&self, write: &Outgoing) -> Option<(Arc<Block>, Element, Compress)> {
        let record = self.records.get(&write.key)?;
        let wanted = record.turn == write.turn && matches!(record.phase, Phase::Leaving { .. });
        let block = record.original.as_ref().filter(|_| wanted)?;
        Some((Arc::clone(block), record.element, record.compress))
    }

    /// The next chunk to write. What backward is about to use need not leave any more, unless its
    /// room is wanted for something that is used before it.
    pub fn next_write(&mut self) -> Option<Outgoing> {
        let write = self.writes.front()?;
        let step = self.records.get(&write.key).map(|record| record.step);
        let step = step.and_then(|step| self.steps.get(&step));
        let is_late = step.is_some_and(Step::is_used);
        if is_late && self.wanted == 0 && !self.is_full {
            return None;
        }
        self.writes.pop_front()
    }

    /// A chunk is on disk. What was kept for it comes back when it was the last one.
    pub fn written(
        &mut self,
        write: &Outgoing,
        place: ScratchPlace,
        stored: Stored,
    ) -> Option<Dropped> {
        self.written_bytes += stored.len as u64;
        let record = self.records.get_mut(&write.key).filter(|record| record.turn == write.turn);
        let Some(record) = record else {
            self.scratch.free(place);
            return None;
        };
        record.chunks[write.chunk] = Some((place, stored));
        let Phase::Leaving { left } = &mut record.phase else { return None };
        *left -= 1;
        if *left > 0 {
            return None;
        }
        record.phase = Phase::Stored;
        let bytes = record.chunks.iter().flatten().map(|(_, stored)| stored.len as u64).sum();
        let (step, index, original) = (record.step, record.index, record.original.take());
        let encoded = record.compress != Compress::None;
        let step = self.step_mut(step);
        step.stored(index, bytes, encoded);
        step.fetch_again(index);
        self.departed(write.key, original).pop()
    }

    /// The original of a record is to be dropped. If somebody has taken it, that does not free it.
    fn departed(&mut self, key: u64, original: Option<Arc<Block>>) -> Vec<Dropped> {
        if original.as_ref().is_some_and(|block| Arc::strong_count(block) == 1) {
            self.departing.insert(key);
        }
        original.map(Dropped::Original).into_iter().collect()
    }

    /// A step failed because of this record.
    pub fn fail(&mut self, key: u64, error: &Error) {
        let Some(record) = self.records.get(&key) else { return };
        let (number, fault) = (record.step, Fault::new(error, record.index, &record.name));
        self.step_mut(number).fault.get_or_insert(fault);
    }

    // -- the way back --

    /// The next tensor that backward will want and that is on disk.
    pub fn next_to_fetch(&mut self) -> Option<u64> {
        let step = self.steps.get_mut(&self.backward)?;
        while let Some(index) = step.order.get(step.cursor) {
            // A step may be shorter than its plan.
            let record = step.entries.get(*index).and_then(|entry| {
                let record = self.records.get(&entry.key)?;
                matches!(record.phase, Phase::Stored).then_some(entry.key)
            });
            if record.is_some() {
                return record;
            }
            step.cursor += 1;
        }
        None
    }

    /// Queues the reads of a stored tensor, into `block`, and counts its bytes.
    pub fn come(&mut self, key: u64, block: Block, shared: &Arc<Shared>) {
        let Some(record) = self.records.get_mut(&key) else { return };
        let (left, bytes) = (record.chunks.len(), record.bytes);
        let (step, index) = (record.step, record.index);
        let permit = Arc::new(Permit::of_restored(shared, bytes));
        let mut parts = Parts::new(block);
        for chunk in 0..left {
            let (part, permit) = (parts.cut(shared.chunk_bytes), Arc::clone(&permit));
            self.reads.push_back(Incoming { key, chunk, part, permit });
        }
        record.phase = Phase::Coming(Coming { parts, permit, left });
        self.count(bytes);
        let step = self.step_mut(step);
        step.reads.queue(left);
        step.fetched(index);
    }

    /// Where a chunk lies, and how.
    pub fn incoming(&self, read: &Incoming) -> Option<(Origin, Stored)> {
        let record = self.records.get(&read.key)?;
        let (place, stored) = (*record.chunks.get(read.chunk)?)?;
        let (drive, offset) = self.scratch.at(place);
        let awaited = self.awaited == Some(read.key);
        let priority = if awaited { Priority::Waiting } else { Priority::Prefetch };
        Some((Origin { drive, offset, priority }, stored))
    }

    /// A chunk is in memory, and its part is gone.
    pub fn arrived(&mut self, key: u64) -> Option<Dropped> {
        let record = self.records.get_mut(&key)?;
        let Phase::Coming(coming) = &mut record.phase else { return None };
        coming.left -= 1;
        if coming.left > 0 {
            return None;
        }
        let last = std::mem::replace(&mut record.phase, Phase::Stored);
        let Phase::Coming(Coming { parts, permit, .. }) = last else { return None };
        let Ok(block) = parts.join() else { return Some(Dropped::Permit(permit)) };
        let memory = Arc::new(Restored::new(block, permit));
        record.phase = Phase::Back { memory, taken: false };
        None
    }

    // -- room --

    /// So many bytes more are in memory.
    pub fn count(&mut self, bytes: u64) {
        self.used += bytes;
        for step in self.steps.values_mut() {
            step.peak_bytes = step.peak_bytes.max(self.used);
        }
    }

    /// A tensor of so many bytes was saved: the next one of its size can use its memory again.
    pub fn keep_spare(&mut self, bytes: u64) {
        if let Some(share) = &mut self.share {
            share.fit(bytes as usize);
        }
    }

    /// So many bytes are free again, those of a record's original perhaps. Who waits for room waits on:
    /// another thread is at work.
    pub fn discount(&mut self, bytes: u64, original: Option<u64>) {
        self.used -= bytes;
        self.still_since = None;
        if let Some(key) = original {
            self.departing.remove(&key);
        }
    }

    /// Whether anything is on its way that frees memory by itself.
    pub fn moves(&self) -> bool {
        !self.writes.is_empty() || self.in_hand > 0 || !self.departing.is_empty()
    }

    /// For how long somebody has been waiting while nothing moved.
    pub fn still_for(&mut self) -> Duration {
        if self.moves() {
            self.still_since = None;
            return Duration::ZERO;
        }
        let now = now();
        now - *self.still_since.get_or_insert(now)
    }

    /// Lets go of restored tensors: first of those that were used and are not in use, then of those
    /// that were fetched too early, the latest first.
    pub fn drop_restored(&mut self, bytes: u64) -> Vec<Dropped> {
        let rank = |record: &Record| match &record.phase {
            Phase::Back { memory, taken } if Arc::strong_count(memory) == 1 => {
                Some((*taken, record.bytes))
            }
            _ => None,
        };
        let mut idle: Vec<_> = self
            .records
            .iter()
            .filter_map(|(key, record)| rank(record).map(|(taken, bytes)| (!taken, *key, bytes)))
            .collect();
        // Backward uses the latest first, so that those of the lowest keys are used last.
        idle.sort_unstable();
        let mut dropped = Vec::new();
        let mut freed = 0;
        for (_, key, size) in idle {
            if freed >= bytes {
                break;
            }
            freed += size;
            dropped.extend(self.let_go_of(key));
        }
        dropped
    }

    fn let_go_of(&mut self, key: u64) -> Option<Dropped> {
        let record = self.records.get_mut(&key)?;
        let Phase::Back { memory, taken } = std::mem::replace(&mut record.phase, Phase::Stored)
        else {
            return None;
        };
        let (step, index) = (record.step, record.index);
        // One that was used already is fetched if it is asked for again.
        if !taken {
            self.step_mut(step).fetch_again(index);
        }
        Some(Dropped::Restored(memory))
    }

    /// Kept tensors of so many bytes, those that were saved first.
    pub fn kept_oldest_first(&self, bytes: u64) -> Vec<u64> {
        let mut missing = bytes;
        let here = self.records.iter().filter(|(_, record)| {
            // One whose memory somebody has taken would not free it by leaving.
            matches!(record.phase, Phase::Here)
                && record.original.as_ref().is_some_and(|block| Arc::strong_count(block) == 1)
        });
        here.map_while(|(key, record)| {
            let take = missing > 0;
            missing = missing.saturating_sub(record.bytes);
            take.then_some(*key)
        })
        .collect()
    }

    /// `drive_bytes` are those of the file systems that the scratch files lie on.
    pub fn report(&self, shared: &Shared, seconds: f64, drive_bytes: u64) -> Report {
        let a_day = self.written_bytes as f64 / seconds.max(1e-9) * 86_400.0;
        Report {
            steps: self.knowledge.steps,
            budget: shared.config.budget.0,
            staging_bytes: shared.config.budget.0 - shared.room,
            used_bytes: self.used,
            scratch_bytes: self.scratch.used(),
            written_bytes: self.written_bytes,
            seconds,
            drive_bytes,
            drive_writes_per_day: if drive_bytes > 0 { a_day / drive_bytes as f64 } else { 0.0 },
            unplanned: self.knowledge.unplanned.clone(),
            last: self.knowledge.last.clone(),
        }
    }
}

/// A fault of ours: a handle keeps its record.
fn forgotten() -> Error {
    Error::new(Kind::Internal, "an activation is asked for that was forgotten")
}
