//! How fast work that nobody is in a hurry for goes on while somebody waits for the disk: a pure state
//! machine, told what time it is.
//!
//! A disk with a deep queue of large writes makes each read wait behind all of them. So while somebody
//! waits, few bytes are written at once, in small pieces, and not more than a share of what was written a
//! second while nobody waited. The share is that of the time in which no read is under way: what others do
//! not take. Reads that are held up take more of it, so that they are not held up further. It is never below
//! [`SHARE`]: a save ends in at most three times its time, however long others read. Until it is known how
//! fast the disk is, [`LOOK_BYTES`] are written at full speed.

use std::time::Duration;

/// The share of its own speed that remains in any case. Somewhat above a third: it also has to begin and to end.
const SHARE: f64 = 0.36;

/// Bytes of one piece while somebody waits.
pub(super) const PIECE_BYTES: usize = 256 << 10;

/// Bytes under way while somebody waits.
const IN_FLIGHT_BYTES: u64 = 1 << 20;

/// Bytes by which the speed is measured.
const LOOK_BYTES: u64 = 64 << 20;

/// What was missed is made up for, up to so much: timers and threads are late.
const LATE_MAX: Duration = Duration::from_millis(20);

/// Over so long it is seen how much of the time others take.
const WINDOW: Duration = Duration::from_millis(50);

/// Moments are counted from any fixed one.
#[derive(Debug)]
pub(super) struct Pace {
    in_flight: u64,
    /// The share of its own speed that it has while somebody waits.
    share: f64,
    /// Since when it is seen what others take, and for how long they had waited until then.
    window: Option<(Duration, Duration)>,
    /// Bytes a second while nobody waits.
    speed: Option<f64>,
    /// Since when there was always something under way at full speed, and the bytes that have ended.
    look: Option<(Duration, u64)>,
    /// When the next piece may start.
    next: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        let (share, window, next) = (SHARE, None, Duration::ZERO);
        Self { in_flight: 0, share, window, speed: None, look: None, next }
    }
}

impl Pace {
    /// Says whether somebody waits, and for how long somebody has waited so far.
    pub fn tell(&mut self, now: Duration, somebody_waits: bool, waited: Duration) {
        if !somebody_waits {
            (self.share, self.window) = (SHARE, None);
            return;
        }
        let (since, before) = *self.window.get_or_insert((now, waited));
        let passed = now.saturating_sub(since);
        if passed >= WINDOW {
            let taken = waited.saturating_sub(before).as_secs_f64() / passed.as_secs_f64();
            self.share = (1.0 - taken).max(SHARE);
            self.window = Some((now, waited));
        }
    }

    /// Whether it steps aside now for those who wait.
    pub fn steps_aside(&self, somebody_waits: bool) -> bool {
        somebody_waits && self.speed.is_some()
    }

    /// How long the next piece has to wait; `None` if it may start. What is under way comes to its end
    /// before the longest wait does.
    pub fn pause(&self, now: Duration, somebody_waits: bool) -> Option<Duration> {
        if !self.steps_aside(somebody_waits) {
            return None;
        }
        if self.in_flight + PIECE_BYTES as u64 > IN_FLIGHT_BYTES && self.in_flight > 0 {
            return Some(LATE_MAX);
        }
        self.next.checked_sub(now).filter(|pause| !pause.is_zero())
    }

    pub fn started(&mut self, now: Duration, bytes: u64, somebody_waits: bool) {
        if self.in_flight == 0 {
            self.look = Some((now, 0));
        }
        self.in_flight += bytes;
        if let Some(speed) = self.speed.filter(|_| somebody_waits) {
            let takes = Duration::from_secs_f64(bytes as f64 / (speed * self.share));
            self.next = self.next.max(now.saturating_sub(LATE_MAX)) + takes;
        }
    }

