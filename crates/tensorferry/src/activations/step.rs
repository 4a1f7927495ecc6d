//! One step of training: what it saved, what it used, and what is known of it so far.
//!
//! A step begins with a forward pass and ends when its last record is gone. Forward passes that follow one
//! another without a use in between belong to one step.
//!
//! Its parts are state machines of their own: the [clocks](super::clock), the [plan that it
//! follows](super::following), the [order of use](super::use_order), the [operations](super::operation) that
//! save, and the [traffic](super::traffic). [`measured`](super::measured) makes a profile and a report of them.
//!
//! A step in which one operation saves more than there is room for is *refused*: forward goes on without
//! keeping anything, so that the error at its end can state what would do for all of it.

use std::sync::Arc;

use super::clock::StepClock;
use super::fault::StepFault;
use super::following::Following;
use super::operation::{Operation, Operations};
use super::plans::FollowedPlan;
use super::traffic::Traffic;
use super::use_order::UseOrder;
use crate::plan::activations::{self, Prediction, Profile};

/// A tensor of a step.
#[derive(Debug)]
pub(super) struct Entry {
    /// Of its record.
    pub key: u64,
    /// Bytes on disk, once they are known.
    pub stored: Option<u64>,
    /// The same if it was to be encoded: what it was stored as otherwise says nothing about that.
    pub encoded: Option<u64>,
    /// What it would be encoded, by a look at a part of it.
    pub estimated: Option<u64>,
    pub operation: Operation,
    pub tensor: activations::Tensor,
    /// Of backward's compute clock.
    pub released_at: Option<f64>,
}

/// A step under way.
#[derive(Debug)]
pub(super) struct Step {
    pub number: u64,
    /// In the order in which they were saved.
    pub entries: Vec<Entry>,
    /// Records that are still there.
    pub live: usize,
    pub fault: Option<StepFault>,
    /// One operation saves more than there is room for.
    pub refused: bool,
    /// A forward pass ended with an exception.
    broken: bool,
    pub following: Following,
    /// What the step should come to by the plan that it followed.
    pub expected: Option<Prediction>,
    pub operations: Operations,
    pub order: UseOrder,
    /// Entries as they were used, with the compute clock of backward.
    pub uses: Vec<(usize, f64)>,
    pub clock: StepClock,
    pub writes: Traffic,
    pub reads: Traffic,
    pub peak_bytes: u64,
    /// Raw bytes and seconds of all workers together.
    pub encoding: (u64, f64),
    pub decoding: (u64, f64),
}

impl Step {
    pub fn begin(number: u64) -> Self {
        Self {
            number,
            entries: Vec::new(),
            live: 0,
            fault: None,
            refused: false,
            broken: false,
            following: Following::default(),
            expected: None,
            operations: Operations::default(),
            order: UseOrder::default(),
            uses: Vec::new(),
            clock: StepClock::begin(),
            writes: Traffic::default(),
            reads: Traffic::default(),
            peak_bytes: 0,
            encoding: (0, 0.0),
            decoding: (0, 0.0),
        }
    }

    // -- forward --

