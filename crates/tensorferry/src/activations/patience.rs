//! For how long a caller waits for room while nothing moves.
//!
//! As long as chunks are under way, or somebody gives memory back, room will come. If nothing moves, only
//! another thread of the caller's can bring it: one in the middle of an operation will, one that keeps what it
//! was given will not. So the wait ends with an error after [`PATIENCE`].
//!
//! Time counts from one look to the next, at most [`LOOK_EVERY`] each: a look that comes late, because the whole
//! process was stopped, counts for no more than one that comes in time.

use std::time::{Duration, Instant};

/// How long a caller waits for others to give memory back when nothing moves any more.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// How often a caller that waits looks whether anything moves.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(250);

/// The wait of those who wait for room.
#[derive(Debug, Default)]
pub(super) struct Patience {
    /// For how long nothing has moved, and when that was looked at.
    still: Option<(Duration, Instant)>,
}

impl Patience {
    /// Something moved: who waits waits on.
    pub fn renew(&mut self) {
        self.still = None;
    }

    /// Somebody who waits looks. Returns for how long nothing has moved.
    pub fn look(&mut self, is_moving: bool, now: Instant) -> Duration {
        if is_moving {
            self.renew();
            return Duration::ZERO;
        }
        let (still, looked) = self.still.unwrap_or((Duration::ZERO, now));
        let still = still + now.saturating_duration_since(looked).min(LOOK_EVERY);
        self.still = Some((still, now));
        still
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn who_waits_is_patient_as_long_as_something_moves() {
        let (mut patience, start) = (Patience::default(), Instant::now());
        assert_eq!(patience.look(false, start), Duration::ZERO);
        assert_eq!(patience.look(false, start + LOOK_EVERY / 2), LOOK_EVERY / 2);
        assert_eq!(patience.look(true, start + LOOK_EVERY), Duration::ZERO);
        assert_eq!(patience.look(false, start + LOOK_EVERY * 2), Duration::ZERO, "from now on");
        assert_eq!(patience.look(false, start + LOOK_EVERY * 3), LOOK_EVERY);
        patience.renew();
        assert_eq!(patience.look(false, start + LOOK_EVERY * 4), Duration::ZERO);
    }

    #[test]
    fn patience_ends_after_enough_looks() {
        let (mut patience, start) = (Patience::default(), Instant::now());
        let looks =
            (0..1000).position(|look| patience.look(false, start + LOOK_EVERY * look) > PATIENCE);
        assert_eq!(looks, Some(41), "ten seconds of four looks, and the first one");
    }

    #[test]
    fn a_process_that_was_stopped_has_waited_for_no_longer_than_between_two_looks() {
        let (mut patience, start) = (Patience::default(), Instant::now());
        patience.look(false, start);
        assert!(patience.look(false, start + PATIENCE * 2) <= LOOK_EVERY);
    }
}