    pub fn ended(&mut self, now: Duration, bytes: u64, somebody_waits: bool) {
        self.in_flight -= bytes;
        if self.steps_aside(somebody_waits) {
            self.look = None;
            return;
        }
        let (since, ended) = self.look.unwrap_or((now, 0));
        self.look = Some((since, ended + bytes));
        if ended + bytes >= LOOK_BYTES && now > since {
            let seen = (ended + bytes) as f64 / now.saturating_sub(since).as_secs_f64();
            // Who shares the disk sees less than it can do.
            let known = self.speed.map_or(seen, |known| seen.max(0.75 * known + 0.25 * seen));
            self.speed = Some(known.max(1.0));
            self.look = Some((now, 0));
        }
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    const MIB: u64 = 1 << 20;
    /// Of the disk: so many bytes a second, one after the other.
    const SPEED: u64 = 1 << 30;

    /// A disk that writes one piece after the other.
    #[derive(Default)]
    struct Disk {
        now: Duration,
        free: Duration,
        under_way: VecDeque<(Duration, u64)>,
        written: u64,
        deepest: u64,
        /// For how long somebody has waited so far, and which share of the time from now on.
        waited: Duration,
        taken: f64,
    }

    impl Disk {
        /// Writes as much as the pace allows until `end`.
        fn write(&mut self, pace: &mut Pace, end: Duration, somebody_waits: bool) -> u64 {
            let before = self.written;
            self.deepest = 0;
            while self.now < end {
                pace.tell(self.now, somebody_waits, self.waited);
                let piece = if pace.steps_aside(somebody_waits) { PIECE_BYTES as u64 } else { MIB };
                let pause = pace.pause(self.now, somebody_waits);
                if pause.is_none() && pace.in_flight < 24 * MIB {
                    pace.started(self.now, piece, somebody_waits);
                    let takes = Duration::from_secs_f64(piece as f64 / SPEED as f64);
                    self.free = self.free.max(self.now) + takes;
                    self.under_way.push_back((self.free, piece));
                    self.deepest = self.deepest.max(pace.in_flight);
                    continue;
                }
                let landing = self.under_way.front().map(|(at, _)| *at);
                let due = pause.map(|pause| self.now + pause);
                let next = landing.into_iter().chain(due).min().unwrap().max(self.now);
                self.waited += next.saturating_sub(self.now).mul_f64(self.taken);
                self.now = next;
                while let Some((_, bytes)) = self.under_way.pop_front_if(|(at, _)| *at <= self.now)
                {
                    pace.ended(self.now, bytes, somebody_waits);
                    self.written += bytes;
                }
            }
            self.written - before
        }
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn while_somebody_waits_it_keeps_a_share_and_little_is_under_way() {
        let mut disk = Disk { taken: 1.0, ..Disk::default() };
        let mut pace = Pace::default();
        let alone = disk.write(&mut pace, SECOND, false);
        assert!(alone > SPEED / 10 * 9 && disk.deepest > 20 * MIB);
        disk.write(&mut pace, 2 * SECOND, true);
        let beside = disk.write(&mut pace, 12 * SECOND, true) / 10;
        assert!(3 * beside > SPEED, "a save takes more than three times as long: {beside}");
        assert!(beside < SPEED / 10 * 4, "readers have the rest: {beside}");
        assert!(disk.deepest <= IN_FLIGHT_BYTES, "{}", disk.deepest);
        let alone = disk.write(&mut pace, 13 * SECOND, false);
        assert!(alone > SPEED / 10 * 9, "nobody waits any more: {alone}");
    }

    #[test]
    fn who_reads_now_and_then_takes_as_much_of_its_speed() {
        for taken in [0.1, 0.3, 0.5] {
            let (mut disk, mut pace) = (Disk { taken, ..Disk::default() }, Pace::default());
            disk.write(&mut pace, 2 * SECOND, false);
            disk.write(&mut pace, 3 * SECOND, true);
            let beside = disk.write(&mut pace, 13 * SECOND, true) / 10;
            let left = beside as f64 / SPEED as f64;
            assert!((left - (1.0 - taken)).abs() < 0.1, "{taken} taken, {left} left");
            assert!(disk.deepest <= IN_FLIGHT_BYTES, "{}", disk.deepest);
        }
    }

    #[test]
    fn it_learns_the_speed_of_the_disk_also_where_somebody_waits_from_the_beginning() {
        let mut disk = Disk { taken: 1.0, ..Disk::default() };
        let mut pace = Pace::default();
        let written = disk.write(&mut pace, SECOND, true);
        assert!((SPEED / 3..SPEED / 2).contains(&written), "{written}");
    }

    #[test]
    fn a_piece_larger_than_what_may_be_under_way_starts_alone() {
        let mut pace = Pace { speed: Some(1e9), ..Pace::default() };
        assert_eq!(pace.pause(SECOND, true), None);
        pace.started(SECOND, 8 * MIB, true);
        assert!(pace.pause(9 * SECOND, true).is_some() && pace.pause(9 * SECOND, false).is_none());
        pace.ended(9 * SECOND, 8 * MIB, true);
        assert_eq!(pace.pause(9 * SECOND, true), None);
    }

    #[test]
    fn time_that_passed_unused_is_not_saved_up() {
        let mut pace = Pace { speed: Some(SPEED as f64), ..Pace::default() };
        let mut started = 0;
        let now = 3600 * SECOND;
        while pace.pause(now, true).is_none() {
            pace.started(now, PIECE_BYTES as u64, true);
            pace.ended(now, PIECE_BYTES as u64, true);
            started += PIECE_BYTES as u64;
        }
        assert!(started < SPEED / 50, "{started}");
    }
}
