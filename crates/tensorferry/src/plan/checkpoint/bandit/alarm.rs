//! Surprises in a row of one tool in one situation.
//!
//! When the machine changes, every size shows it. Waiting until each has shown it a few times by itself
//! would cost those few times for each; so surprises are counted over neighbouring sizes together, and for
//! each size too: a change of one size alone would drown in what its neighbours do as expected.

use serde::{Deserialize, Serialize};

use super::REACH;
use crate::error::{Error, Kind, Result};
use crate::plan::checkpoint::class::SizeClass;

/// Surprises in a row, on one side and near one another, that make a jump of a tool. Disks have outliers that
/// come in threes.
pub(super) const STREAK: i8 = 5;

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Alarm {
    /// Negative for values below.
    streak: i8,
    /// Of the distances between value and level.
    sum: f64,
    /// Where the last surprise was.
    class: SizeClass,
    /// When the first was.
    from: u64,
}

impl Alarm {
    pub(super) fn new(class: SizeClass) -> Self {
        Self { streak: 0, sum: 0.0, class, from: 0 }
    }

    /// Takes note of a value that stood `surprise` away, or as expected; the last of `streak` in a row gives how
    /// far they stood away on average, and when the first was.
    pub(super) fn note(
        &mut self,
        class: SizeClass,
        surprise: Option<f64>,
        tick: u64,
        streak: i8,
    ) -> Option<(f64, u64)> {
        let near = class.distance(self.class) <= REACH;
        let Some(step) = surprise else {
            // What is as expected far away says nothing of here.
            if near {
                *self = Self::new(class);
            }
            return None;
        };
        let side = if step > 0.0 { 1 } else { -1 };
        if !near || self.streak.signum() == -side {
            *self = Self::new(class);
        }
        if self.streak == 0 {
            self.from = tick;
        }
        (self.streak, self.sum, self.class) = (self.streak + side, self.sum + step, class);
        if self.streak.abs() < streak {
            return None;
        }
        let told = (self.sum / f64::from(streak), self.from);
        *self = Self::new(class);
        Some(told)
    }

    /// Judges a state that came from outside.
    pub(super) fn check(&self, streak: i8) -> Result<()> {
        if self.streak.abs() < streak && self.sum.abs() <= 1e4 {
            return Ok(());
        }
        Err(Error::new(Kind::Corrupt, "an alarm is out of bounds"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn surprises_at_neighbouring_sizes_add_up_and_what_is_as_expected_ends_them() {
        let class = |power: u32| SizeClass::of(1 << power);
        let mut alarm = Alarm::new(class(20));
        let mut tick = 0;
        let mut note = |power, surprise| {
            tick += 1;
            alarm.note(class(power), surprise, tick, STREAK)
        };
        for power in [20, 21, 22, 21] {
            assert_eq!(note(power, Some(1.0)), None);
        }
        assert_eq!(note(2, None), None, "far away");
        assert_eq!(note(21, Some(6.0)), Some((2.0, 1)));
        for _ in 0..4 {
            assert_eq!(note(20, Some(1.0)), None);
        }
        assert_eq!(note(21, None), None);
        assert_eq!(note(20, Some(1.0)), None, "from the start");
        for _ in 0..4 {
            assert_eq!(note(20, Some(-1.0)), None, "the other side");
        }
        assert_eq!(note(20, Some(-6.0)), Some((-2.0, 13)));
    }
}
