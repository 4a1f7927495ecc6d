//! All that is known of activations, under one lock.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::form::{Compress, Element, Stored};
use super::knowledge::{Knowledge, Question};
use super::memory::{Held, Memory, Permit};
use super::report::Report;
use super::scratch::{Drive, Place as ScratchPlace, Scratch};
use super::step::{Fault, Operation, Step, Together};
use super::store::{LOOK_EVERY, Shared, Tensor};
use crate::error::{Error, Kind, Result};
use crate::io::Priority;
use crate::memory::{Block, Part, Parts, Share};
use crate::plan::activations::{Place, Plan, Profile};
use crate::sync::now;

/// What must not be dropped under the lock.
pub(super) enum Dropped {
    #[expect(dead_code, reason = "it is only dropped")]
    Held(Arc<Held>),
    #[expect(dead_code, reason = "it is only dropped")]
    Coming(Vec<Incoming>, Coming),
    #[expect(dead_code, reason = "it is only dropped")]
    Permit(Arc<Permit>),
}

/// Where the bytes of a tensor are; see the [module](super).
pub(super) enum Phase {
    /// Admitted, its memory not given yet; or forgotten while it was.
    Expected,
    /// Let go of: its step was refused, or has failed.
    Lost,
    Here,
    Leaving {
        left: usize,
    },
    Stored,
    Coming(Coming),
    Back {
        memory: Arc<Held>,
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
    pub original: Option<Arc<Held>>,
    /// What is on disk, chunk by chunk.
    pub chunks: Vec<Option<(ScratchPlace, Stored)>>,
    /// Counts turns of mind: a worker that comes back from an older one is too late.
    pub turn: u32,
    pub compress: Compress,
    /// The last one that saved it.
    operation: Operation,
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
    pub place: ScratchPlace,
    pub drive: Arc<Drive>,
    pub offset: u64,
    pub priority: Priority,
}

pub(super) struct State {
    /// Bytes of activations in memory.
    pub used: u64,
    /// Bytes that callers wait for: what comes free is theirs, and not for fetching ahead.
    pub wanted: u64,
    /// Tensors that backward waits for and that get no room yet. They stay here while their callers look after
    /// something else for a moment: what is fetched ahead then would only be let go of again.
    hungry: BTreeMap<u64, u64>,
    /// Fetching ahead has stopped for want of room.
    pub is_full: bool,
    pub records: BTreeMap<u64, Record>,
    pub steps: BTreeMap<u64, Step>,
    pub writes: VecDeque<Outgoing>,
    pub reads: VecDeque<Incoming>,
    /// For how long somebody has waited for room while nothing moved, and when that was looked at.
    still: Option<(Duration, Instant)>,
    /// Chunks in the hands of workers.
    pub in_hand: usize,
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
            hungry: BTreeMap::new(),
            is_full: false,
            records: BTreeMap::new(),
            steps: BTreeMap::from([(0, Step::begin(0))]),
            writes: VecDeque::new(),
            reads: VecDeque::new(),
            still: None,
            in_hand: 0,
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
        // The graph of a step that failed in backward may be there until the next one is whole.
        step.is_none_or(|step| match (step.is_used(), step.has_failed()) {
            (true, true) => true,
            (true, false) | (false, true) => step.live == 0,
            (false, false) => false,
        })
    }

    pub fn next_step(&mut self, staging: u64) -> Option<Question> {
        let question = self.learn(staging);
        self.current += 1;
        self.steps.insert(self.current, Step::begin(self.current));
        let current = self.current;
        self.steps.retain(|number, step| *number == current || step.live > 0);
        question
    }

    fn is_current_over(&self) -> bool {
        let step = self.steps.get(&self.current);
        step.is_none_or(|step| step.is_used() || step.live == 0 || step.has_failed())
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
        self.steps.entry(number).or_insert_with(|| Step::begin(number))
    }

    pub fn step_of(&self, key: u64) -> Result<u64> {
        self.records.get(&key).map(|record| record.step).ok_or_else(forgotten)
    }

    pub fn check_step(&self, number: u64) -> Result<()> {
        let fault = self.steps.get(&number).and_then(|step| step.fault.as_ref());
        fault.map_or(Ok(()), |fault| Err(fault.raise()))
    }

