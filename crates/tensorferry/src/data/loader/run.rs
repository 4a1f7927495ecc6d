//! One epoch of one consumer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::crew::Crew;
use super::line::Line;
use super::open::{Handed, Together};
use super::work::Work;
use crate::error::{Error, Result};
use crate::sync::{Mutex, lock, now};
use crate::trace;

/// One epoch of one consumer: batches are submitted, and come out in that order, each with samples
/// in it or as an error.
///
/// Closing or dropping it ends the epoch: what is under way is thrown away.
pub struct Run {
    crew: Arc<Crew>,
    work: Arc<Work>,
    line: u64,
    clock: Mutex<Clock>,
}

/// Who waited for whom.
#[derive(Default)]
struct Clock {
    /// When the last batch was handed over: since then the consumer is busy.
    handed_over: Option<Instant>,
    /// When the next one was first asked for: since then the consumer waits.
    asked: Option<Instant>,
}

impl Run {
    pub(super) fn new(crew: Arc<Crew>, work: Arc<Work>, epoch: u32) -> Result<Self> {
        let line = crew.join(Arc::clone(&work), epoch)?;
        Ok(Self { crew, work, line, clock: Mutex::default() })
    }

    /// Asks for a batch of these samples, behind all that were asked for before.
    pub fn submit(&self, indices: &[u32]) -> Result<()> {
        self.ask_for(indices, Together::Yes)
    }

    /// The same, each in a batch of its own: they may differ in shape, and whoever asks puts them
    /// together. What becomes of bad ones is decided as if they were one batch.
    pub fn submit_apart(&self, indices: &[u32]) -> Result<()> {
        self.ask_for(indices, Together::No)
    }

    fn ask_for(&self, indices: &[u32], together: Together) -> Result<()> {
        if indices.is_empty() {
            return Err(Error::invalid("a batch without samples is asked for"));
        }
        let len = self.work.source.len();
        if let Some(index) = indices.iter().find(|index| **index as usize >= len) {
            let message = format!("sample {index} is asked for, and there are {len}");
            return Err(Error::invalid(message));
        }
        self.crew.submit(self.line, indices, together)
    }

    /// What became of the next submission, in their order. Waits for it, at most until `limit` has passed:
    /// `None` then, and the same one can be waited for again.
    ///
    /// An error is that of this submission alone: the next ones come. It may be a timeout of the store's,
    /// which is no reason to wait again.
    pub fn next(&self, limit: Option<Duration>) -> Result<Option<Handed>> {
        let _span = trace::span("data", "wait for a batch");
        let began = now();
        let (asked, busy) = self.asked(began);
        let deadline = limit.and_then(|limit| began.checked_add(limit));
        let taken = self.crew.wait_for(self.line, deadline, |line| {
            if line.open_batches() == 0 {
                return Some(None);
            }
            let taken = line.take()?;
            line.was_busy(busy.as_secs_f64());
            Some(Some(taken))
        })?;
        let Some(taken) = taken else { return Ok(None) };
        let message = "no batch was submitted that has not been taken";
        let handed = taken.ok_or_else(|| Error::invalid(message))?;
        let batches = handed.as_ref().map_or(&[][..], |handed| &handed.batches);
        let samples = batches.iter().map(|batch| batch.indices.len()).sum();
        let handed_over = now();
        self.work.tally.handed_over(samples, handed_over - asked, busy);
        self.work.tally.bad(handed.as_ref().map_or(0, |handed| handed.faults.len()));
        *lock(&self.clock) = Clock { handed_over: Some(handed_over), asked: None };
        handed.map(Some)
    }

    /// Since when the consumer waits, and for how long it was busy before.
    fn asked(&self, now: Instant) -> (Instant, Duration) {
        let mut clock = lock(&self.clock);
        let asked = *clock.asked.get_or_insert(now);
        (asked, clock.handed_over.map_or(Duration::ZERO, |last| asked - last))
    }

    /// What the next batch waits for, for people.
    pub fn held_up_by(&self) -> String {
        self.crew.look(self.line, Line::held_up_by).ok().flatten().unwrap_or_default()
    }

    /// Ends the epoch; whoever waits for a batch of it is told so at once.
    pub fn close(&self) {
        self.crew.leave(self.line);
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.close();
    }
}
