//! A batch that was submitted and not handed over yet.

use std::collections::BTreeMap;
use std::mem;
use std::sync::Arc;

use super::config::{OnError, SUBSTITUTES_MAX};
use crate::data::batch::{Batch, Making, Spent};
use crate::data::chance::Chance;
use crate::data::source::Source;
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

/// A batch that was submitted and not handed over yet.
pub(super) struct Open {
    pub making: Arc<Making>,
    pub slots: Vec<Chosen>,
    /// Samples that are neither done nor left out.
    pub left: usize,
    /// What threads spent on it.
    pub spent: Spent,
    failures: Vec<(usize, Error)>,
    /// What was wrong, by slot.
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

/// What became of a sample that failed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The slot is done with.
    Over,
    /// The slot's new sample is to be loaded.
    Again,
}

impl Open {
    pub fn new(indices: &[u32]) -> Self {
        let chosen =
            |index: &u32| Chosen { asked: *index, index: *index, substitutes: 0, keep: true };
        Self {
            making: Arc::new(Making::new(indices.len())),
            slots: indices.iter().map(chosen).collect(),
            left: indices.len(),
            spent: Spent::default(),
            failures: Vec::new(),
            faults: BTreeMap::new(),
        }
    }

    pub fn is_done(&self) -> bool {
        self.left == 0
    }

    pub fn done(&mut self) {
        self.left -= 1;
    }

    /// Decides about a sample that failed.
    pub fn failed(&mut self, at: usize, error: Error, rule: &Rule<'_>) -> Verdict {
        self.making.forget(at);
        let unlike = self.making.unlike();
        if unlike.is_some() || rule.on_error == OnError::Raise || fails_everywhere(&error) {
            return self.over(at, Some(unlike.unwrap_or(error)));
        }
        let slot = &mut self.slots[at];
        if slot.substitutes == SUBSTITUTES_MAX {
            let message = format!("{SUBSTITUTES_MAX} substitutes of a bad sample were bad too");
            return self.over(at, Some(error.with("gave up", message)));
        }
        let substitute = (rule.on_error == OnError::Substitute).then(|| rule.substitute(slot));
        let fault = || Fault {
            index: slot.asked,
            epoch: rule.epoch,
            name: rule.source.name(slot.asked as usize),
            error: error.to_string(),
            substitute: None,
        };
        self.faults.entry(at).or_insert_with(fault).substitute = substitute;
        let Some(substitute) = substitute else { return self.over(at, None) };
        slot.substitutes += 1;
        slot.index = substitute;
        Verdict::Again
    }

    fn over(&mut self, at: usize, failure: Option<Error>) -> Verdict {
        self.failures.extend(failure.map(|error| (at, error)));
        self.slots[at].keep = false;
        self.left -= 1;
        Verdict::Over
    }

    /// The batch, once it is done; `None` when every sample of it was left out. Beside it what was
    /// wrong, in the order of the samples, whoever was first.
    pub fn finish(mut self, source: &dyn Source) -> (Result<Option<Batch>>, Vec<Fault>) {
        let faults = mem::take(&mut self.faults).into_values().collect();
        (self.into_batch(source), faults)
    }

    fn into_batch(self, source: &dyn Source) -> Result<Option<Batch>> {
        if let Some((_, error)) = self.failures.into_iter().min_by_key(|(at, _)| *at) {
            return Err(error);
        }
        let keep: Vec<_> = self.slots.iter().map(|slot| slot.keep).collect();
        let kept = self.slots.iter().filter(|slot| slot.keep);
        let indices: Vec<_> = kept.map(|slot| slot.index).collect();
        if indices.is_empty() && !keep.is_empty() {
            return Ok(None);
        }
        let busy = |_| Error::new(Kind::Internal, "a thread still works on a batch that is done");
        let making = Arc::try_unwrap(self.making).map_err(busy)?;
        let labels = indices.iter().map(|index| source.label(*index as usize)).collect();
        let (columns, spent) = (making.finish(&keep)?, self.spent);
        Ok(Some(Batch { indices, labels, columns, spent }))
    }
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
    /// The sample that stands in: another one for each attempt.
    fn substitute(&self, slot: &Chosen) -> u32 {
        let (asked, attempt) = (u64::from(slot.asked), u64::from(slot.substitutes));
        let hash = Chance::hash(&[self.seed, u64::from(self.epoch), asked, attempt]);
        (hash % self.source.len() as u64) as u32
    }
}