    /// The operation that uses most at once, of a step that was refused for it.
    pub fn refused(&self, number: u64) -> Option<&Together> {
        let step = self.steps.get(&number).filter(|step| step.refused)?;
        step.most_together()
    }

    /// An operation will use a tensor, of a record perhaps that it shares with others. If there is no `room` for
    /// all that it uses, the step is refused; what held the memory of its tensors is for the caller to drop.
    pub fn use_together(
        &mut self,
        number: u64,
        operation: Operation,
        (name, bytes): (&str, u64),
        room: u64,
    ) -> Vec<Dropped> {
        let step = self.step_mut(number);
        let fits = step.use_together(operation, name, bytes) <= room;
        if fits || std::mem::replace(&mut step.refused, true) {
            return Vec::new();
        }
        self.let_go_of_step(number)
    }

    /// Another operation has saved the tensor of a record; `None` if the record is of a step that has failed,
    /// and has to be saved anew. A step that is refused goes on, to say what would do for all of it.
    pub fn share(&mut self, key: u64, operation: Operation, room: u64) -> Option<Vec<Dropped>> {
        let record = self.records.get_mut(&key)?;
        let step = self.steps.get(&record.step)?;
        if step.fault.is_some() || (step.refused && step.number != self.current) {
            return None;
        }
        if std::mem::replace(&mut record.operation, operation) == operation {
            return Some(Vec::new());
        }
        let (step, name, bytes) = (record.step, record.name.clone(), record.bytes);
        Some(self.use_together(step, operation, (&name, bytes), room))
    }

    /// Lets go of all that a step has in memory or is about to write.
    fn let_go_of_step(&mut self, number: u64) -> Vec<Dropped> {
        let mut dropped = Vec::new();
        let of_step = |(key, record): (&u64, &Record)| (record.step == number).then_some(*key);
        for key in self.records.iter().filter_map(of_step).collect::<Vec<_>>() {
            dropped.extend(self.lose(key));
        }
        dropped
    }

