//! What moves one way in a step, and how fast: beside compute, and while compute waits.
//!
//! Transfers take processor time for checksums, coding and copies. Compute leaves them little; while it
//! waits, they have all. So both speeds are measured: a prediction with one of them is too good where
//! reads should be hidden, and too bad where they can't be.
//!
//! A wait may begin and end in the middle of a chunk; in fact, it ends when a chunk does. So the bytes of
//! each are divided as the seconds were in which a worker had it. What a chunk stands in line counts as
//! seconds of traffic, without any bytes: beside compute, it takes a worker a while to get a processor.

use std::time::Instant;

use crate::plan::activations::SPEEDUP;
use crate::sync::{now, seconds_since};

/// Fewer bytes than this say little about a disk.
const TELLING_BYTES: f64 = 8.0 * 1024.0 * 1024.0;

/// Chunks one way.
#[derive(Debug, Default)]
pub(super) struct Traffic {
    under_way: usize,
    is_awaited: bool,
    /// Since when what is under way counts for the present kind.
    since: Option<Instant>,
    beside: Moved,
    awaited: Moved,
    all_bytes: u64,
}

/// Bytes, and the seconds in which any were under way.
#[derive(Debug, Default, Clone, Copy)]
struct Moved {
    bytes: f64,
    seconds: f64,
}

/// When a worker took a chunk: the seconds of both kinds by then.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mark {
    beside: f64,
    awaited: f64,
}

/// Bytes a second beside compute, and how many times as fast while it waits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Speed {
    pub beside: f64,
    pub speedup: f64,
}

impl Traffic {
    /// Chunks are put in line.
    pub fn queue(&mut self, chunks: usize) {
        self.tick();
        self.under_way += chunks;
        if chunks > 0 {
            self.since.get_or_insert_with(now);
        }
    }

    /// Chunks leave the line, or a worker, for good.
    pub fn leave(&mut self, chunks: usize) {
        self.tick();
        self.under_way = self.under_way.saturating_sub(chunks);
        if self.under_way == 0 {
            self.since = None;
        }
    }

    /// A worker takes a chunk out of the line.
    pub fn take(&mut self) -> Mark {
        self.tick();
        Mark { beside: self.beside.seconds, awaited: self.awaited.seconds }
    }

    /// A chunk that was taken then has arrived with so many bytes, or has failed with none.
    pub fn end(&mut self, taken: Mark, bytes: u64) {
        self.leave(1);
        self.all_bytes += bytes;
        let beside = self.beside.seconds - taken.beside;
        let awaited = self.awaited.seconds - taken.awaited;
        let share = if beside + awaited > 0.0 { awaited / (beside + awaited) } else { 0.0 };
        self.awaited.bytes += share * bytes as f64;
        self.beside.bytes += (1.0 - share) * bytes as f64;
    }

    /// Whether somebody waits from now on.
    pub fn awaited(&mut self, is_awaited: bool) {
        self.tick();
        self.is_awaited = is_awaited;
    }

    pub fn bytes(&self) -> u64 {
        self.all_bytes
    }

    /// Seconds in which something was under way.
    pub fn seconds(&self) -> f64 {
        self.beside.seconds + self.awaited.seconds
    }

    /// Those of them in which compute went on.
    pub fn hidden_seconds(&self) -> f64 {
        self.beside.seconds
    }

    /// What is believed of the disk after this. A step is one sample of it: half of what is believed comes
    /// from the steps `before`. A kind of which too little moved is believed as before.
    pub fn speed(&self, before: Option<Speed>) -> Option<Speed> {
        let Some(before) = before else { return self.first_speed() };
        let awaited = self.awaited.blended(before.beside * before.speedup);
        let beside = self.beside.blended(before.beside);
        let (Some(beside), Some(awaited)) = (beside, awaited) else {
            // One kind tells how fast the disk is; what waiting makes of it stays.
            let scaled = awaited.map(|awaited| awaited / before.speedup);
            let beside = beside.or(scaled).unwrap_or(before.beside);
            return Some(Speed { beside, ..before });
        };
        Some(Speed { beside, speedup: bounded(awaited / beside) })
    }

    fn first_speed(&self) -> Option<Speed> {
        let (beside, awaited) = (self.beside.telling(), self.awaited.telling());
        let all = Moved { bytes: self.all_bytes as f64, seconds: self.seconds() };
        let speedup = beside.zip(awaited).map(|(beside, awaited)| bounded(awaited / beside));
        let beside = beside.filter(|_| speedup.is_some()).or(all.rate())?;
        Some(Speed { beside, speedup: speedup.unwrap_or(1.0) })
    }

    fn kind(&mut self) -> &mut Moved {
        if self.is_awaited { &mut self.awaited } else { &mut self.beside }
    }

    /// Counts what has passed.
    fn tick(&mut self) {
        if let Some(since) = self.since.take() {
            self.kind().seconds += seconds_since(since);
            self.since = Some(now());
        }
    }
}

impl Moved {
    fn rate(&self) -> Option<f64> {
        (self.bytes > 0.0 && self.seconds > 0.0).then(|| self.bytes / self.seconds)
    }

    fn telling(&self) -> Option<f64> {
        self.rate().filter(|_| self.bytes >= TELLING_BYTES)
    }

