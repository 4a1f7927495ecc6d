//! One consumer's samples on their way, and who is next.
//!
//! A line has no threads and no lock: the crew calls it under its own. So its rules can be tested
//! step by step.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use super::crowd::{AHEAD_SHARE, Crowd};
use super::open::{Handed, Open, Rule, Together};
use super::roles::Kind;
use super::work::{Loaded, Work};
use crate::data::batch::Making;
use crate::data::spent::Spent;
use crate::error::{Error, Result};
use crate::memory::ledger;
use crate::plan::data::eviction::Moment;
use crate::plan::data::threads::Consumer;
use crate::sync::{Condvar, now};

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
    Prepare { loaded: Loaded, making: Arc<Making>, place: usize },
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
    to_prepare: BTreeMap<Ticket, Loaded>,
    /// Stored bytes of samples that are being loaded or loaded and not prepared.
    ahead_bytes: u64,
    /// The consumer's own seconds for a batch, lately.
    train_seconds: f64,
    /// Whether the consumer waits for the first batch.
    pub is_awaited: bool,
    crowd: Crowd,
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
            is_awaited: false,
            crowd: Crowd::default(),
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
        let share = ledger::limit().map_or(u64::MAX, |limit| limit / AHEAD_SHARE);
        let room = self.ahead_bytes < self.work.config.load_ahead_bytes.min(share);
        let next = self.to_load.first().filter(|next| !self.crowd.bars(Kind::Load, next));
        next.is_some() && (room || self.loading + self.to_prepare.len() == 0)
    }

    pub fn can_prepare(&self) -> bool {
        let last = self.first + self.work.config.prepare_ahead as u64;
        let next = self.to_prepare.first_key_value().map(|(ticket, _)| ticket);
        next.is_some_and(|next| {
            next.batch < last
                && !self.crowd.bars(Kind::Prepare, next)
                && (ledger::limit().is_none() || self.have_room_before(next.batch))
        })
    }

    /// Whether all batches before this one have their memory: it must not take what they still need.
    fn have_room_before(&self, batch: u64) -> bool {
        self.open.iter().take((batch - self.first) as usize).all(Open::has_its_room)
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

    pub fn loaded(&mut self, (ticket, index): (Ticket, u32), loaded: Result<Loaded>, seconds: f64) {
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
        // What was loaded is gone.
        self.crowd.done(ticket.batch == self.first);
        if self.open.front().is_some_and(Open::is_done) {
            self.ready.notify_all();
        }
    }

    /// The first submission, if it is done.
    pub fn take(&mut self) -> Option<Result<Handed>> {
        let open = self.open.pop_front_if(|open| open.is_done())?;
        self.first += 1;
        self.crowd.taken();
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

    /// Whether some samples are left because memory is short.
    pub fn is_crowded(&self) -> bool {
        self.crowd.is_there()
    }

    /// There may be room for them now.
    pub fn look_again(&mut self) {
        self.crowd.look_again();
    }

    /// There was no room to load a sample, or to prepare what was loaded: it is put back. The first batch
    /// fails if its consumer has waited too long for that.
    pub fn put_back(
        &mut self,
        (ticket, index): (Ticket, u32),
        loaded: Option<Loaded>,
        error: Error,
    ) {
        let kind = if loaded.is_some() { Kind::Prepare } else { Kind::Load };
        match kind {
            Kind::Load => self.loading -= 1,
            Kind::Prepare => self.preparing -= 1,
        }
        self.crowd.bar(kind, ticket);
        if ticket.batch == self.first {
            self.leave_later_ones();
            if self.crowd.bar_others(self.first, self.is_awaited, now()) {
                // So do the others of its batch, without another wait.
                self.crowd.look_again();
                self.give_up(index);
                return self.failed(ticket, error);
            }
        }
        if let Some(loaded) = loaded {
            self.to_prepare.insert(ticket, loaded);
        } else {
            self.give_up(index);
            self.to_load.insert(ticket);
        }
    }

    /// What was loaded for later batches makes room for the first one, and is loaded again.
    fn leave_later_ones(&mut self) {
        let later = Ticket { batch: self.first + 1, slot: 0 };
        for (ticket, loaded) in self.to_prepare.split_off(&later) {
            drop(loaded);
            if let Some(open) = self.open_batch(ticket) {
                let index = open.slots[ticket.slot].index;
                self.give_up(index);
                self.to_load.insert(ticket);
            }
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