    /// What becomes of the next tensor; nothing if no plan says it. Then what fits stays.
    pub fn choose(&mut self, tensor: &Tensor<'_>) -> Option<Place> {
        let index = self.next_index();
        let (current, knowledge) = (self.current, &self.knowledge);
        let step = self.steps.entry(current).or_insert_with(|| Step::begin(current));
        let planned = |step: &Step| {
            let guide = step.guide()?;
            let expected = guide.profile.tensors.get(index)?;
            let fits = expected.bytes == tensor.bytes && expected.name == tensor.name;
            fits.then(|| guide.plan.choices[index].place)
        };
        planned(step).or_else(|| {
            knowledge.guide(step, Some((tensor.name, tensor.bytes)));
            planned(step)
        })
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

    /// A plan was made.
    pub fn answer(&mut self, question: Question, plan: Result<Plan>) {
        self.knowledge.answer(question, plan);
    }

    pub fn plan(&self) -> Option<&Plan> {
        self.knowledge.plan()
    }

    pub fn explain(&self) -> Option<String> {
        self.knowledge.explain()
    }

    pub fn profile(&self) -> Option<&Profile> {
        self.knowledge.profile()
    }

    /// Whether a plan is followed.
    pub fn is_guided(&self, number: u64) -> bool {
        self.steps.get(&number).is_some_and(|step| step.guide().is_some())
    }

    pub fn is_refused(&self, number: u64) -> bool {
        self.steps.get(&number).is_some_and(|step| step.refused)
    }

    // -- records --

    /// The memory of a tensor that was admitted, and what it would be encoded. In a step that was refused, or
    /// has failed, meanwhile nobody wants it.
    pub fn put(&mut self, key: u64, held: Arc<Held>, estimate: Option<u64>) -> Option<Dropped> {
        let Some(record) = self.records.get_mut(&key) else { return Some(Dropped::Held(held)) };
        let (step, index) = (record.step, record.index);
        record.phase = Phase::Here;
        record.original = Some(held);
        if let Some(bytes) = estimate {
            self.step_mut(step).estimated(index, bytes);
        }
        let is_over = self.steps.get(&step).is_some_and(Step::has_failed);
        if is_over { self.lose(key) } else { None }
    }

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
        let Some(step) = self.steps.get_mut(&number).filter(|step| !step.is_used()) else {
            return Ok(());
        };
        if step.guide().is_some_and(|guide| !step.is_like(&guide.profile)) {
            // It began like another one.
            self.knowledge.guide(step, None);
        }
        step.begin_backward();
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

    /// Lets go of what a tensor has in memory or on disk: it will not be used.
    fn lose(&mut self, key: u64) -> Option<Dropped> {
        let record = self.records.get_mut(&key)?;
        if matches!(record.phase, Phase::Expected | Phase::Lost) {
            return None;
        }
        let phase = std::mem::replace(&mut record.phase, Phase::Lost);
        record.turn += 1;
        let (step, original) = (record.step, record.original.take());
        for (place, _) in std::mem::take(&mut record.chunks).into_iter().flatten() {
            self.scratch.free(place);
        }
        self.unqueue(key);
        self.satisfied(key);
        match phase {
            Phase::Back { memory, .. } => Some(Dropped::Held(memory)),
            Phase::Coming(coming) => Some(self.stop_reading(key, step, coming)),
            _ => original.map(Dropped::Held),
        }
    }

    /// Takes the chunks of a record of a step out of the line of reads.
    fn stop_reading(&mut self, key: u64, step: u64, coming: Coming) -> Dropped {
        let (gone, rest): (Vec<_>, Vec<_>) = self.reads.drain(..).partition(|read| read.key == key);
        self.reads = rest.into();
        self.step_mut(step).reads.leave(gone.len());
        Dropped::Coming(gone, coming)
    }

    /// Forgets a record, with its place on disk; what held its memory is for the caller to drop.
    pub fn forget(&mut self, key: u64) -> Vec<Dropped> {
        let Some(mut record) = self.records.remove(&key) else { return Vec::new() };
        self.unqueue(key);
        self.satisfied(key);
        for (place, _) in record.chunks.drain(..).flatten() {
            self.scratch.free(place);
        }
        let mut dropped: Vec<Dropped> =
            record.original.take().map(Dropped::Held).into_iter().collect();
        match record.phase {
            Phase::Back { memory, .. } => dropped.push(Dropped::Held(memory)),
            Phase::Coming(coming) => dropped.push(self.stop_reading(key, record.step, coming)),
            _ => {}
        }
        self.step_mut(record.step).released(record.index);
        dropped
    }

    // -- the way out --

    /// The memory and description of a chunk that is still to be written.
    pub fn outgoing(&self, write: &Outgoing) -> Option<(Arc<Held>, Element, Compress)> {
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
        if is_late && self.spoken_for() == 0 && !self.is_full {
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
        original.map(Dropped::Held)
    }

    /// A step failed because of this record: nothing of it is handed out any more, and its memory is the next
    /// one's.
    pub fn fail(&mut self, key: u64, error: &Error) -> Vec<Dropped> {
        let record = self.records.get(&key);
        // Of one that was let go of, a read may still be under way, and find another's bytes.
        let Some(record) = record.filter(|record| !matches!(record.phase, Phase::Lost)) else {
            return Vec::new();
        };
        let (number, fault) = (record.step, Fault::new(error, record.index, &record.name));
        self.step_mut(number).fault.get_or_insert(fault);
        self.let_go_of_step(number)
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
        let permit = Arc::new(Permit::new(shared, bytes));
        let mut parts = Parts::new(block);
        for chunk in 0..left {
            let (part, permit) = (parts.cut(shared.chunk_bytes), Arc::clone(&permit));
            self.reads.push_back(Incoming { key, chunk, part, permit });
        }
        record.phase = Phase::Coming(Coming { parts, permit, left });
        self.satisfied(key);
        self.count(bytes);
        let step = self.step_mut(step);
        step.reads.queue(left);
        step.fetched(index);
    }

    /// Where a chunk lies, and how; it is on its way from now on.
    pub fn incoming(&mut self, read: &Incoming) -> Option<(Origin, Stored)> {
        let record = self.records.get(&read.key)?;
        let (place, stored) = (*record.chunks.get(read.chunk)?)?;
        let (drive, offset) = self.scratch.at(place);
        let awaited = self.awaited == Some(read.key);
        let priority = if awaited { Priority::Waiting } else { Priority::Prefetch };
        self.scratch.begin(place, stored.len as u64);
        Some((Origin { place, drive, offset, priority }, stored))
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
        let memory = Arc::new(Held::new(block, permit));
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

    /// So many bytes are free again. Who waits for room waits on: another thread is at work.
    pub fn discount(&mut self, bytes: u64) {
        self.used -= bytes;
        self.still = None;
    }

    /// Backward waits for a tensor that gets no room yet.
    pub fn hunger(&mut self, key: u64) {
        let bytes = self.bytes_of(key);
        self.hungry.insert(key, bytes);
    }

    /// It waits no more.
    pub fn satisfied(&mut self, key: u64) {
        self.hungry.remove(&key);
    }

    /// Bytes that come free and are not for fetching ahead.
    fn spoken_for(&self) -> u64 {
        self.wanted + self.hungry.values().sum::<u64>()
    }

    /// Whether so many bytes may be fetched ahead.
    pub fn has_spare(&self, bytes: u64, room: u64) -> bool {
        self.used + self.spoken_for() + bytes <= room
    }

    /// Bytes that are on their way out.
    pub fn leaving(&self) -> u64 {
        let leaving = |record: &&Record| matches!(record.phase, Phase::Leaving { .. });
        self.records.values().filter(leaving).map(|record| record.bytes).sum()
    }

    /// For how long somebody has been waiting while nothing moved that frees memory by itself. A look that
    /// comes late, because the whole process was stopped, counts for no more than one that comes in time.
    pub fn still_for(&mut self) -> Duration {
        if !self.writes.is_empty() || !self.reads.is_empty() || self.in_hand > 0 {
            self.still = None;
            return Duration::ZERO;
        }
        let now = now();
        let (still, looked) = self.still.unwrap_or((Duration::ZERO, now));
        let still = still + now.saturating_duration_since(looked).min(LOOK_EVERY);
        self.still = Some((still, now));
        still
    }

    /// The last look was so long ago.
    #[cfg(test)]
    pub fn look_late(&mut self, ago: Duration) {
        self.still = now().checked_sub(ago).map(|looked| (Duration::ZERO, looked));
    }

    /// Bytes that would do for all that is known of now: every tensor that is saved, and what callers hold of
    /// others.
    pub fn all_bytes(&self) -> u64 {
        let held = |record: &Record| match &record.phase {
            Phase::Here | Phase::Leaving { .. } | Phase::Coming(_) | Phase::Back { .. } => {
                record.bytes
            }
            Phase::Expected | Phase::Lost | Phase::Stored => 0,
        };
        let saved: u64 = self.records.values().map(|record| record.bytes).sum();
        let known: u64 = self.records.values().map(held).sum();
        saved + self.used.saturating_sub(known)
    }

    /// Lets go of restored tensors: first of those that were used and are not in use, then of those
    /// that were fetched too early, beginning with what is used last.
    pub fn drop_restored(&mut self, bytes: u64) -> Vec<Dropped> {
        let rank = |record: &Record| match &record.phase {
            Phase::Back { memory, taken } if Arc::strong_count(memory) == 1 => {
                let step = self.steps.get(&record.step);
                let rank = step.and_then(|step| step.order.iter().position(|i| *i == record.index));
                Some((!*taken, Reverse(rank.unwrap_or(usize::MAX)), record.bytes))
            }
            _ => None,
        };
        let idle = self.records.iter();
        let mut idle: Vec<_> =
            idle.filter_map(|(key, record)| Some((rank(record)?, *key))).collect();
        idle.sort_unstable();
        let idle = idle.into_iter().map(|((_, _, bytes), key)| (key, bytes));
        let mut dropped = Vec::new();
        let mut freed = 0;
        for (key, size) in idle {
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
        Some(Dropped::Held(memory))
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
            unplanned: self.knowledge.unplanned(),
            last: self.knowledge.last.clone(),
        }
    }
}

/// A fault of ours: a handle keeps its record.
fn forgotten() -> Error {
    Error::new(Kind::Internal, "an activation is asked for that was forgotten")
}
