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

use std::time::Instant;

use super::report::{Mode, StepReport};
use super::traffic::{Speed, Traffic};
use crate::error::{Error, Kind};
use crate::plan::offload::{self, Codec, Disk, Plan, Prediction, Profile, Use};
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

/// A tensor of a step.
#[derive(Debug)]
pub(super) struct Entry {
    pub key: u64,
    /// Bytes on disk, once they are known.
    stored: Option<u64>,
    /// The same if it was to be encoded: what it was stored as otherwise says nothing about that.
    encoded: Option<u64>,
    tensor: offload::Tensor,
    released_at: Option<f64>,
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
    /// The plan is followed as long as the step is as it foresaw.
    pub follows: bool,
    pub differs: bool,
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
    pub fn begin(number: u64, follows: bool) -> Self {
        Self {
            number,
            entries: Vec::new(),
            live: 0,
            fault: None,
            follows,
            differs: false,
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
    pub fn save(&mut self, key: u64, name: &str, bytes: u64) {
        let saved_at = self.forward.clock(self.waits_since);
        let tensor =
            offload::Tensor { name: name.to_owned(), bytes, encoded_bytes: bytes, saved_at };
        self.entries.push(Entry { key, stored: None, encoded: None, tensor, released_at: None });
        self.live += 1;
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

    /// The first use is about to come. `planned` is what the others are expected to be: a plan, and the
    /// profile that is like the one it was made from.
    pub fn begin_backward(&mut self, planned: Option<(&Plan, &Profile)>) {
        if self.is_used() {
            return;
        }
        if !self.forward.is_marked() {
            self.forward.mark();
        }
        self.backward = Some(Pass::begin());
        let planned = planned.filter(|_| self.follows && !self.differs);
        self.differs |= planned.is_some_and(|(plan, _)| plan.choices.len() != self.entries.len());
        match planned.filter(|_| !self.differs) {
            Some((plan, profile)) => {
                self.order.clone_from(&plan.fetch_order);
                self.foreseen = profile.uses.iter().map(|used| used.tensor).collect();
            }
            None => self.order = (0..self.entries.len()).rev().collect(),
        }
    }

    /// An entry was used. If the plan foresees another one here, what it says about those that follow is
    /// worth nothing: they come as in a step without a plan.
    pub fn used(&mut self, index: usize) {
        let Some(backward) = &mut self.backward else { return };
        let is_foreseen = self.foreseen.get(self.uses.len()) == Some(&index);
        self.uses.push((index, backward.clock(self.waits_since)));
        backward.mark();
        if self.follows && !self.differs && !is_foreseen {
            self.differs = true;
            let mut left = vec![true; self.entries.len()];
            self.uses.iter().for_each(|(used, _)| left[*used] = false);
            self.order = (0..left.len()).rev().filter(|entry| left[*entry]).collect();
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

    /// Whether it is over, with every tensor used that backward wanted, and worth learning from.
    pub fn is_whole(&self) -> bool {
        self.live == 0 && self.is_used() && self.fault.is_none() && !self.broken
    }

    /// What was measured. What this step does not tell, because it kept a tensor or moved little,
    /// is taken from `before`.
    pub fn profile(&self, before: Option<&Profile>, threads: usize) -> Profile {
        let forward_seconds = self.forward.compute_seconds();
        let known = |index: usize| {
            let tensor = before?.tensors.get(index)?;
            (tensor.bytes == self.entries[index].tensor.bytes).then_some(tensor.encoded_bytes)
        };
        let encoded = |(index, entry): (usize, &Entry)| {
            let bytes = entry.tensor.bytes;
            let stored = entry.encoded.or_else(|| known(index)).unwrap_or(bytes);
            let saved_at = entry.tensor.saved_at.min(forward_seconds);
            offload::Tensor { encoded_bytes: stored.min(bytes), saved_at, ..entry.tensor.clone() }
        };
        let tensors = self.entries.iter().enumerate().map(encoded).collect();
        let end = self.backward.as_ref().map_or(0.0, Pass::compute_seconds);
        let until = |index: usize| self.entries[index].released_at.unwrap_or(end);
        let uses = self.uses.iter().map(|&(tensor, at)| {
            let at = at.min(end);
            Use { tensor, at, until: until(tensor).clamp(at, end) }
        });
        Profile {
            version: offload::VERSION,
            tensors,
            uses: uses.collect(),
            forward_seconds,
            backward_seconds: end,
            disk: self.disk(before),
            codec: self.codec(before, threads),
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

    pub fn report(&self, staging: u64, expected: Option<Prediction>) -> StepReport {
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
            mode: match (self.follows, self.differs) {
                (_, true) => Mode::Differed,
                (true, false) => Mode::Planned,
                (false, false) => Mode::Profiled,
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
            predicted: expected.filter(|_| self.follows),
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
        let mut step = Step::begin(1, false);
        std::thread::sleep(std::time::Duration::from_millis(1));
        step.begin_backward(None);
        let forward = step.forward.seconds;
        assert!(forward > 0.0);
        std::thread::sleep(std::time::Duration::from_millis(1));
        step.end_forward(true);
        assert_eq!(step.forward.seconds.to_bits(), forward.to_bits());
    }

    #[test]
    fn a_step_that_differs_from_its_plan_is_fetched_in_its_own_order() {
        let (plan, profile) = planned(2);
        for (differs, order) in [(false, vec![1]), (true, vec![1, 0])] {
            let mut step = saved(2);
            step.differs = differs;
            step.begin_backward(Some((&plan, &profile)));
            assert_eq!(step.order, order);
        }
    }

    #[test]
    fn a_step_with_fewer_tensors_differs_once_backward_begins() {
        let (plan, profile) = planned(3);
        let mut step = saved(2);
        step.begin_backward(Some((&plan, &profile)));
        assert!(step.differs);
        assert_eq!(step.order, [1, 0]);
    }

    #[test]
    fn a_use_that_was_not_foreseen_ends_the_plan_for_those_that_follow() {
        let (plan, profile) = planned(4);
        let mut step = saved(4);
        step.begin_backward(Some((&plan, &profile)));
        step.used(3);
        assert!(!step.differs, "as foreseen");
        step.used(1);
        assert!(step.differs);
        assert_eq!((&*step.order, step.cursor), (&[2, 0][..], 0), "what was not used, last first");
    }

    #[test]
    fn what_was_stored_as_it_is_says_nothing_about_what_it_would_be_encoded() {
        let (_, mut before) = planned(1);
        before.tensors[0].encoded_bytes = 3;
        for (encoded, expected) in [(true, 7), (false, 3)] {
            let mut step = saved(1);
            step.stored(0, 7, encoded);
            assert_eq!(step.profile(Some(&before), 1).tensors[0].encoded_bytes, expected);
        }
    }

    #[test]
    fn reads_and_writes_have_speeds_of_their_own() {
        let mut step = saved(1);
        step.begin_backward(None);
        // So far apart that no pause of the scheduler makes up for it.
        for (is_read, bytes) in [(true, 1 << 40), (false, 1 << 20)] {
            step.traffic(is_read).queue(1);
            let mark = step.traffic(is_read).take();
            std::thread::sleep(std::time::Duration::from_millis(1));
            step.traffic(is_read).end(mark, bytes);
        }
        let disk = step.profile(None, 1).disk;
        assert!(disk.read_bytes_per_second > 10.0 * disk.write_bytes_per_second, "{disk:?}");
    }

    #[test]
    fn two_who_wait_at_once_stall_compute_once_and_its_clock_never_goes_back() {
        let pause = || std::thread::sleep(std::time::Duration::from_millis(2));
        let mut step = Step::begin(1, false);
        pause();
        step.wait_begins();
        step.wait_begins();
        pause();
        step.save(1, "while both wait", 1);
        step.wait_ends();
        pause();
        step.save(2, "while one waits", 1);
        step.wait_ends();
        step.save(3, "after", 1);
        let wall = seconds_since(step.forward.began);
        assert!(step.stall() > 0.0 && step.stall() <= wall, "{}", step.stall());
        let at: Vec<f64> = step.entries.iter().map(|entry| entry.tensor.saved_at).collect();
        assert!(at.is_sorted(), "{at:?}");
        step.begin_backward(None);
        assert!(step.profile(None, 1).check().is_ok());
    }

    /// A step that follows a plan and has saved so many tensors of eight bytes.
    fn saved(tensors: u64) -> Step {
        let mut step = Step::begin(1, true);
        (0..tensors).for_each(|key| step.save(key, "tensor", 8));
        step
    }

    /// A plan that fetches the second tensor, and a profile that uses all from the last on.
    fn planned(tensors: u64) -> (Plan, Profile) {
        let mut step = saved(tensors);
        step.begin_backward(None);
        (0..tensors as usize).rev().for_each(|index| step.used(index));
        let profile = step.profile(None, 1);
        let choice = offload::Choice { place: offload::Place::Keep, why: String::new() };
        let plan = Plan {
            version: offload::VERSION,
            planner: offload::Planner::Timeline,
            budget: 0,
            choices: vec![choice; tensors as usize],
            fetch_order: vec![1],
            predicted: Prediction::default(),
        };
        (plan, profile)
    }
}
