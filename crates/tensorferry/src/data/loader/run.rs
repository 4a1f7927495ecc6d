//! One epoch of one consumer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::crew::Crew;
use super::line::Line;
use super::open::Fault;
use super::work::Work;
use crate::data::batch::Batch;
use crate::error::{Error, Kind, Result};
use crate::sync::{Mutex, lock};
use crate::trace;

/// One epoch of one consumer: batches are submitted, and come out in that order.
///
/// Dropping it ends the epoch: what is under way is thrown away.
pub struct Run {
    crew: Arc<Crew>,
    work: Arc<Work>,
    line: u64,
    /// When the last batch was handed over: since then the consumer is busy.
    handed_over: Mutex<Option<Instant>>,
}

/// What [`Run::next`] gives: a batch, or `None` when all of its samples were left out.
pub type Handed = (Option<Batch>, Vec<Fault>);

impl Run {
    pub(super) fn new(crew: Arc<Crew>, work: Arc<Work>, epoch: u32) -> Result<Self> {
        let line = crew.join(Arc::clone(&work), epoch, 0)?;
        Ok(Self { crew, work, line, handed_over: Mutex::new(None) })
    }

    /// Asks for a batch of these samples, behind all that were asked for before.
    pub fn submit(&self, indices: &[u32]) -> Result<()> {
        let len = self.work.source.len();
        if let Some(index) = indices.iter().find(|index| **index as usize >= len) {
            let message = format!("sample {index} is asked for, and there are {len}");
            return Err(Error::invalid(message));
        }
        self.crew.submit(self.line, indices)
    }

    /// The next batch, in the order of submission. Waits for it, at most until `limit` has passed.
    ///
    /// An error is that of this batch alone: the next ones come.
    pub fn next(&self, limit: Option<Duration>) -> Result<Handed> {
        let _span = trace::span("data", "wait for a batch");
        let began = Instant::now();
        let busy = lock(&self.handed_over).map_or(Duration::ZERO, |last| began - last);
        let deadline = limit.and_then(|limit| began.checked_add(limit));
        let taken = self.crew.wait_for(self.line, deadline, |line| {
            if line.open_batches() == 0 { Some(None) } else { line.take().map(Some) }
        })?;
        let Some(taken) = taken else { return Err(self.timed_out(limit)) };
        let message = "no batch was submitted that has not been taken";
        let (batch, faults) = taken.ok_or_else(|| Error::invalid(message))?;
        let samples = batch.as_ref().ok().and_then(Option::as_ref);
        let samples = samples.map_or(0, |batch| batch.indices.len());
        self.work.tally.handed_over(samples, began.elapsed(), busy);
        self.work.tally.bad(faults.clone());
        *lock(&self.handed_over) = Some(Instant::now());
        Ok((batch?, faults))
    }

    fn timed_out(&self, limit: Option<Duration>) -> Error {
        let held = self
            .crew
            .wait_for(self.line, Some(Instant::now()), |line| Some(Line::held_up_by(line)));
        let held = held.ok().flatten().flatten().unwrap_or_default();
        let message = format!("no batch came within {:?}: {held}", limit.unwrap_or_default());
        Error::new(Kind::Timeout, message)
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.crew.leave(self.line);
    }
}
