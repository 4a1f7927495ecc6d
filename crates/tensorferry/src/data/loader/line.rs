//! One consumer's samples on their way, and who is next.
//!
//! A line has no threads and no lock: the crew calls it under its own. So its rules can be tested
//! step by step.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use super::open::{Handed, Open, Rule, Together};
use super::work::Work;
use crate::data::batch::Making;
use crate::data::cache::Origin;
use crate::data::sample::Raw;
use crate::data::spent::Spent;
use crate::error::{Error, Result};
use crate::plan::data::eviction::Moment;
use crate::plan::data::threads::Consumer;
use crate::sync::Condvar;

/// A place in a batch: earlier ones are more urgent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ticket {
    pub batch: u64,
    pub slot: usize,
}

/// What a thread is to do.
pub(super) struct Task {
    pub line: u64,
    pub ticket: Ticket,
    pub index: u32,
    pub now: Moment,
    /// Threads that do the same kind of work, this one included.
    pub beside: usize,
    pub work: Arc<Work>,
    pub what: What,
}

/// The work itself.
pub(super) enum What {
    Load,
    Prepare { loaded: (Raw, Origin), making: Arc<Making>, place: usize },
}

/// One consumer's samples on their way.
pub(super) struct Line {
    pub id: u64,
    pub work: Arc<Work>,
    /// Rung when the first batch is done.
    pub ready: Arc<Condvar>,
    /// Threads that load for this line now.
    pub loading: usize,
    /// Threads that prepare for this line now.
    pub preparing: usize,
    /// Tasks taken from this line so far.
    pub served: u64,
    epoch: u32,
    open: VecDeque<Open>,
    /// The number of the first open batch, counted from zero.
    first: u64,
    /// Samples submitted before the first open batch.
    passed: u64,
    to_load: BTreeSet<Ticket>,
    to_prepare: BTreeMap<Ticket, (Raw, Origin)>,
    /// Stored bytes of samples that are being loaded or loaded and not prepared.
    ahead_bytes: u64,
    /// The consumer's own seconds for a batch, lately.
    train_seconds: f64,
}

/// How much the last batch counts in what a consumer's time is believed to be.
const LATEST: f64 = 0.2;

/// Samples whose size says what is usual in a line.
const SAMPLES_ASKED: usize = 64;

impl Line {
    pub fn new(id: u64, work: Arc<Work>, epoch: u32) -> Self {
        Self {
            id,
            work,
            ready: Arc::new(Condvar::new()),
            loading: 0,
            preparing: 0,
            served: 0,
            epoch,
            open: VecDeque::new(),
            first: 0,
            passed: 0,
            to_load: BTreeSet::new(),
            to_prepare: BTreeMap::new(),
            ahead_bytes: 0,
            train_seconds: 0.0,
        }
    }

    pub fn submit(&mut self, indices: &[u32], together: Together) {
        let batch = self.first + self.open.len() as u64;
        self.open.push_back(Open::new(indices, together));
        self.to_load.extend((0..indices.len()).map(|slot| Ticket { batch, slot }));
    }

    /// How many batches at the front are done.
    pub fn ready_batches(&self) -> usize {
        self.open.iter().take_while(|open| open.is_done()).count()
    }

    pub fn open_batches(&self) -> usize {
        self.open.len()
    }

    /// The consumer was busy for so long with its last batch.
    pub fn was_busy(&mut self, seconds: f64) {
        self.train_seconds += LATEST * (seconds - self.train_seconds);
    }

    /// This line as the planner sees it.
    pub fn consumer(&self) -> Consumer {
        let next = self.open.iter().flat_map(|open| &open.slots).take(SAMPLES_ASKED);
        let (count, bytes) = next.fold((0, 0), |(count, bytes), slot| {
            (count + 1, bytes + self.work.source.bytes(slot.index as usize))
        });
        let sample_bytes = bytes.checked_div(count).unwrap_or(0);
        Consumer {
            queued_bytes: sample_bytes.max(1) * self.to_load.len() as u64,
            sample_bytes,
            batch: self.open.front().map_or(0, |open| open.slots.len()),
            train_seconds: self.train_seconds,
            ready: self.ready_batches(),
        }
    }

    /// Whether one more thread may work for this line.
    pub fn has_hands(&self) -> bool {
        self.loading + self.preparing < self.work.config.threads
    }

