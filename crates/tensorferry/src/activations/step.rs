//! One step of training, measured: what was saved when, and used when, as a profile.
//!
//! Two clocks matter. The wall's tells how long a step took. The *compute* clock stands still while
//! compute waits for this path, so that it tells what the step would be without it; profiles hold
//! times of that clock.
//!
//! A step begins with a forward pass and ends when its last record is gone. Forward passes that
//! follow one another without a use in between belong to one step.
//!
//! Several threads may compute. The compute clock stands still while any of them waits, so that it
//! never goes back.
//!
//! What one *operation* saves is used at once: so that much has to fit, and it is known before backward. A step
//! in which it does not is *refused*: forward goes on without keeping anything, so that the error at its end
//! can state what would do for all of it.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use super::knowledge::Guide;
use super::report::{Mode, StepReport};
use super::traffic::{Speed, Traffic};
use crate::error::{Error, Kind};
use crate::plan::activations::{self, Codec, Disk, Prediction, Profile, Use};
use crate::sync::{now, seconds_since};

/// What went wrong in a step, to be raised as often as somebody asks.
#[derive(Debug, Clone)]
pub(super) struct Fault {
    kind: Kind,
    message: String,
}

impl Fault {
    pub fn new(error: &Error, index: usize, tensor: &str) -> Self {
        Self { kind: error.kind(), message: format!("{error} (activation {index}: {tensor})") }
    }

    pub fn raise(&self) -> Error {
        Error::new(self.kind, self.message.clone())
    }
}

/// An operation of the caller's: a number of its thread's, which differs from that of the operation before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Operation {
    /// Which thread.
    pub thread: u64,
    /// Which of its operations.
    pub number: u64,
}

/// What one operation saves, and will use at once.
#[derive(Debug, Clone, Default)]
pub(super) struct Together {
    pub bytes: u64,
    pub tensors: usize,
    /// The largest of them.
    pub name: String,
    largest: u64,
}

/// A tensor of a step.
#[derive(Debug)]
pub(super) struct Entry {
    pub key: u64,
    /// Bytes on disk, once they are known.
    stored: Option<u64>,
    /// The same if it was to be encoded: what it was stored as otherwise says nothing about that.
    encoded: Option<u64>,
    /// What it would be encoded, by a look at a part of it.
    estimated: Option<u64>,
    operation: Operation,
    tensor: activations::Tensor,
    released_at: Option<f64>,
}

/// What is done with a step.
#[derive(Debug)]
enum Course {
    /// Nothing was saved yet.
    Open,
    /// As with those that it is like.
    Guided(Arc<Guide>),
    /// It is like none that is known.
    Unknown,
    /// It was like others, and then turned out to be like none.
    Left,
}

/// A step under way.
#[derive(Debug)]
pub(super) struct Step {
    pub number: u64,
    /// In the order in which they were saved.
    pub entries: Vec<Entry>,
    /// Records that are still there.
    pub live: usize,
    pub fault: Option<Fault>,
    /// One operation saves more than there is room for.
    pub refused: bool,
    course: Course,
    expected: Option<Prediction>,
    operations: BTreeMap<Operation, Together>,
    /// Entries in the order in which backward is expected to use them, and how far they have been
    /// fetched.
    pub order: Vec<usize>,
    pub cursor: usize,
    /// Entries in the order of all uses that the plan foresees.
    foreseen: Vec<usize>,
    pub writes: Traffic,
    pub reads: Traffic,
    pub peak_bytes: u64,
    /// Raw bytes and seconds of all workers together.
    pub encoded: (u64, f64),
    pub decoded: (u64, f64),
    began: Instant,
    forward: Pass,
    backward: Option<Pass>,
    uses: Vec<(usize, f64)>,
    /// A forward pass ended with an exception.
    broken: bool,
    /// Who waits, and since when anybody does.
    waiting: usize,
    waits_since: Option<Instant>,
}

/// A forward or a backward pass.
#[derive(Debug)]
struct Pass {
    began: Instant,
    /// Wall seconds until its last event.
    seconds: f64,
    stall: f64,
}

impl Pass {
    fn begin() -> Self {
        Self { began: now(), seconds: 0.0, stall: 0.0 }
    }

    /// Whether it has had an event.
    fn is_marked(&self) -> bool {
        self.seconds > 0.0
    }

    /// Compute seconds from when it began; it stands still from `waits_since` on.
    fn clock(&self, waits_since: Option<Instant>) -> f64 {
        // It stands still while compute waits: read once, or it would go back by the time between two looks.
        let until = waits_since.unwrap_or_else(now);
        (until.saturating_duration_since(self.began).as_secs_f64() - self.stall).max(0.0)
    }