    /// A tensor was saved.
    pub fn save(&mut self, key: u64, name: &str, bytes: u64, operation: Operation) {
        let (name, saved_at) = (name.to_owned(), self.clock.in_forward());
        let tensor = activations::Tensor { name, bytes, encoded_bytes: bytes, saved_at };
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

    /// A forward pass is over; `well` if nothing was raised in it.
    pub fn end_forward(&mut self, well: bool) {
        self.clock.end_forward();
        self.broken |= !well;
    }

    // -- the plan --

    /// Follows the plan of steps like this one.
    pub fn follow(&mut self, plan: Arc<FollowedPlan>, expected: Option<Prediction>) {
        (self.following, self.expected) = (Following::Plan(plan), expected);
    }

    /// What is followed as long as the step is as it foresaw.
    pub fn plan(&self) -> Option<&Arc<FollowedPlan>> {
        self.following.plan()
    }

    /// Whether it has begun as `profile` did.
    pub fn began_like(&self, profile: &Profile) -> bool {
        self.entries.len() <= profile.tensors.len()
            && self.entries.iter().zip(&profile.tensors).all(|(entry, tensor)| {
                entry.tensor.bytes == tensor.bytes && entry.tensor.name == tensor.name
            })
    }

    /// Whether it has saved what `profile` says, and nothing else.
    pub fn is_like(&self, profile: &Profile) -> bool {
        self.entries.len() == profile.tensors.len() && self.began_like(profile)
    }

    // -- backward --

    /// The first use is about to come.
    pub fn begin_backward(&mut self) {
        if self.is_used() {
            return;
        }
        self.clock.begin_backward();
        self.order = match self.plan() {
            Some(plan) => UseOrder::planned(plan),
            None => self.last_first(|_| true),
        };
    }

    /// An entry was used. If the plan foresees another one here, what it says about those that follow is
    /// worth nothing: they come as in a step without a plan.
    pub fn used(&mut self, index: usize) {
        let is_foreseen = self.order.foresees(self.uses.len(), index);
        let Some(at) = self.clock.mark_backward() else { return };
        self.uses.push((index, at));
        if self.plan().is_some() && !is_foreseen {
            self.following.leave();
            let mut is_left = vec![true; self.entries.len()];
            self.uses.iter().for_each(|(used, _)| is_left[*used] = false);
            self.order = self.last_first(|index| is_left[index]);
        }
    }

    fn last_first(&self, is_left: impl Fn(usize) -> bool) -> UseOrder {
        let saved_by: Vec<_> = self.entries.iter().map(|entry| entry.operation).collect();
        UseOrder::last_first(&saved_by, is_left)
    }

    /// An entry's record is gone.
    pub fn released(&mut self, index: usize) {
        self.live -= 1;
        if let Some(at) = self.clock.mark_backward() {
            self.entries[index].released_at = Some(at);
        }
    }

    // -- traffic and waits --

    /// Reads, or writes.
    pub fn traffic(&mut self, is_read: bool) -> &mut Traffic {
        if is_read { &mut self.reads } else { &mut self.writes }
    }

    /// Compute begins to wait for room, or for a tensor.
    pub fn wait_begins(&mut self) {
        if self.clock.wait_begins() {
            self.writes.awaited(true);
            self.reads.awaited(true);
        }
    }

    /// One of those who waited goes on.
    pub fn wait_ends(&mut self) {
        if self.clock.wait_ends() {
            self.writes.awaited(false);
            self.reads.awaited(false);
        }
    }

    // -- what it is --

    /// Whether something was used: what is saved from now on belongs to another step.
    pub fn is_used(&self) -> bool {
        self.clock.is_backward()
    }

    /// Whether it can't go on.
    pub fn has_failed(&self) -> bool {
        self.fault.is_some() || self.refused
    }

    /// Whether it is over, with every tensor used that backward wanted, and worth learning from.
    pub fn is_whole(&self) -> bool {
        self.live == 0 && self.is_used() && !self.has_failed() && !self.broken
    }
}

/// Steps for tests of this module and of those beside it.
#[cfg(test)]
#[cfg(not(loom))]
pub(super) mod fixtures {
    use super::*;

    pub fn operation(number: u64) -> Operation {
        Operation { thread: 0, number }
    }

    /// A step that has saved so many tensors of eight bytes.
    pub fn saved(tensors: u64) -> Step {
        let mut step = Step::begin(1);
        (0..tensors).for_each(|key| step.save(key, "tensor", 8, operation(key)));
        step
    }

    /// A plan for tensors that are used from the last on.
    pub fn plan(tensors: u64) -> Arc<FollowedPlan> {
        let mut step = saved(tensors);
        step.begin_backward();
        (0..tensors as usize).rev().for_each(|index| step.used(index));
        let profile = step.profile(None, None, 1);
        let plan = activations::plan(&profile, 1 << 30, activations::Planner::Timeline).unwrap();
        Arc::new(FollowedPlan::new(plan, profile))
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::fixtures::{operation, plan, saved};
    use super::*;

    #[test]
    fn a_step_without_a_plan_is_fetched_by_operations_the_last_first() {
        let mut step = Step::begin(1);
        for (key, number) in [(0, 7), (1, 7), (2, 8), (3, 9), (4, 9)] {
            step.save(key, "tensor", 8, operation(number));
        }
        step.begin_backward();
        assert_eq!(step.order.rest(), [3, 4, 2, 0, 1]);
    }

    #[test]
    fn a_use_that_was_not_foreseen_ends_the_plan_for_those_that_follow() {
        let mut step = saved(4);
        step.follow(plan(4), None);
        step.begin_backward();
        step.used(3);
        assert!(step.plan().is_some(), "as foreseen");
        step.used(1);
        assert!(matches!(step.following, Following::Left));
        assert_eq!(step.order.rest(), [2, 0], "what was not used, last first");
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
        let (stall, wall) = (step.clock.stall(), step.clock.age());
        assert!(stall > 0.0 && stall <= wall, "{stall}");
        let at: Vec<f64> = step.entries.iter().map(|entry| entry.tensor.saved_at).collect();
        assert!(at.is_sorted(), "{at:?}");
        step.begin_backward();
        assert!(step.profile(None, None, 1).check().is_ok());
    }
}
