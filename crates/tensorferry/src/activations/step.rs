//! One step of training, measured: what was saved when, and used when, as a profile.
//!
//! Two clocks matter. The wall's tells how long a step took. The *compute* clock stands still while
//! compute waits for this path, so that it tells what the step would be without it; profiles hold
//! times of that clock.
//!
//! A step begins with a forward pass and ends when its last record is gone. Forward passes that
//! follow one another without a use in between belong to one step.

use std::time::Instant;

use super::report::{Mode, StepReport};
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

/// Seconds in which something is under way, however much of it.
#[derive(Debug, Default)]
pub(super) struct Busy {
    under_way: usize,
    since: Option<Instant>,
    seconds: f64,
}

impl Busy {
    pub fn begin(&mut self, count: usize) {
        if self.under_way == 0 && count > 0 {
            self.since = Some(now());
        }
        self.under_way += count;
    }

    pub fn end(&mut self, count: usize) {
        self.under_way = self.under_way.saturating_sub(count);
        if self.under_way == 0
            && let Some(since) = self.since.take()
        {
            self.seconds += seconds_since(since);
        }
    }

    fn seconds(&self) -> f64 {
        self.seconds + self.since.map_or(0.0, seconds_since)
    }
}

/// A tensor of a step.
#[derive(Debug)]
pub(super) struct Entry {
    pub key: u64,
    /// Bytes on disk, once they are known.
    stored: Option<u64>,
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
    pub writes: Busy,
    pub reads: Busy,
    pub peak_bytes: u64,
    pub read_bytes: u64,
    /// Raw bytes and seconds of all workers together.
    pub encoded: (u64, f64),
    pub decoded: (u64, f64),
    began: Instant,
    forward: Pass,
    backward: Option<Pass>,
    uses: Vec<(usize, f64)>,
    /// A forward pass ended with an exception.
    broken: bool,
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

    /// Compute seconds since it began.
    fn clock(&self) -> f64 {
        (seconds_since(self.began) - self.stall).max(0.0)
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
            writes: Busy::default(),
            reads: Busy::default(),
            peak_bytes: 0,
            read_bytes: 0,
            encoded: (0, 0.0),
            decoded: (0, 0.0),
            began: now(),
            forward: Pass::begin(),
            backward: None,
            uses: Vec::new(),
            broken: false,
        }
    }

    /// Whether something was used: what is saved from now on belongs to another step.
    pub fn is_used(&self) -> bool {
        self.backward.is_some()
    }

    /// A tensor was saved.
    pub fn save(&mut self, key: u64, name: &str, bytes: u64) {
        let saved_at = self.forward.clock();
        let tensor =
            offload::Tensor { name: name.to_owned(), bytes, encoded_bytes: bytes, saved_at };
        self.entries.push(Entry { key, stored: None, tensor, released_at: None });
        self.live += 1;
    }

    /// The bytes that an entry took on disk are known.
    pub fn stored(&mut self, index: usize, bytes: u64) {
        self.entries[index].stored = Some(bytes);
    }

    /// A forward pass is over.
    pub fn end_forward(&mut self, well: bool) {
        // Backward may run inside the context: then forward has ended with its begin.
        if !self.is_used() {
            self.forward.mark();
        }
        self.broken |= !well;
    }

    /// Compute waited for room, or for a tensor.
    pub fn stalled(&mut self, seconds: f64) {
        self.backward.as_mut().unwrap_or(&mut self.forward).stall += seconds;
    }

    /// The first use is about to come: `order` is how the others are expected to.
    pub fn begin_backward(&mut self, plan: Option<&Plan>) {
        if self.is_used() {
            return;
        }
        if !self.forward.is_marked() {
            self.forward.mark();
        }
        self.backward = Some(Pass::begin());
        self.order = match plan {
            Some(plan) if self.follows && !self.differs => plan.fetch_order.clone(),
            _ => (0..self.entries.len()).rev().collect(),
        };
    }

    /// An entry was used.
    pub fn used(&mut self, index: usize) {
        if let Some(backward) = &mut self.backward {
            self.uses.push((index, backward.clock()));
            backward.mark();
        }
    }

    /// An entry's record is gone.
    pub fn released(&mut self, index: usize) {
        self.live -= 1;
        if let Some(backward) = &mut self.backward {
            self.entries[index].released_at = Some(backward.clock());
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
            let stored = entry.stored.or_else(|| known(index)).unwrap_or(bytes);
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
        /// Fewer bytes than this say little about a disk.
        const TELLING_BYTES: u64 = 8 << 20;
        const UNKNOWN: f64 = 1e9;
        // One step is one sample of a disk: half of what is believed comes from the steps before.
        let rate = |bytes: u64, seconds: f64, before: Option<f64>| match before {
            Some(before) if bytes < TELLING_BYTES || seconds <= 0.0 => before,
            Some(before) => 2.0 / (1.0 / before + seconds / bytes as f64),
            None if bytes > 0 && seconds > 0.0 => bytes as f64 / seconds,
            None => UNKNOWN,
        };
        let disk = before.map(|before| &before.disk);
        Disk {
            write_bytes_per_second: rate(
                self.stored_bytes(),
                self.writes.seconds(),
                disk.map(|disk| disk.write_bytes_per_second),
            ),
            read_bytes_per_second: rate(
                self.read_bytes,
                self.reads.seconds(),
                disk.map(|disk| disk.read_bytes_per_second),
            ),
            // It is part of the rates: they were measured tensor by tensor.
            seconds_per_transfer: 0.0,
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
        let hidden = (busy - forward_stall - backward_stall).max(0.0);
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
            read_bytes: self.read_bytes,
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
    fn a_disk_is_believed_half_by_this_step_and_half_by_those_before() {
        let mut step = Step::begin(1, false);
        step.read_bytes = 16 << 20;
        step.reads.seconds = 1.0;
        let first = step.profile(None, 1);
        let rate = |profile: &Profile| profile.disk.read_bytes_per_second / f64::from(1 << 20);
        assert!((rate(&first) - 16.0).abs() < 1e-9);
        step.reads.seconds = 3.0;
        let second = step.profile(Some(&first), 1);
        assert!((rate(&second) - 8.0).abs() < 1e-9, "16 MiB in one second and in three");
        step.read_bytes = 1;
        assert!((rate(&step.profile(Some(&second), 1)) - 8.0).abs() < 1e-9, "too few to tell");
    }

    #[test]
    fn a_step_that_differs_from_its_plan_is_fetched_in_its_own_order() {
        let plan = Plan {
            version: offload::VERSION,
            planner: offload::Planner::Timeline,
            budget: 0,
            choices: Vec::new(),
            fetch_order: vec![1],
            predicted: Prediction::default(),
        };
        for (differs, order) in [(false, vec![1]), (true, vec![1, 0])] {
            let mut step = Step::begin(1, true);
            step.save(7, "one", 1);
            step.save(8, "two", 1);
            step.differs = differs;
            step.begin_backward(Some(&plan));
            assert_eq!(step.order, order);
        }
    }
}