    fn mark(&mut self) {
        self.seconds = seconds_since(self.began);
    }

    fn compute_seconds(&self) -> f64 {
        (self.seconds - self.stall).max(0.0)
    }
}

impl Step {
    pub fn begin(number: u64) -> Self {
        Self {
            number,
            entries: Vec::new(),
            live: 0,
            fault: None,
            refused: false,
            course: Course::Open,
            expected: None,
            operations: BTreeMap::new(),
            order: Vec::new(),
            cursor: 0,
            foreseen: Vec::new(),
            writes: Traffic::default(),
            reads: Traffic::default(),
            peak_bytes: 0,
            encoded: (0, 0.0),
            decoded: (0, 0.0),
            began: now(),
            forward: Pass::begin(),
            backward: None,
            uses: Vec::new(),
            broken: false,
            waiting: 0,
            waits_since: None,
        }
    }

    /// Whether something was used: what is saved from now on belongs to another step.
    pub fn is_used(&self) -> bool {
        self.backward.is_some()
    }

    /// A tensor was saved.
    pub fn save(&mut self, key: u64, name: &str, bytes: u64, operation: Operation) {
        let saved_at = self.forward.clock(self.waits_since);
        let tensor =
            activations::Tensor { name: name.to_owned(), bytes, encoded_bytes: bytes, saved_at };
        self.entries.push(Entry {
            key,
            stored: None,
            encoded: None,
            estimated: None,
            operation,
            tensor,
            released_at: None,
        });
        self.live += 1;
    }

    /// An operation will use a tensor of so many bytes, beside those that it has saved before; what it comes
    /// to.
    pub fn use_together(&mut self, operation: Operation, name: &str, bytes: u64) -> u64 {
        let together = self.operations.entry(operation).or_default();
        together.bytes += bytes;
        together.tensors += 1;
        if bytes >= together.largest {
            (together.largest, together.name) = (bytes, name.to_owned());
        }
        together.bytes
    }

    /// The operation that uses most at once.
    pub fn most_together(&self) -> Option<&Together> {
        self.operations.values().max_by_key(|together| together.bytes)
    }

    /// Follows what is known of steps like this one.
    pub fn follow(&mut self, guide: Arc<Guide>, expected: Option<Prediction>) {
        (self.course, self.expected) = (Course::Guided(guide), expected);
    }

    /// It is unlike all steps that are known.
    pub fn leave_plan(&mut self) {
        self.course = match self.course {
            Course::Open | Course::Unknown => Course::Unknown,
            Course::Guided(_) | Course::Left => Course::Left,
        };
    }

    /// What is followed as long as the step is as it foresaw.
    pub fn guide(&self) -> Option<&Arc<Guide>> {
        if let Course::Guided(guide) = &self.course { Some(guide) } else { None }
    }

    /// Whether it is known to be unlike all steps that are known.
    pub fn is_unlike(&self) -> bool {
        matches!(self.course, Course::Unknown | Course::Left)
    }

    /// Whether it has begun as `profile` did.
    pub fn began_like(&self, profile: &Profile) -> bool {
        self.entries.len() <= profile.tensors.len()
            && self.entries.iter().zip(&profile.tensors).all(|(entry, tensor)| {
                entry.tensor.bytes == tensor.bytes && entry.tensor.name == tensor.name
            })
    }

    /// Whether it has saved what `profile` tells, and nothing else.
    pub fn is_like(&self, profile: &Profile) -> bool {
        self.entries.len() == profile.tensors.len() && self.began_like(profile)
    }

    /// What an entry would be encoded, by a look at a part of it.
    pub fn estimated(&mut self, index: usize, bytes: u64) {
        if let Some(entry) = self.entries.get_mut(index) {
            entry.estimated = Some(bytes);
        }
    }

    /// The bytes that an entry took on disk are known, and whether it was to be encoded.
    pub fn stored(&mut self, index: usize, bytes: u64, encoded: bool) {
        let entry = &mut self.entries[index];
        entry.stored = Some(bytes);
        entry.encoded = encoded.then_some(bytes);
    }

    /// A forward pass is over.
    pub fn end_forward(&mut self, well: bool) {
        // Backward may run inside the context: then forward has ended with its begin.
        if !self.is_used() {
            self.forward.mark();
        }
        self.broken |= !well;
    }