    /// As many bytes at this rate as at the one before.
    fn blended(&self, before: f64) -> Option<f64> {
        self.telling().map(|rate| 2.0 / (1.0 / before + 1.0 / rate))
    }
}

fn bounded(speedup: f64) -> f64 {
    speedup.clamp(SPEEDUP.0, SPEEDUP.1)
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use std::time::Duration;

    use super::*;

    const MIB: f64 = 1024.0 * 1024.0;

    /// MiB and seconds beside compute, and while it waited.
    fn traffic(beside: (u64, f64), awaited: (u64, f64)) -> Traffic {
        let moved = |(mib, seconds): (u64, f64)| Moved { bytes: mib as f64 * MIB, seconds };
        let (all_bytes, [beside, awaited]) =
            ((beside.0 + awaited.0) << 20, [moved(beside), moved(awaited)]);
        Traffic { beside, awaited, all_bytes, ..Traffic::default() }
    }

    fn measured(speed: Option<Speed>) -> (f64, f64) {
        let Speed { beside, speedup } = speed.unwrap();
        let rounded = |value: f64| (value * 1e6).round() / 1e6;
        (rounded(beside / MIB), rounded(speedup))
    }

    #[test]
    fn a_disk_is_believed_half_by_this_step_and_half_by_those_before() {
        let first = traffic((16, 1.0), (0, 0.0)).speed(None);
        assert_eq!(measured(first), (16.0, 1.0));
        let second = traffic((16, 3.0), (0, 0.0)).speed(first);
        assert_eq!(measured(second), (8.0, 1.0), "16 MiB in one second and in three");
        assert_eq!(
            measured(traffic((1, 9.0), (1, 9.0)).speed(second)),
            (8.0, 1.0),
            "too few to tell"
        );
    }

    #[test]
    fn what_waiting_makes_of_a_transfer_is_known_once_both_kinds_were_seen() {
        let one_kind = traffic((0, 0.0), (16, 1.0)).speed(None);
        assert_eq!(measured(one_kind), (16.0, 1.0));
        let both = traffic((16, 2.0), (16, 1.0)).speed(None);
        assert_eq!(measured(both), (8.0, 2.0));
        let awaited_only = traffic((0, 0.0), (16, 2.0)).speed(both);
        assert_eq!(measured(awaited_only), (5.333_333, 2.0), "the disk became slower");
        let again = traffic((16, 2.0), (16, 1.0)).speed(both);
        assert_eq!(measured(again), (8.0, 2.0));
        assert_eq!(traffic((0, 0.0), (0, 0.0)).speed(None), None);
    }

    #[test]
    fn seconds_count_for_who_waits_and_only_while_something_is_under_way() {
        let pause = || std::thread::sleep(Duration::from_millis(2));
        let mut traffic = Traffic::default();
        traffic.awaited(true);
        pause();
        assert!(traffic.seconds() <= 0.0, "nothing is under way");
        traffic.queue(1);
        let mark = traffic.take();
        pause();
        traffic.end(mark, 3);
        traffic.awaited(false);
        let awaited = traffic.seconds();
        assert!(awaited > 0.0 && traffic.hidden_seconds() <= 0.0);
        traffic.queue(3);
        traffic.leave(1);
        let marks = [traffic.take(), traffic.take()];
        pause();
        for mark in marks {
            traffic.end(mark, 2);
        }
        pause();
        assert!(traffic.hidden_seconds() > 0.0);
        let all = traffic.seconds();
        assert!((all - awaited - traffic.hidden_seconds()).abs() < 1e-9);
        assert!((traffic.awaited.bytes - 3.0).abs() < 1e-9);
        assert!((traffic.beside.bytes - 4.0).abs() < 1e-9);
        assert_eq!(traffic.bytes(), 7);
        traffic.awaited(true);
        assert!((traffic.seconds() - all).abs() < 1e-12, "nothing is under way");
    }

    #[test]
    fn a_chunk_that_is_awaited_for_a_part_of_its_way_makes_neither_kind_faster() {
        let mut traffic = Traffic::default();
        for _ in 0..4 {
            traffic.queue(1);
            // The clock of this test is its own.
            traffic.since = None;
            let mark = traffic.take();
            traffic.beside.seconds += 0.007;
            traffic.awaited.seconds += 0.003;
            traffic.end(mark, 16 << 20);
        }
        let Speed { beside, speedup } = traffic.speed(None).unwrap();
        assert!((beside / MIB - 1600.0).abs() < 1e-6, "{beside}");
        assert!((speedup - 1.0).abs() < 1e-9, "{speedup}");
    }

    #[test]
    fn what_stands_in_line_beside_compute_makes_that_kind_slower_and_not_the_other() {
        let mut traffic = Traffic::default();
        traffic.queue(1);
        traffic.since = None;
        traffic.beside.seconds += 0.010;
        let mark = traffic.take();
        traffic.beside.seconds += 0.010;
        traffic.awaited.seconds += 0.010;
        traffic.end(mark, 32 << 20);
        let Speed { beside, speedup } = traffic.speed(None).unwrap();
        assert!((beside / MIB - 800.0).abs() < 1e-6, "{beside}");
        assert!((speedup - 2.0).abs() < 1e-9, "{speedup}");
    }
}
