//! A submission that was not handed over yet, and what becomes of its bad samples.

use std::collections::BTreeMap;
use std::mem;
use std::sync::Arc;

use super::config::{OnError, SUBSTITUTES_MAX};
use crate::data::batch::{Batch, Making};
use crate::data::chance::Chance;
use crate::data::source::Source;
use crate::data::spent::Spent;
use crate::error::{Error, Kind, Result};

/// A sample that was asked for and could not be had. Bad ones among those that were tried in its place
/// are not told: what is asked for is counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Which one.
    pub index: u32,
    /// The epoch in which it was met.
    pub epoch: u32,
    /// Where it lies.
    pub name: String,
    /// What is wrong with it.
    pub error: String,
    /// The sample that took its place at last; none when it was left out.
    pub substitute: Option<u32>,
}

/// What became of a submission.
#[derive(Debug)]
pub struct Handed {
    /// The samples, side by side; of samples that stay apart, a batch for each. Never none.
    pub batches: Vec<Batch>,
    /// The bad ones among those that were asked for, in the order of the submission.
    pub faults: Vec<Fault>,
    /// What threads spent on it.
    pub spent: Spent,
}

/// A submission that was not handed over yet.
pub(super) struct Open {
    /// One for all samples or, of samples that stay apart, one for each.
    makings: Vec<Arc<Making>>,
    pub slots: Vec<Chosen>,
    /// Samples that are neither done nor left out.
    pub left: usize,
    /// What threads spent on it.
    pub spent: Spent,
    together: Together,
    /// Whether all samples were left out, and others are sought in their places.
    standing_in: bool,
    /// Whether one failure is enough to fail it.
    fails: bool,
    /// Why slots are left out.
    failures: BTreeMap<usize, Error>,
    /// What was wrong with what was asked for, by slot.
    faults: BTreeMap<usize, Fault>,
}

/// The sample of a slot.
pub(super) struct Chosen {
    /// The one that was asked for.
    pub asked: u32,
    /// The one that is taken.
    pub index: u32,
    substitutes: u32,
    keep: bool,
}

/// How the samples of a submission lie in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Together {
    /// Side by side, in one batch.
    Yes,
    /// Each in a batch of its own: their layouts may differ.
    No,
}

impl Open {
    pub fn new(indices: &[u32], together: Together) -> Self {
        let chosen =
            |index: &u32| Chosen { asked: *index, index: *index, substitutes: 0, keep: true };
        Self {
            makings: makings(indices.len(), together),
            slots: indices.iter().map(chosen).collect(),
            left: indices.len(),
            spent: Spent::default(),
            together,
            standing_in: false,
            fails: false,
            failures: BTreeMap::new(),
            faults: BTreeMap::new(),
        }
    }

    pub fn is_done(&self) -> bool {
        self.left == 0
    }

    /// Whether no sample of it needs memory that it has not.
    pub fn has_its_room(&self) -> bool {
        self.is_done() || (self.together == Together::Yes && self.left < self.slots.len())
    }

    pub fn done(&mut self) {
        self.left -= 1;
    }

    /// Where the sample of a slot is made, and its place there.
    pub fn place(&self, at: usize) -> (&Arc<Making>, usize) {
        match self.together {
            Together::Yes => (&self.makings[0], at),
            Together::No => (&self.makings[at], 0),
        }
    }

    /// Decides about a sample that failed. Gives the slots whose new samples are to be loaded.
    pub fn failed(&mut self, at: usize, error: Error, rule: &Rule<'_>) -> Vec<usize> {
        let (making, place) = self.place(at);
        making.forget(place);
        let unlike = making.unlike();
        if unlike.is_some() || rule.on_error == OnError::Raise || fails_everywhere(&error) {
            self.fails = true;
            let unlike = unlike.map(|(error, other)| {
                // Side by side, a place is a slot.
                let other =
                    self.slots[if self.together == Together::Yes { other } else { at }].index;
                error.with("sample", other).with("name", rule.source.name(other as usize))
            });
            self.leave_out(at, unlike.unwrap_or(error));
            return Vec::new();
        }
        self.note(at, &error, rule);
        if rule.on_error == OnError::Substitute || self.standing_in {
            return self.substitute(at, error, rule).into_iter().collect();
        }
        self.leave_out(at, error);
        let is_empty = self.is_done() && self.slots.iter().all(|slot| !slot.keep);
        if is_empty && !self.fails { self.stand_in(rule) } else { Vec::new() }
    }