    /// Reads, or writes.
    pub fn traffic(&mut self, is_read: bool) -> &mut Traffic {
        if is_read { &mut self.reads } else { &mut self.writes }
    }

    /// Compute begins to wait for room, or for a tensor.
    pub fn wait_begins(&mut self) {
        self.waiting += 1;
        if self.waiting == 1 {
            self.waits_since = Some(now());
            self.writes.awaited(true);
            self.reads.awaited(true);
        }
    }

    /// One of those who waited goes on.
    pub fn wait_ends(&mut self) {
        self.waiting = self.waiting.saturating_sub(1);
        if self.waiting == 0
            && let Some(since) = self.waits_since.take()
        {
            self.backward.as_mut().unwrap_or(&mut self.forward).stall += seconds_since(since);
            self.writes.awaited(false);
            self.reads.awaited(false);
        }
    }

    /// The first use is about to come.
    pub fn begin_backward(&mut self) {
        if self.is_used() {
            return;
        }
        if !self.forward.is_marked() {
            self.forward.mark();
        }
        self.backward = Some(Pass::begin());
        if let Course::Guided(guide) = &self.course {
            self.foreseen = guide.profile.uses.iter().map(|used| used.tensor).collect();
            self.order.clone_from(&guide.order);
        } else {
            self.order = self.last_first();
        }
    }

    /// As backward uses them where nothing is known: the last operation first, what it saved in that order.
    fn last_first(&self) -> Vec<usize> {
        let mut first = BTreeMap::new();
        for (index, entry) in self.entries.iter().enumerate() {
            first.entry(entry.operation).or_insert(index);
        }
        let mut order: Vec<usize> = (0..self.entries.len()).collect();
        order.sort_by_key(|index| (Reverse(first.get(&self.entries[*index].operation)), *index));
        order
    }

    /// An entry was used. If the plan foresees another one here, what it says about those that follow is
    /// worth nothing: they come as in a step without a plan.
    pub fn used(&mut self, index: usize) {
        let Some(backward) = &mut self.backward else { return };
        let is_foreseen = self.foreseen.get(self.uses.len()) == Some(&index);
        self.uses.push((index, backward.clock(self.waits_since)));
        backward.mark();
        if self.guide().is_some() && !is_foreseen {
            self.leave_plan();
            let mut left = vec![true; self.entries.len()];
            self.uses.iter().for_each(|(used, _)| left[*used] = false);
            self.order = self.last_first().into_iter().filter(|entry| left[*entry]).collect();
            self.cursor = 0;
        }
    }

    /// An entry's record is gone.
    pub fn released(&mut self, index: usize) {
        self.live -= 1;
        if let Some(backward) = &mut self.backward {
            self.entries[index].released_at = Some(backward.clock(self.waits_since));
            backward.mark();
        }
    }

    /// An entry is on its way: the next ones come after it. One that was not expected yet says
    /// where backward is.
    pub fn fetched(&mut self, index: usize) {
        if let Some(position) = self.order.iter().position(|other| *other == index) {
            self.cursor = position + 1;
        }
    }

    /// An entry is on disk only, now that backward has begun.
    pub fn fetch_again(&mut self, index: usize) {
        if let Some(position) = self.order.iter().position(|other| *other == index) {
            self.cursor = self.cursor.min(position);
        }
    }

    /// Whether it can't go on.
    pub fn has_failed(&self) -> bool {
        self.fault.is_some() || self.refused
    }

    /// Whether it is over, with every tensor used that backward wanted, and worth learning from.
    pub fn is_whole(&self) -> bool {
        self.live == 0 && self.is_used() && !self.has_failed() && !self.broken
    }

    /// What was measured. What this step does not tell, because it kept a tensor or moved little, is taken
    /// from a step like it, `before`, and from the `latest` of all.
    pub fn profile(
        &self,
        before: Option<&Profile>,
        latest: Option<&Profile>,
        threads: usize,
    ) -> Profile {
        let forward_seconds = self.forward.compute_seconds();
        let known = |index: usize| Some(before?.tensors.get(index)?.encoded_bytes);
        let encoded = |(index, entry): (usize, &Entry)| {
            let bytes = entry.tensor.bytes;
            let told = entry.encoded.or_else(|| known(index)).or(entry.estimated);
            let saved_at = entry.tensor.saved_at.min(forward_seconds);
            let encoded_bytes = told.unwrap_or(bytes).min(bytes);
            activations::Tensor { encoded_bytes, saved_at, ..entry.tensor.clone() }
        };
        let tensors = self.entries.iter().enumerate().map(encoded).collect();
        let end = self.backward.as_ref().map_or(0.0, Pass::compute_seconds);
        let until = |index: usize| self.entries[index].released_at.unwrap_or(end);
        let uses = self.uses.iter().map(|&(tensor, at)| {
            let at = at.min(end);
            Use { tensor, at, until: until(tensor).clamp(at, end) }
        });
        Profile {
            version: activations::VERSION,
            tensors,
            uses: uses.collect(),
            forward_seconds,
            backward_seconds: end,
            disk: self.disk(latest),
            codec: self.codec(latest, threads),
        }
    }

