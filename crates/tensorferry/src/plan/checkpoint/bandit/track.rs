//! The values of one tool, at one size class, in one situation: how they scatter, and when they surprise.
//!
//! - A value far *above* what is believed is probably something else that kept the disk busy. Its noise is
//!   taken to grow with its distance, so it moves the level little and leaves the doubt large.
//! - A few such values in a row, on one side, are no accident: the level has *jumped*. So it has with a
//!   single one far *below*: nothing makes a disk faster by accident.
//! - The *first* value is no surprise, however far it lies: before it there was only what other sizes
//!   say, and those know of no cliff.

use serde::{Deserialize, Serialize};

use super::alarm::Alarm;
use crate::error::{Error, Kind, Result};
use crate::plan::checkpoint::class::SizeClass;

/// Noise of a tool before anything is known, as a variance: disks have outliers.
pub(super) const NOISE_START: f64 = 0.04;
const NOISE_MIN: f64 = 1e-4;
const NOISE_MAX: f64 = 4.0;
/// The noise is a mean over that many values at least, and at most.
const NOISE_WINDOW: (f64, f64) = (8.0, 64.0);
/// Far more than any run has.
const VALUES_MAX: u64 = 1 << 52;
/// Standard deviations beyond which a value surprises.
const SURPRISE: f64 = 2.7;
/// Standard deviations by which a single value lies below when it is a fall.
const FALL: f64 = 4.0;

/// Surprises in a row, on one side, that make a jump of one size alone.
const STREAK: i8 = 7;

/// Noise of a value above the level, over the square of its distance.
pub(super) const OUTLIER: f64 = 0.4;
/// Least noise of a value above the level, over the variance of the level.
const HALF_TOLD: f64 = 0.18;
/// Noise of what a jump shows, over its square: whatever came that fast may pass as fast.
const PASSING: f64 = 0.23;

/// What is known of the values, beside the level that they show.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Track {
    /// Variance of a single value around the level.
    noise: f64,
    values: u64,
    /// When the last came.
    seen: u64,
    alarm: Alarm,
}

/// What a value shows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Shown {
    /// The first, right up to `noise`.
    First { noise: f64 },
    /// The level lies `step` away, give or take `noise`; the whole distance, if that is a surprise.
    Step { step: f64, noise: f64, surprise: Option<f64> },
    /// The level has jumped.
    Jump(Jump),
}

/// The level was wrong by `by`, as values from `from` on showed, give or take `noise`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Jump {
    pub(super) by: f64,
    pub(super) noise: f64,
    pub(super) from: u64,
}

impl Track {
    /// Before the first value, where values are expected to scatter by `noise`.
    pub(super) fn new(class: SizeClass, tick: u64, noise: f64) -> Self {
        Self { noise, values: 0, seen: tick, alarm: Alarm::new(class) }
    }

    pub(super) fn noise(&self) -> f64 {
        self.noise
    }

    pub(super) fn values(&self) -> u64 {
        self.values
    }

    /// When the last value came.
    pub(super) fn seen(&self) -> u64 {
        self.seen
    }

    /// Takes a value in that lies `step` away from a level with that `variance`.
    pub(super) fn follow(
        &mut self,
        class: SizeClass,
        step: f64,
        variance: f64,
        tick: u64,
    ) -> Shown {
        self.values += 1;
        self.seen = tick;
        if self.values == 1 {
            return Shown::First { noise: self.noise_of(step, variance.max(step * step)) };
        }
        let spread = variance + self.noise;
        let (bound, fall) = (SURPRISE * spread.sqrt(), FALL * spread.sqrt());
        let surprise = (step.abs() > bound).then_some(step);
        let jump = self.alarm.note(class, surprise, tick, STREAK);
        let clamped = step.clamp(-bound, bound);
        self.scatter(clamped, variance);
        if let Some((by, from)) = jump {
            return Shown::Jump(self.jump(by, from, f64::from(STREAK)));
        }
        if step < -fall {
            return Shown::Jump(self.jump(step, tick, 1.0));
        }
        Shown::Step { step: clamped, noise: self.noise_of(clamped, variance), surprise }
    }

    /// A jump that so many values tell of.
    pub(super) fn jump(&self, by: f64, from: u64, values: f64) -> Jump {
        Jump { by, noise: self.noise.max(NOISE_START) / values + PASSING * by * by, from }
    }

    /// What stands above may be an outlier, the more so the further, and never tells all.
    fn noise_of(&self, step: f64, variance: f64) -> f64 {
        if step <= 0.0 {
            return self.noise;
        }
        self.noise.max(OUTLIER * step * step).max(HALF_TOLD * variance)
    }

    fn scatter(&mut self, step: f64, variance: f64) {
        let (least, most) = NOISE_WINDOW;
        let window = (least + self.values as f64).min(most);
        let seen = (step * step - variance).max(NOISE_MIN);
        self.noise = (self.noise + (seen - self.noise) / window).min(NOISE_MAX);
    }

    /// Judges a state that came from outside.
    pub(super) fn check(&self, tick: u64) -> Result<()> {
        let sound = self.seen <= tick
            && (NOISE_MIN..=NOISE_MAX).contains(&self.noise)
            && (1..=VALUES_MAX).contains(&self.values);
        if !sound {
            return Err(Error::new(Kind::Corrupt, "a track is out of bounds"));
        }
        self.alarm.check(STREAK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VARIANCE: f64 = 0.01;

    /// Sure of its level after many values.
    fn settled() -> Track {
        let mut track = Track::new(SizeClass::of(1 << 20), 0, NOISE_START);
        for tick in 1..=40 {
            follow(&mut track, 0.0, tick);
        }
        track
    }

    fn follow(track: &mut Track, step: f64, tick: u64) -> Shown {
        track.follow(SizeClass::of(1 << 20), step, VARIANCE, tick)
    }

    #[test]
    fn the_first_value_is_believed_however_far_it_lies() {
        let mut track = Track::new(SizeClass::of(1 << 20), 0, NOISE_START);
        let Shown::First { noise } = follow(&mut track, 2.0, 1) else { unreachable!() };
        assert!(noise < 4.0 - VARIANCE, "{noise}");
    }

    #[test]
    fn an_outlier_above_tells_little_and_a_value_far_below_is_a_fall() {
        let Shown::Step { step, noise, surprise } = follow(&mut settled(), 3.0, 41) else {
            unreachable!()
        };
        assert!(
            step < 1.0 && noise > NOISE_START / 2.0 && surprise == Some(3.0),
            "{step}, {noise}"
        );
        let Shown::Jump(Jump { by, from, .. }) = follow(&mut settled(), -3.0, 41) else {
            unreachable!()
        };
        assert_eq!((by, from), (-3.0, 41));
    }

    #[test]
    fn surprises_in_a_row_are_a_jump_by_their_mean() {
        let mut track = settled();
        let last = (41..).take(STREAK as usize).map(|tick| follow(&mut track, 2.0, tick)).last();
        let Some(Shown::Jump(Jump { by, from, .. })) = last else { panic!("{last:?}") };
        assert!((by - 2.0).abs() < 1e-12 && from == 41, "{by}, {from}");
    }

    #[test]
    fn values_that_scatter_surprise_later() {
        let mut track = settled();
        let quiet = track.noise();
        for tick in 41..200 {
            let step = if tick % 2 == 0 { 0.4 } else { -0.4 };
            follow(&mut track, step, tick);
        }
        assert!(track.noise() > 4.0 * quiet, "{quiet}, {}", track.noise());
        assert!(matches!(follow(&mut track, 0.6, 200), Shown::Step { surprise: None, .. }));
    }
}