    /// Every sample was left out. Without this batch the consumer would get fewer than others whose
    /// samples are good, and they would wait for one another: so each sample is substituted.
    fn stand_in(&mut self, rule: &Rule<'_>) -> Vec<usize> {
        self.standing_in = true;
        self.left = self.slots.len();
        // What only bad samples looked like is forgotten.
        self.makings = makings(self.slots.len(), self.together);
        let failures = mem::take(&mut self.failures);
        failures.into_iter().filter_map(|(at, error)| self.substitute(at, error, rule)).collect()
    }

    /// Puts another sample into a slot, as long as there is one that was not tried.
    fn substitute(&mut self, at: usize, error: Error, rule: &Rule<'_>) -> Option<usize> {
        let slot = &mut self.slots[at];
        let other = rule.substitute(slot);
        if let Some(fault) = self.faults.get_mut(&at) {
            fault.substitute = other;
        }
        let Some(other) = other else {
            let tried = format!("{} substitutes of a bad sample were bad too", slot.substitutes);
            self.fails |= !self.standing_in;
            self.leave_out(at, error.with("gave up", tried));
            return None;
        };
        slot.index = other;
        slot.keep = true;
        slot.substitutes += 1;
        Some(at)
    }

    fn note(&mut self, at: usize, error: &Error, rule: &Rule<'_>) {
        let asked = self.slots[at].asked;
        self.faults.entry(at).or_insert_with(|| Fault {
            index: asked,
            epoch: rule.epoch,
            name: rule.source.name(asked as usize),
            error: error.to_string(),
            substitute: None,
        });
    }

    fn leave_out(&mut self, at: usize, failure: Error) {
        self.failures.insert(at, failure);
        self.slots[at].keep = false;
        self.left -= 1;
    }

    /// What it came to, once it is done: whoever was first, in the order of the samples.
    pub fn finish(mut self, source: &dyn Source) -> Result<Handed> {
        let keep: Vec<_> = self.slots.iter().map(|slot| slot.keep).collect();
        let failure = self.failures.pop_first().filter(|_| self.fails || !keep.contains(&true));
        if let Some((_, error)) = failure {
            return Err(error);
        }
        let size = if self.together == Together::Yes { self.slots.len() } else { 1 };
        let (makings, slots) = (self.makings.into_iter(), self.slots.chunks(size));
        let batches = makings.zip(slots).zip(keep.chunks(size));
        let kept = batches.filter(|(_, keep)| keep.contains(&true));
        let batches = kept.map(|((making, slots), keep)| finish(making, slots, keep, source));
        let faults = self.faults.into_values().collect();
        Ok(Handed { batches: batches.collect::<Result<_>>()?, faults, spent: self.spent })
    }
}

fn makings(samples: usize, together: Together) -> Vec<Arc<Making>> {
    match together {
        Together::Yes => vec![Arc::new(Making::new(samples))],
        Together::No => (0..samples).map(|_| Arc::new(Making::new(1))).collect(),
    }
}

fn finish(
    making: Arc<Making>,
    slots: &[Chosen],
    keep: &[bool],
    source: &dyn Source,
) -> Result<Batch> {
    let busy = |_| Error::new(Kind::Internal, "a thread still works on a batch that is done");
    let making = Arc::try_unwrap(making).map_err(busy)?;
    let indices: Vec<_> = slots.iter().filter(|slot| slot.keep).map(|slot| slot.index).collect();
    let labels = indices.iter().map(|index| source.label(*index as usize)).collect();
    let name = |at: usize| source.name(slots[at].index as usize);
    Ok(Batch { indices, labels, columns: making.finish(keep, &name)? })
}

/// Refused access or exhausted memory are no fault of one sample: leaving it out would leave out all,
/// one by one.
fn fails_everywhere(error: &Error) -> bool {
    matches!(error.kind(), Kind::PermissionDenied | Kind::Closed | Kind::OutOfMemory)
}

/// What decides about bad samples.
pub(super) struct Rule<'a> {
    pub on_error: OnError,
    pub seed: u64,
    pub epoch: u32,
    pub source: &'a dyn Source,
}

impl Rule<'_> {
    /// The sample that stands in: never the bad one itself, and another one for each attempt. What
    /// a hash takes twice is the next one that was not tried.
    fn substitute(&self, slot: &Chosen) -> Option<u32> {
        let (len, asked) = (self.source.len() as u64, u64::from(slot.asked));
        let others = len - 1;
        if u64::from(slot.substitutes) >= others.min(SUBSTITUTES_MAX.into()) {
            return None;
        }
        let mut tried = Vec::new();
        for attempt in 0..=slot.substitutes {
            let words = [self.seed, self.epoch.into(), asked, attempt.into()];
            let mut place = Chance::hash(&words) % others;
            while tried.contains(&place) {
                place = (place + 1) % others;
            }
            tried.push(place);
        }
        tried.last().map(|place| ((asked + 1 + place) % len) as u32)
    }
}