    fn disk(&self, before: Option<&Profile>) -> Disk {
        const UNKNOWN: Speed = Speed { beside: 1e9, speedup: 1.0 };
        let before = before.map(|before| &before.disk);
        let writes = before.map(|disk| Speed {
            beside: disk.write_bytes_per_second,
            speedup: disk.awaited_write_speedup,
        });
        let reads = before.map(|disk| Speed {
            beside: disk.read_bytes_per_second,
            speedup: disk.awaited_read_speedup,
        });
        let writes = self.writes.speed(writes).unwrap_or(UNKNOWN);
        let reads = self.reads.speed(reads).unwrap_or(UNKNOWN);
        Disk {
            write_bytes_per_second: writes.beside,
            read_bytes_per_second: reads.beside,
            // It is part of the rates: they were measured tensor by tensor.
            seconds_per_transfer: 0.0,
            awaited_write_speedup: writes.speedup,
            awaited_read_speedup: reads.speedup,
        }
    }

    fn codec(&self, before: Option<&Profile>, threads: usize) -> Codec {
        /// Not the bottleneck, as long as nothing was coded.
        const UNKNOWN: f64 = 1e12;
        let rate = |(bytes, seconds): (u64, f64), before: Option<f64>| {
            if bytes > 0 && seconds > 0.0 {
                bytes as f64 / seconds * threads as f64
            } else {
                before.unwrap_or(UNKNOWN)
            }
        };
        let codec = before.map(|before| &before.codec);
        Codec {
            encode_bytes_per_second: rate(
                self.encoded,
                codec.map(|codec| codec.encode_bytes_per_second),
            ),
            decode_bytes_per_second: rate(
                self.decoded,
                codec.map(|codec| codec.decode_bytes_per_second),
            ),
        }
    }

    fn stored_bytes(&self) -> u64 {
        self.entries.iter().filter_map(|entry| entry.stored).sum()
    }

    pub fn report(&self, staging: u64) -> StepReport {
        let bytes = |entries: &mut dyn Iterator<Item = &Entry>| {
            entries.map(|entry| entry.tensor.bytes).sum::<u64>()
        };
        let (forward_stall, backward_stall) =
            (self.forward.stall, self.backward.as_ref().map_or(0.0, |pass| pass.stall));
        let (write_seconds, read_seconds) = (self.writes.seconds(), self.reads.seconds());
        let busy = write_seconds + read_seconds;
        let hidden = self.writes.hidden_seconds() + self.reads.hidden_seconds();
        StepReport {
            step: self.number,
            mode: match self.course {
                Course::Guided(_) => Mode::Planned,
                Course::Left => Mode::Differed,
                Course::Open | Course::Unknown => Mode::Profiled,
            },
            tensors: self.entries.len(),
            saved_bytes: bytes(&mut self.entries.iter()),
            offloaded_bytes: bytes(&mut self.entries.iter().filter(|entry| entry.stored.is_some())),
            stored_bytes: self.stored_bytes(),
            read_bytes: self.reads.bytes(),
            forward_seconds: self.forward.seconds,
            backward_seconds: self.backward.as_ref().map_or(0.0, |pass| pass.seconds),
            forward_stall,
            backward_stall,
            write_seconds,
            read_seconds,
            overlap: if busy > 0.0 { hidden / busy } else { 1.0 },
            peak_bytes: self.peak_bytes + staging,
            predicted: self.expected,
        }
    }

    /// Seconds since it began.
    pub fn age(&self) -> f64 {
        seconds_since(self.began)
    }

