//! The clocks of a step: wall time, and the time that compute had.
//!
//! The wall clock says how long a step took. The *compute clock* stands still while compute waits for this
//! path, so that it says what the step would take without it. Profiles hold times of the compute clock.
//!
//! Several threads may compute. The compute clock stands still while any of them waits, so that it never
//! goes back.

use std::time::Instant;

use crate::sync::{now, seconds_since};

/// The clocks of a step.
#[derive(Debug)]
pub(super) struct StepClock {
    began: Instant,
    forward: Pass,
    /// From the first use of a tensor on.
    backward: Option<Pass>,
    /// Threads that wait.
    waiting: usize,
    /// Since when at least one waits.
    waits_since: Option<Instant>,
}

/// A forward or a backward pass.
#[derive(Debug)]
struct Pass {
    began: Instant,
    /// Wall seconds until its last event.
    seconds: f64,
    /// Seconds in which compute waited.
    stall: f64,
}

/// What a pass took, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct PassSeconds {
    /// Of the wall clock.
    pub wall: f64,
    /// Those of them in which compute waited.
    pub stall: f64,
    /// The others.
    pub compute: f64,
}

impl Pass {
    fn begin() -> Self {
        Self { began: now(), seconds: 0.0, stall: 0.0 }
    }

    /// Whether it has had an event.
    fn is_marked(&self) -> bool {
        self.seconds > 0.0
    }

    /// Compute seconds since it began; the clock stands still from `waits_since` on.
    fn compute_clock(&self, waits_since: Option<Instant>) -> f64 {
        // Read once: two looks would make it go back by the time between them.
        let until = waits_since.unwrap_or_else(now);
        (until.saturating_duration_since(self.began).as_secs_f64() - self.stall).max(0.0)
    }

    fn mark(&mut self) {
        self.seconds = seconds_since(self.began);
    }

    fn seconds(&self) -> PassSeconds {
        let (wall, stall) = (self.seconds, self.stall);
        PassSeconds { wall, stall, compute: (wall - stall).max(0.0) }
    }
}

impl StepClock {
    pub fn begin() -> Self {
        Self { began: now(), forward: Pass::begin(), backward: None, waiting: 0, waits_since: None }
    }

    pub fn is_backward(&self) -> bool {
        self.backward.is_some()
    }

    /// The first use is about to come.
    pub fn begin_backward(&mut self) {
        if !self.forward.is_marked() {
            self.forward.mark();
        }
        self.backward = Some(Pass::begin());
    }

    /// A forward pass is over. Backward may run inside the caller's context: then forward has ended when
    /// backward began.
    pub fn end_forward(&mut self) {
        if !self.is_backward() {
            self.forward.mark();
        }
    }

    /// The compute clock of forward, now.
    pub fn in_forward(&self) -> f64 {
        self.forward.compute_clock(self.waits_since)
    }

    /// An event of backward: its compute clock, now. `None` before backward.
    pub fn mark_backward(&mut self) -> Option<f64> {
        let backward = self.backward.as_mut()?;
        let at = backward.compute_clock(self.waits_since);
        backward.mark();
        Some(at)
    }

    /// A thread begins to wait. Returns whether it is the only one.
    pub fn wait_begins(&mut self) -> bool {
        self.waiting += 1;
        let is_first = self.waiting == 1;
        if is_first {
            self.waits_since = Some(now());
        }
        is_first
    }

    /// A thread that waited goes on. Returns whether nobody waits any more.
    pub fn wait_ends(&mut self) -> bool {
        self.waiting = self.waiting.saturating_sub(1);
        let since = self.waits_since.take_if(|_| self.waiting == 0);
        if let Some(since) = since {
            self.backward.as_mut().unwrap_or(&mut self.forward).stall += seconds_since(since);
        }
        since.is_some()
    }

    pub fn forward(&self) -> PassSeconds {
        self.forward.seconds()
    }

    pub fn backward(&self) -> PassSeconds {
        self.backward.as_ref().map_or_else(PassSeconds::default, Pass::seconds)
    }

    /// Wall seconds since the step began.
    pub fn age(&self) -> f64 {
        seconds_since(self.began)
    }

    /// Seconds that compute has waited.
    pub fn stall(&self) -> f64 {
        self.forward().stall + self.backward().stall
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    fn pause() {
        std::thread::sleep(std::time::Duration::from_millis(2));
    }

    #[test]
    fn forward_ends_where_backward_begins_inside_the_context() {
        let mut clock = StepClock::begin();
        pause();
        clock.begin_backward();
        let forward = clock.forward().wall;
        assert!(forward > 0.0);
        pause();
        clock.end_forward();
        assert_eq!(clock.forward().wall.to_bits(), forward.to_bits());
    }

    #[test]
    fn the_compute_clock_stands_still_while_any_thread_waits() {
        let mut clock = StepClock::begin();
        pause();
        assert!(clock.wait_begins());
        let before = clock.in_forward();
        assert!(!clock.wait_begins(), "another one waits already");
        pause();
        assert!(!clock.wait_ends(), "one still waits");
        assert_eq!(clock.in_forward().to_bits(), before.to_bits());
        assert!(clock.wait_ends());
        assert!(clock.in_forward() >= before);
        let wall = seconds_since(clock.forward.began);
        assert!(clock.stall() > 0.0 && clock.stall() <= wall, "{}", clock.stall());
    }

    #[test]
    fn a_stall_counts_for_the_pass_in_which_it_ends() {
        let mut clock = StepClock::begin();
        assert_eq!(clock.mark_backward(), None);
        clock.begin_backward();
        clock.wait_begins();
        pause();
        clock.wait_ends();
        assert!(clock.forward().stall <= 0.0 && clock.backward().stall > 0.0);
    }
}
