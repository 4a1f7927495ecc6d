//! The link between host and device, as arithmetic: no clock, no threads.
//!
//! A link has two directions that do not disturb each other (full duplex); this module describes
//! one of them. It behaves as a copy engine does: one transfer at a time, in the order of arrival,
//! each of which takes `latency + bytes / bandwidth`. The latency counts as busy time, because an
//! engine that sets up a copy moves no other bytes meanwhile.
//!
//! Times are durations since an epoch that the caller chooses. The emulated device hands in real
//! time and sleeps until the answers; a simulator hands in its own.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// One direction of a link: how fast it is and until when it is taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    speed: Speed,
    free_at: Duration,
}

/// When a transfer has the link to itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slot {
    /// The first moment.
    pub start: Duration,
    /// The moment of arrival, and the first at which the link is free again.
    pub done: Duration,
}

impl Slot {
    /// How long the link is taken.
    pub fn time(self) -> Duration {
        self.done.saturating_sub(self.start)
    }
}

impl Link {
    /// A link that has been idle so far.
    pub fn new(speed: Speed) -> Self {
        Self { speed, free_at: Duration::ZERO }
    }

    /// Takes the link for `bytes` that are ready to go at `ready`, behind everything reserved
    /// before.
    pub fn reserve(&mut self, ready: Duration, bytes: u64) -> Slot {
        let start = ready.max(self.free_at);
        let done = start.saturating_add(self.speed.time(bytes));
        self.free_at = done;
        Slot { start, done }
    }

    /// The first moment at which the link is free, as far as is known.
    pub fn free_at(&self) -> Duration {
        self.free_at
    }
}

/// How fast one direction of a link is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Speed {
    /// Bytes a second once a transfer runs.
    pub bytes_per_second: u64,
    /// What each transfer costs on top of its bytes.
    pub latency: Duration,
}

impl Speed {
    /// How long a transfer of `bytes` takes on a free link, rounded up to a nanosecond.
    pub fn time(self, bytes: u64) -> Duration {
        let rate = u128::from(self.bytes_per_second.max(1));
        let nanoseconds = (u128::from(bytes) * 1_000_000_000).div_ceil(rate);
        let moving = Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX));
        self.latency.saturating_add(moving)
    }
}

/// From where to where.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// From the host to the device.
    In,
    /// From the device to the host.
    Out,
}

/// What the link must carry when a kernel uses `bytes` of host memory in place.
///
/// A kernel's loads use a link less well than a copy engine: they come in small pieces and wait
/// for one another. `slowdown` says by which factor; 1 is as good as a copy.
pub fn direct_bytes(bytes: u64, slowdown: f64) -> u64 {
    // The cast saturates, and a factor below one would promise more than the link has.
    (bytes as f64 * slowdown.max(1.0)).ceil() as u64
}

/// How long a kernel takes that computes for `compute` on `bytes` of host memory in place, on an
/// otherwise idle link: compute and transfer overlap, so the longer of the two.
pub fn direct_time(speed: Speed, bytes: u64, slowdown: f64, compute: Duration) -> Duration {
    compute.max(speed.time(direct_bytes(bytes, slowdown)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MICRO: Duration = Duration::from_micros(1);
    const SPEED: Speed =
        Speed { bytes_per_second: 4_000_000_000, latency: Duration::from_micros(20) };

    #[test]
    fn a_transfer_takes_its_latency_and_its_bytes() {
        assert_eq!(SPEED.time(0), 20 * MICRO);
        assert_eq!(SPEED.time(4_000_000), 1020 * MICRO);
        assert_eq!(SPEED.time(1), 20 * MICRO + Duration::from_nanos(1), "rounded up");
    }

    #[test]
    fn transfers_wait_for_their_turn_and_an_idle_link_starts_at_once() {
        let mut link = Link::new(SPEED);
        let first = link.reserve(5 * MICRO, 400_000);
        assert_eq!(first, Slot { start: 5 * MICRO, done: 125 * MICRO });
        let queued = link.reserve(6 * MICRO, 400_000);
        assert_eq!(queued, Slot { start: 125 * MICRO, done: 245 * MICRO });
        let late = link.reserve(1000 * MICRO, 0);
        assert_eq!(late, Slot { start: 1000 * MICRO, done: 1020 * MICRO });
        assert_eq!(link.free_at(), 1020 * MICRO);
    }

    #[test]
    fn absurd_sizes_saturate_instead_of_wrapping() {
        let slow = Speed { bytes_per_second: 1, latency: Duration::MAX };
        assert_eq!(slow.time(u64::MAX), Duration::MAX);
        let mut link = Link::new(slow);
        link.reserve(Duration::ZERO, u64::MAX);
        assert_eq!(link.reserve(MICRO, 1).done, Duration::MAX);
        assert_eq!(Speed { bytes_per_second: 0, ..SPEED }.time(0), SPEED.latency);
        assert_eq!(direct_bytes(u64::MAX, 2.0), u64::MAX);
    }

    #[test]
    fn direct_access_costs_the_longer_of_compute_and_its_share_of_the_link() {
        let bytes = 4_000_000;
        assert_eq!(direct_time(SPEED, bytes, 1.0, MICRO), 1020 * MICRO);
        assert_eq!(direct_time(SPEED, bytes, 2.5, MICRO), 2520 * MICRO);
        assert_eq!(direct_time(SPEED, bytes, 2.5, 9000 * MICRO), 9000 * MICRO);
        assert_eq!(direct_bytes(1000, 0.5), 1000, "never better than a copy");
        assert_eq!(direct_bytes(1000, f64::NAN), 1000);
    }

    proptest! {
        #[test]
        fn slots_never_overlap_never_start_early_and_last_exactly_their_time(
            jobs in prop::collection::vec((0u64..1_000_000, 0u64..1 << 32), 1..40),
            rate in 1u64..1 << 40,
        ) {
            let speed = Speed { bytes_per_second: rate, latency: 3 * MICRO };
            let mut link = Link::new(speed);
            let mut last = Duration::ZERO;
            for (ready, bytes) in jobs {
                let ready = Duration::from_nanos(ready);
                let slot = link.reserve(ready, bytes);
                prop_assert!(slot.start >= ready && slot.start >= last);
                prop_assert!(slot.start == ready || slot.start == last, "no idle gap");
                prop_assert_eq!(slot.time(), speed.time(bytes));
                last = slot.done;
            }
        }
    }
}
