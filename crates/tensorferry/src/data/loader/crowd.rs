//! Samples that are left for a while, because memory has a limit and there is no room for them.
//!
//! ```text
//!   load, prepare ──no room──► put back; it and those behind are barred ──► tried again: after LOOK_EVERY,
//!                                 │                                         or when a sample is done
//!                                 └─ of the first batch: all others are barred until it is taken; it fails
//!                                    when its consumer has waited for PATIENCE and no sample was done
//! ```
//!
//! Who came earlier goes on. What was loaded for later batches goes when the first one needs room, and is
//! loaded again: so the first batch has all the memory that its line can give.

use std::time::{Duration, Instant};

use super::line::Ticket;
use super::roles::Kind;
use crate::error::{self, Error};
use crate::memory::ledger::{self, PATIENCE};

/// How often it is tried again.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Where memory has a limit, samples are loaded ahead within one in so many bytes of it.
pub(super) const AHEAD_SHARE: u64 = 8;

/// Who is barred, in one line.
#[derive(Default)]
pub(super) struct Crowd {
    /// From these on, nothing is loaded, or prepared.
    load: Option<Ticket>,
    prepare: Option<Ticket>,
    /// The first batch, when there is no room for it: nothing is done for others.
    alone: Option<u64>,
    /// Since when there is no room for the first batch while its consumer waits.
    since: Option<Instant>,
}

/// Whether trying again may help: memory has a limit, and others hold it.
pub(super) fn is_no_room(error: &Error) -> bool {
    let is_full = error.kind() == error::Kind::OutOfMemory && error.is_retryable();
    is_full && ledger::limit().is_some()
}

impl Crowd {
    pub fn is_there(&self) -> bool {
        self.load.is_some() || self.prepare.is_some()
    }

    pub fn bars(&self, kind: Kind, ticket: &Ticket) -> bool {
        let barred = if kind == Kind::Load { self.load } else { self.prepare };
        barred.is_some_and(|from| *ticket >= from)
            || self.alone.is_some_and(|first| ticket.batch > first)
    }

    /// Bars a sample for which there is no room, and those behind it.
    pub fn bar(&mut self, kind: Kind, ticket: Ticket) {
        let barred = if kind == Kind::Load { &mut self.load } else { &mut self.prepare };
        *barred = Some(barred.map_or(ticket, |from| from.min(ticket)));
    }

    /// The sample is one of the first batch; whether its consumer has waited for too long.
    pub fn bar_others(&mut self, first: u64, is_awaited: bool, now: Instant) -> bool {
        self.alone = Some(first);
        is_awaited && now.duration_since(*self.since.get_or_insert(now)) >= PATIENCE
    }

    /// A sample is done, maybe one of the first batch: others may be tried again.
    pub fn done(&mut self, in_first: bool) {
        self.look_again();
        if in_first {
            self.since = None;
        }
    }

    /// The first batch was taken.
    pub fn taken(&mut self) {
        *self = Self::default();
    }

    pub fn look_again(&mut self) {
        (self.load, self.prepare) = (None, None);
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    fn ticket(batch: u64, slot: usize) -> Ticket {
        Ticket { batch, slot }
    }

    #[test]
    fn those_behind_one_without_room_are_barred_and_those_before_are_not() {
        let mut crowd = Crowd::default();
        crowd.bar(Kind::Load, ticket(3, 1));
        crowd.bar(Kind::Load, ticket(4, 0));
        assert!(crowd.is_there());
        let barred = [(3, 0), (3, 1), (4, 7)].map(|(batch, slot)| ticket(batch, slot));
        assert_eq!(barred.map(|ticket| crowd.bars(Kind::Load, &ticket)), [false, true, true]);
        assert!(!crowd.bars(Kind::Prepare, &ticket(4, 7)));
        crowd.look_again();
        assert!(!crowd.is_there() && !crowd.bars(Kind::Load, &ticket(4, 7)));
    }

    #[test]
    fn while_there_is_no_room_for_the_first_batch_nothing_is_done_for_others() {
        let mut crowd = Crowd::default();
        crowd.bar(Kind::Prepare, ticket(3, 1));
        crowd.bar_others(3, true, Instant::now());
        crowd.done(true);
        let bars = |crowd: &Crowd| {
            [(3, 7), (4, 0)].map(|(batch, slot)| crowd.bars(Kind::Load, &ticket(batch, slot)))
        };
        assert_eq!(bars(&crowd), [false, true]);
        crowd.taken();
        assert_eq!(bars(&crowd), [false, false]);
    }

    #[test]
    fn patience_ends_only_where_a_consumer_waits_and_nothing_is_done() {
        let mut crowd = Crowd::default();
        let began = Instant::now();
        let mut waits = |awaited, seconds| {
            let now = began + Duration::from_secs(seconds);
            crowd.bar_others(0, awaited, now)
        };
        assert!(!waits(false, 0) && !waits(false, 100), "it computes");
        assert!(!waits(true, 100) && !waits(true, 109) && waits(true, 110));
        crowd.done(true);
        assert!(!crowd.bar_others(0, true, began + Duration::from_mins(2)));
    }
}
