//! Whether somebody waits for a disk just now.
//!
//! What callers read themselves and what the driver reads for them is told here, and the
//! [schedule](super::schedule) asks. A read that the page cache answers waits for no disk: it is told by its
//! time.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// How long a wait is remembered: from one read of a loader to the next.
const HELD: Duration = Duration::from_millis(100);

/// A read that takes longer than this, and than its bytes at [`CACHE_BYTES_PER_SECOND`], waits for a disk.
const CALL: Duration = Duration::from_micros(60);
const CACHE_BYTES_PER_SECOND: f64 = 1e9;

/// Waits for disks, of all users of an engine.
pub(super) struct Demand {
    since: Instant,
    /// When a wait has ended last, in nanoseconds from then on; 0 before the first.
    latest: AtomicU64,
    /// Nanoseconds in which somebody waited; whoever waited beside somebody else counts once.
    waited: AtomicU64,
}

impl Demand {
    pub(super) fn new() -> Self {
        let [latest, waited] = [const { AtomicU64::new(0) }; 2];
        Self { since: Instant::now(), latest, waited }
    }

    /// A read for somebody who waits has ended.
    pub(super) fn ended(&self, bytes: u64, took: Duration, now: Instant) {
        if is_from_disk(bytes, took) {
            let ended = self.nanos(now).max(1);
            let before = self.latest.fetch_max(ended, Relaxed);
            let alone = ended.saturating_sub(before).min(took.as_nanos() as u64);
            self.waited.fetch_add(alone, Relaxed);
        }
    }

    /// For how long somebody has waited so far.
    pub(super) fn waited(&self) -> Duration {
        Duration::from_nanos(self.waited.load(Relaxed))
    }

    /// Whether somebody waits, or did so a moment ago.
    pub(super) fn is_there(&self, now: Instant) -> bool {
        let latest = self.latest.load(Relaxed);
        latest > 0 && self.nanos(now).saturating_sub(latest) < HELD.as_nanos() as u64
    }

    fn nanos(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.since).as_nanos() as u64
    }
}

/// Whether a read of so many bytes that took so long waited for a disk.
fn is_from_disk(bytes: u64, took: Duration) -> bool {
    took > CALL + Duration::from_secs_f64(bytes as f64 / CACHE_BYTES_PER_SECOND)
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    const MILLISECOND: Duration = Duration::from_millis(1);

    #[test]
    fn a_read_from_the_disk_is_seen_for_a_while_and_one_from_the_cache_is_not() {
        let demand = Demand::new();
        let start = demand.since + MILLISECOND;
        assert!(!demand.is_there(start), "nobody has read yet");
        demand.ended(150_000, Duration::from_micros(80), start);
        demand.ended(64 << 20, 20 * MILLISECOND, start);
        assert!(!demand.is_there(start), "the cache is as fast");
        demand.ended(150_000, MILLISECOND, start);
        assert!(demand.is_there(start) && demand.is_there(start + HELD / 2));
        assert!(!demand.is_there(start + HELD));
    }

    #[test]
    fn waits_side_by_side_count_once() {
        let demand = Demand::new();
        let at = |millis: u32| demand.since + millis * MILLISECOND;
        for (took, ended) in [(4, 10), (4, 12), (1, 12), (5, 30)] {
            demand.ended(1, took * MILLISECOND, at(ended));
        }
        assert_eq!(demand.waited(), 11 * MILLISECOND);
        demand.ended(1, Duration::from_micros(10), at(40));
        assert_eq!(demand.waited(), 11 * MILLISECOND, "that was no wait");
    }
}