    pub fn can_load(&self) -> bool {
        let room = self.ahead_bytes < self.work.config.load_ahead_bytes;
        !self.to_load.is_empty() && (room || self.loading + self.to_prepare.len() == 0)
    }

    pub fn can_prepare(&self) -> bool {
        let last = self.first + self.work.config.prepare_ahead as u64;
        self.to_prepare.first_key_value().is_some_and(|(ticket, _)| ticket.batch < last)
    }

    pub fn next_load(&mut self) -> Option<Task> {
        let ticket = self.to_load.pop_first()?;
        let index = self.open_batch(ticket)?.slots[ticket.slot].index;
        self.ahead_bytes += self.work.source.bytes(index as usize);
        self.loading += 1;
        Some(self.task(ticket, index, What::Load))
    }

    pub fn next_prepare(&mut self) -> Option<Task> {
        let (ticket, loaded) = self.to_prepare.pop_first()?;
        let open = self.open_batch(ticket)?;
        let index = open.slots[ticket.slot].index;
        let (making, place) = open.place(ticket.slot);
        let making = Arc::clone(making);
        self.preparing += 1;
        Some(self.task(ticket, index, What::Prepare { loaded, making, place }))
    }

    pub fn loaded(
        &mut self,
        (ticket, index): (Ticket, u32),
        loaded: Result<(Raw, Origin)>,
        seconds: f64,
    ) {
        self.loading -= 1;
        if let Some(open) = self.open_batch(ticket) {
            open.spent.storage += seconds;
        }
        match loaded {
            Ok(found) => {
                self.to_prepare.insert(ticket, found);
            }
            Err(error) => {
                self.give_up(index);
                self.failed(ticket, error);
            }
        }
    }

    pub fn prepared(&mut self, (ticket, index): (Ticket, u32), prepared: Result<()>, spent: Spent) {
        self.preparing -= 1;
        self.give_up(index);
        if let Some(open) = self.open_batch(ticket) {
            open.spent += spent;
        }
        match (prepared, self.open_batch(ticket)) {
            (Err(error), _) => self.failed(ticket, error),
            (Ok(()), Some(open)) => open.done(),
            (Ok(()), None) => {}
        }
        if self.open.front().is_some_and(Open::is_done) {
            self.ready.notify_all();
        }
    }

    /// The first submission, if it is done.
    pub fn take(&mut self) -> Option<Result<Handed>> {
        let open = self.open.pop_front_if(|open| open.is_done())?;
        self.first += 1;
        self.passed += open.slots.len() as u64;
        Some(open.finish(&*self.work.source))
    }

    /// The names of samples that hold up the first batch, for people.
    pub fn held_up_by(&self) -> Option<String> {
        let waiting = self.to_load.first().filter(|ticket| ticket.batch == self.first);
        let open = self.open.front()?;
        let busy =
            format!("{} of {} samples of the batch are missing", open.left, open.slots.len());
        let idle = if waiting.is_some() { ", some not begun" } else { "" };
        let first = open.slots.first().map_or(0, |slot| slot.index);
        Some(format!("{busy}{idle}; its first is {}", self.work.source.name(first as usize)))
    }

    fn failed(&mut self, ticket: Ticket, error: Error) {
        let work = Arc::clone(&self.work);
        let rule = Rule {
            on_error: work.config.on_error,
            seed: work.config.seed,
            epoch: self.epoch,
            source: &*work.source,
        };
        let Some(open) = self.open_batch(ticket) else { return };
        let again = open.failed(ticket.slot, error, &rule);
        self.to_load.extend(again.into_iter().map(|slot| Ticket { slot, ..ticket }));
        if self.open.front().is_some_and(Open::is_done) {
            self.ready.notify_all();
        }
    }

    fn give_up(&mut self, index: u32) {
        self.ahead_bytes -= self.work.source.bytes(index as usize);
    }

    fn open_batch(&mut self, ticket: Ticket) -> Option<&mut Open> {
        self.open.get_mut((ticket.batch - self.first) as usize)
    }

    fn task(&mut self, ticket: Ticket, index: u32, what: What) -> Task {
        self.served += 1;
        let earlier = self.open.iter().take((ticket.batch - self.first) as usize);
        let before: usize = earlier.map(|open| open.slots.len()).sum();
        let position = (self.passed + (before + ticket.slot) as u64) as u32;
        Task {
            line: self.id,
            ticket,
            index,
            now: Moment { epoch: self.epoch, position },
            beside: 1,
            work: Arc::clone(&self.work),
            what,
        }
    }
}