    /// Seconds that compute has waited.
    pub fn stall(&self) -> f64 {
        self.forward.stall + self.backward.as_ref().map_or(0.0, |pass| pass.stall)
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn forward_ends_where_backward_begins_inside_the_context() {
        let mut step = Step::begin(1);
        std::thread::sleep(std::time::Duration::from_millis(1));
        step.begin_backward();
        let forward = step.forward.seconds;
        assert!(forward > 0.0);
        std::thread::sleep(std::time::Duration::from_millis(1));
        step.end_forward(true);
        assert_eq!(step.forward.seconds.to_bits(), forward.to_bits());
    }

    #[test]
    fn a_step_without_a_plan_is_fetched_by_operations_the_last_first() {
        let mut step = Step::begin(1);
        for (key, number) in [(0, 7), (1, 7), (2, 8), (3, 9), (4, 9)] {
            step.save(key, "tensor", 8, Operation { thread: 0, number });
        }
        step.begin_backward();
        assert_eq!(step.order, [3, 4, 2, 0, 1]);
    }

    #[test]
    fn what_one_operation_saves_comes_together() {
        let mut step = Step::begin(1);
        let [one, other] = [1, 2].map(|number| Operation { thread: 0, number });
        assert_eq!(step.use_together(one, "a", 3), 3);
        assert_eq!(step.use_together(other, "b", 4), 4);
        assert_eq!(step.use_together(one, "c", 2), 5);
        let most = step.most_together().unwrap();
        assert_eq!((most.bytes, most.tensors, &*most.name), (5, 2, "a"));
    }

    #[test]
    fn a_use_that_was_not_foreseen_ends_the_plan_for_those_that_follow() {
        let mut step = saved(4);
        step.follow(guide(4), None);
        step.begin_backward();
        step.used(3);
        assert!(step.guide().is_some(), "as foreseen");
        step.used(1);
        assert!(matches!(step.course, Course::Left));
        assert_eq!((&*step.order, step.cursor), (&[2, 0][..], 0), "what was not used, last first");
    }

    #[test]
    fn what_was_stored_as_it_is_says_nothing_about_what_it_would_be_encoded() {
        let mut before = guide(1).profile.clone();
        before.tensors[0].encoded_bytes = 3;
        for (encoded, expected) in [(true, 7), (false, 3)] {
            let mut step = saved(1);
            step.stored(0, 7, encoded);
            assert_eq!(step.profile(Some(&before), None, 1).tensors[0].encoded_bytes, expected);
        }
    }

    #[test]
    fn reads_and_writes_have_speeds_of_their_own() {
        let mut step = saved(1);
        step.begin_backward();
        // So far apart that no pause of the scheduler makes up for it.
        for (is_read, bytes) in [(true, 1 << 40), (false, 1 << 20)] {
            step.traffic(is_read).queue(1);
            let mark = step.traffic(is_read).take();
            std::thread::sleep(std::time::Duration::from_millis(1));
            step.traffic(is_read).end(mark, bytes);
        }
        let disk = step.profile(None, None, 1).disk;
        assert!(disk.read_bytes_per_second > 10.0 * disk.write_bytes_per_second, "{disk:?}");
    }

    #[test]
    fn two_who_wait_at_once_stall_compute_once_and_its_clock_never_goes_back() {
        let pause = || std::thread::sleep(std::time::Duration::from_millis(2));
        let mut step = Step::begin(1);
        pause();
        step.wait_begins();
        step.wait_begins();
        pause();
        step.save(1, "while both wait", 1, operation(1));
        step.wait_ends();
        pause();
        step.save(2, "while one waits", 1, operation(2));
        step.wait_ends();
        step.save(3, "after", 1, operation(3));
        let wall = seconds_since(step.forward.began);
        assert!(step.stall() > 0.0 && step.stall() <= wall, "{}", step.stall());
        let at: Vec<f64> = step.entries.iter().map(|entry| entry.tensor.saved_at).collect();
        assert!(at.is_sorted(), "{at:?}");
        step.begin_backward();
        assert!(step.profile(None, None, 1).check().is_ok());
    }

    fn operation(number: u64) -> Operation {
        Operation { thread: 0, number }
    }

    /// A step that has saved so many tensors of eight bytes.
    fn saved(tensors: u64) -> Step {
        let mut step = Step::begin(1);
        (0..tensors).for_each(|key| step.save(key, "tensor", 8, operation(key)));
        step
    }

    /// A plan for tensors that are used from the last on.
    fn guide(tensors: u64) -> Arc<Guide> {
        let mut step = saved(tensors);
        step.begin_backward();
        (0..tensors as usize).rev().for_each(|index| step.used(index));
        let profile = step.profile(None, None, 1);
        let plan = activations::plan(&profile, 1 << 30, activations::Planner::Timeline).unwrap();
        Arc::new(Guide::new(plan, profile))
    }
}
