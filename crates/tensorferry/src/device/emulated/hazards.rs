//! Finds operations that race, when they are submitted and whatever the timing.
//!
//! An operation is *outstanding* from its submission to its end. A new one conflicts with an
//! outstanding one when both use a byte and at least one writes it. That is a race unless the
//! outstanding one is ordered before the new one, for one of two reasons: they are on the same
//! stream, or the new one's stream has waited for an event recorded behind the outstanding one.
//! (If the outstanding one had ended, it would not be here.) What a thread of the host uses in
//! place, as a kernel or as host code in mapped memory, is outstanding while it holds the bytes.
//!
//! Orders are kept as vector clocks: for each stream, up to which of every other stream's
//! operations the next one on this stream comes after. Nothing depends on how far the device has
//! got, except that what has ended can't be raced with.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::error::{Error, Result};
use crate::memory::overlap;

/// For each stream, the last of its operations that is ordered before.
pub(super) type Clock = BTreeMap<u64, u64>;

/// The operations in flight and the bytes they use.
#[derive(Debug, Default)]
pub(super) struct Hazards {
    outstanding: BTreeMap<AccessId, (Access, Actor)>,
    next: AccessId,
}

pub(super) type AccessId = u64;

/// A use of device memory, or of mapped host memory.
#[derive(Debug, Clone)]
pub(super) struct Access {
    /// The address of the allocation or mapping, which is never used twice.
    pub(super) memory: u64,
    pub(super) range: Range<usize>,
    pub(super) writes: bool,
}

/// Who uses it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Actor {
    /// An operation of a stream, and its number there.
    Stream(u64, u64),
    /// A thread of the host; no stream can be ordered behind it.
    Thread,
}

impl Hazards {
    /// An error if this access, by something ordered behind `known`, races with one outstanding.
    pub(super) fn check(&self, access: &Access, known: &Clock) -> Result<()> {
        let ordered = |actor: Actor| match actor {
            Actor::Stream(stream, number) => known.get(&stream).is_some_and(|last| number <= *last),
            Actor::Thread => false,
        };
        let race = self.outstanding.values().find(|(other, actor)| {
            other.memory == access.memory
                && (other.writes || access.writes)
                && overlap(&other.range, &access.range)
                && !ordered(*actor)
        });
        race.map_or(Ok(()), |(other, actor)| Err(explain(access, other, *actor)))
    }

    /// Notes that an access is outstanding, until [`end`](Self::end).
    pub(super) fn begin(&mut self, access: Access, actor: Actor) -> AccessId {
        let id = self.next;
        self.next += 1;
        self.outstanding.insert(id, (access, actor));
        id
    }

    pub(super) fn end(&mut self, id: AccessId) {
        self.outstanding.remove(&id);
    }
}

#[cold]
fn explain(access: &Access, other: &Access, actor: Actor) -> Error {
    let (mine, theirs) = (&access.range, &other.range);
    let (state, verb) = match (other.writes, access.writes) {
        (true, false) => ("have not arrived", "writes"),
        (true, true) => ("are being written", "writes"),
        (false, _) => ("are still being read", "reads"),
    };
    let by = match actor {
        Actor::Stream(stream, _) => format!("an operation in flight on stream {stream}"),
        Actor::Thread => "a thread of the host".to_owned(),
    };
    Error::invalid(format!(
        "bytes {mine:?} {state}: {by} {verb} {theirs:?}, and nothing orders this operation after it"
    ))
    .with("memory", format_args!("{:#x}", access.memory))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(range: Range<usize>, writes: bool) -> Access {
        Access { memory: 0x100, range, writes }
    }

    fn clock(known: &[(u64, u64)]) -> Clock {
        known.iter().copied().collect()
    }

    #[test]
    fn reading_what_an_unordered_operation_writes_is_a_race() {
        let mut hazards = Hazards::default();
        let id = hazards.begin(access(50..80, true), Actor::Stream(3, 7));
        let error = hazards.check(&access(0..51, false), &clock(&[(3, 6), (4, 99)])).unwrap_err();
        assert_eq!(
            error.to_string(),
            "bytes 0..51 have not arrived: an operation in flight on stream 3 writes 50..80, and \
             nothing orders this operation after it (memory: 0x100)"
        );
        assert!(hazards.check(&access(0..51, false), &clock(&[(3, 7)])).is_ok(), "ordered");
        assert!(hazards.check(&access(0..50, false), &clock(&[])).is_ok(), "disjoint");
        let elsewhere = Access { memory: 0x200, ..access(0..100, true) };
        assert!(hazards.check(&elsewhere, &clock(&[])).is_ok(), "another allocation");
        hazards.end(id);
        assert!(hazards.check(&access(0..51, false), &clock(&[])).is_ok(), "ended");
    }

    #[test]
    fn overwriting_what_is_still_read_is_a_race_and_reading_together_is_none() {
        let mut hazards = Hazards::default();
        hazards.begin(access(0..10, false), Actor::Stream(1, 1));
        assert!(hazards.check(&access(0..10, false), &clock(&[])).is_ok());
        let error = hazards.check(&access(9..20, true), &clock(&[])).unwrap_err();
        assert!(error.to_string().contains("9..20 are still being read"), "{error}");
    }

    #[test]
    fn nothing_is_ordered_behind_a_thread_of_the_host() {
        let mut hazards = Hazards::default();
        hazards.begin(access(0..10, true), Actor::Thread);
        let error = hazards.check(&access(0..1, true), &clock(&[(0, 9), (1, 9)])).unwrap_err();
        assert!(error.to_string().contains("a thread of the host writes 0..10"), "{error}");
    }
}
