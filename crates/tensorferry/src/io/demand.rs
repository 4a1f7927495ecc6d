//! Whether somebody in this process waits for a disk just now.
//!
//! Not all reads go through an engine: small files of a dataset are read by the threads that decode them.
//! So whoever reads for somebody who waits says so ([`Demand::during`]), and engines let work that nobody is
//! in a hurry for step aside. A read that the page cache answers waits for no disk: it is told by its time.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// How long a wait is remembered: from one read of a loader to the next.
const HELD: Duration = Duration::from_millis(100);

/// A read that takes longer than this, and than its bytes at [`CACHE_BYTES_PER_SECOND`], waits for a disk.
const CALL: Duration = Duration::from_micros(60);
const CACHE_BYTES_PER_SECOND: f64 = 1e9;

/// Waits for disks, of a whole process.
pub struct Demand {
    since: LazyLock<Instant>,
    /// When a wait has ended last, in nanoseconds from then on; 0 before the first.
    latest: AtomicU64,
}

impl Demand {
    /// That of this process.
    pub fn of_process() -> &'static Self {
        static DEMAND: Demand = Demand::new();
        &DEMAND
    }

    const fn new() -> Self {
        Self { since: LazyLock::new(Instant::now), latest: AtomicU64::new(0) }
    }

    /// Does a read of about so many bytes that somebody waits for.
    pub fn during<T>(&self, bytes: u64, read: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let done = read();
        let now = Instant::now();
        self.ended(bytes, now - began, now);
        done
    }

    /// A read for somebody who waits has ended.
    pub(super) fn ended(&self, bytes: u64, took: Duration, now: Instant) {
        let from_cache = CALL + Duration::from_secs_f64(bytes as f64 / CACHE_BYTES_PER_SECOND);
        if took > from_cache {
            self.latest.store(self.nanos(now).max(1), Relaxed);
        }
    }

    /// Whether somebody waits, or did so a moment ago.
    pub(super) fn is_there(&self, now: Instant) -> bool {
        let latest = self.latest.load(Relaxed);
        latest > 0 && self.nanos(now).saturating_sub(latest) < HELD.as_nanos() as u64
    }

    fn nanos(&self, now: Instant) -> u64 {
        now.saturating_duration_since(*self.since).as_nanos() as u64
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    const MILLISECOND: Duration = Duration::from_millis(1);

    #[test]
    fn a_read_from_the_disk_is_seen_for_a_while_and_one_from_the_cache_is_not() {
        let demand = Demand::new();
        let start = *demand.since + MILLISECOND;
        assert!(!demand.is_there(start), "nobody has read yet");
        demand.ended(150_000, Duration::from_micros(80), start);
        demand.ended(64 << 20, 20 * MILLISECOND, start);
        assert!(!demand.is_there(start), "the cache is as fast");
        demand.ended(150_000, MILLISECOND, start);
        assert!(demand.is_there(start) && demand.is_there(start + HELD / 2));
        assert!(!demand.is_there(start + HELD));
    }

    #[test]
    fn what_was_read_is_handed_on() {
        assert_eq!(Demand::new().during(1, || 7), 7);
    }
}
