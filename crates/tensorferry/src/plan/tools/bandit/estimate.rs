//! What is believed of one tool, at one size class, in one situation.
//!
//! The *level* is the logarithm of the seconds, relative to what the built-in table expects. It
//! wanders: each operation in the situation adds `WANDER` to the variance, so that an old
//! measurement weighs less than a new one and a tool not tried for long becomes doubtful. The update
//! is Kalman's, made robust:
//!
//! - A value far *above* is probably something else that kept the disk busy. Its noise is taken to grow
//!   with its distance, so it moves the level little and leaves the doubt large: another look soon.
//! - A few such values in a row, on one side, are no accident: the level *jumps* to their mean, and the
//!   caller spreads the news. So does a single one far *below*: nothing makes a disk faster by accident.
//! - The *first* value of a class is no surprise, however far it lies: before it there was only a guess
//!   from other sizes, and those know of no cliff. The guess is doubted as far as it was wrong, so the
//!   value outweighs it at once; the doubt that remains says that it may have been an outlier.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Kind, Result};

/// Variance that a level gains with each operation in its situation.
pub const WANDER: f64 = 7e-5;
/// Operations in a situation in which a tool that nobody looks at changes once, on average, to what it
/// might as well have been from the start.
const CHANGE_EVERY: f64 = 10_000.0;
/// No doubt is greater than that between tools of which nothing is known: a factor of about two.
pub const DOUBT_MAX: f64 = 0.5;
/// Noise of a tool of which little is known, as a variance: disks have outliers.
pub(super) const NOISE_START: f64 = 0.04;
const NOISE_MIN: f64 = 1e-4;
const NOISE_MAX: f64 = 4.0;
/// Far more than any run has.
const VALUES_MAX: u64 = 1 << 52;
/// Far more than any variance that comes about.
const VARIANCE_MAX: f64 = 100.0;
/// No time that a clock shows is further than this from the table, as a logarithm.
const LEVEL_MAX: f64 = 60.0;
/// The noise is a mean over that many values at least, and at most.
const NOISE_WINDOW: (f64, f64) = (8.0, 64.0);
/// Standard deviations beyond which a value surprises.
const SURPRISE: f64 = 2.0;
/// Standard deviations by which a single value lies below when it is a fall.
const FALL: f64 = 4.0;
/// Surprises in a row, on one side, that make a jump. Disks have outliers that come in threes.
pub(super) const STREAK: i8 = 5;

/// Noise of a value above the level, over the square of its distance.
const OUTLIER: f64 = 0.4;
/// Least noise of a value above the level, over the variance of the level.
const HALF_TOLD: f64 = 0.25;
/// Variance after a jump, over its square: whatever came that fast may pass as fast.
const PASSING: f64 = 0.2;
/// Variance that a jump of one tool gives to others, over the square of what is not shared of it.
const SHAKEN: f64 = 0.25;
/// How much of its lowest level an estimate forgets with each value.
const HOMESICK: f64 = 0.005;

/// A level, and how sure it is.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Estimate {
    pub(super) level: f64,
    /// Of the level, at `tick`.
    variance: f64,
    /// The variance right after the last own value; what came on top may be shared with neighbours.
    settled: f64,
    /// Of a single value around the level.
    noise: f64,
    tick: u64,
    /// When the last own value came.
    seen: u64,
    pub(super) values: u64,
    /// Surprises in a row; negative for those below.
    streak: i8,
    streak_sum: f64,
    streak_from: u64,
    /// The lowest level of late; the next change may lead back to it.
    home: f64,
}

/// What a value did to an estimate.
pub(super) enum Moved {
    /// The value stood `step` away, where values spread by `spread` and the level had `wandered`; the
    /// latter two are variances. A `surprise` is the whole distance.
    Followed { step: f64, spread: f64, wandered: f64, surprise: Option<f64> },
    /// The level was wrong by `by`, as values from `from` on showed.
    Jumped { by: f64, from: u64 },
}

impl Estimate {
    /// Before the first own value.
    pub(super) fn new(level: f64, variance: f64, tick: u64) -> Self {
        let noise = NOISE_START;
        Self {
            level,
            variance,
            settled: variance,
            noise,
            tick,
            seen: tick,
            values: 0,
            streak: 0,
            streak_sum: 0.0,
            streak_from: tick,
            home: level,
        }
    }

    pub(super) fn variance_at(&self, tick: u64) -> f64 {
        let wandered = WANDER * tick.saturating_sub(self.tick) as f64;
        (self.variance + wandered).min(DOUBT_MAX)
    }

    /// Chance that something changed since the last own value, by more than a level wanders.
    pub(super) fn changed_at(&self, tick: u64) -> f64 {
        let age = tick.saturating_sub(self.seen) as f64;
        1.0 - (-age / CHANGE_EVERY).exp()
    }

    pub(super) fn noise(&self) -> f64 {
        self.noise
    }

    /// Takes a value in.
    pub(super) fn follow(&mut self, value: f64, tick: u64) -> Moved {
        if self.values == 0 {
            return self.begin(value, tick);
        }
        self.age(tick);
        let step = value - self.level;
        let spread = self.variance + self.noise;
        self.values += 1;
        let surprise = (step * step > SURPRISE * SURPRISE * spread).then_some(step);
        self.seen = tick;
        if let Some(by) = self.surprised(value, surprise.is_some(), tick) {
            return Moved::Jumped { by, from: self.streak_from };
        }
        let (bound, before) = (SURPRISE * spread.sqrt(), self.level);
        let fell = step < -FALL * spread.sqrt();
        let step = if fell { step } else { step.clamp(-bound, bound) };
        self.learn_noise(step.clamp(-bound, bound));
        let wandered = self.variance - self.settled;
        let spread = self.update(step);
        self.home = self.level.min(self.home + HOMESICK);
        if fell {
            return Moved::Jumped { by: self.level - before, from: tick };
        }
        Moved::Followed { step, spread, wandered, surprise }
    }

    /// Takes the first value in.
    fn begin(&mut self, value: f64, tick: u64) -> Moved {
        let step = value - self.level;
        self.variance = self.variance.max(step * step);
        let spread = self.update(step);
        (self.home, self.seen, self.values) = (self.level, tick, 1);
        Moved::Followed { step, spread, wandered: 0.0, surprise: None }
    }

    /// Kalman's step; gives the variance of the value around the level before.
    fn update(&mut self, step: f64) -> f64 {
        let noise = self.noise_of(step);
        let spread = self.variance + noise;
        self.level += self.variance / spread * step;
        self.variance = (self.variance * noise / spread).min(DOUBT_MAX);
        self.settled = self.variance;
        spread
    }

    /// What stands above may be an outlier, the more so the further, and never tells all.
    fn noise_of(&self, step: f64) -> f64 {
        if step <= 0.0 {
            return self.noise;
        }
        self.noise.max(OUTLIER * step * step).max(HALF_TOLD * self.variance)
    }

    /// The same tool at a size near by moved: this one wandered with it, as far as `likeness` goes. That
    /// makes it no surer: sizes may part.
    pub(super) fn lean(&mut self, moved: (f64, f64, f64), likeness: f64, tick: u64) {
        let (step, spread, wandered) = moved;
        self.age(tick);
        let own = (self.variance - self.settled).max(0.0);
        let shared = likeness * (own * wandered.max(0.0)).sqrt();
        self.shift(shared / spread * step);
    }

    /// Something changed at `from`: this level did too by `likeness` of the jump, give or take the rest,
    /// unless it has been seen since.
    pub(super) fn shake(
        &mut self,
        jump: f64,
        from: u64,
        (likeness, nearness): (f64, f64),
        tick: u64,
    ) {
        self.age(tick);
        let mut doubt = SHAKEN * (1.0 - likeness * likeness) * jump * jump;
        if self.seen < from {
            // Where one became slower, another that had become so may have come home.
            let back = if jump > 0.0 { (self.level - self.home).max(0.0) / 2.0 } else { 0.0 };
            self.shift(likeness * jump - back);
            doubt += back * back;
        }
        self.doubt(nearness * doubt);
    }

    /// Adds to the variance, up to the ceiling.
    pub(super) fn doubt(&mut self, more: f64) {
        self.variance = (self.variance + more).min(DOUBT_MAX);
    }

    fn shift(&mut self, by: f64) {
        self.level = (self.level + by).clamp(-LEVEL_MAX, LEVEL_MAX);
    }

    fn age(&mut self, tick: u64) {
        self.variance = self.variance_at(tick);
        self.tick = tick;
    }

    /// Counts surprises on one side; the last of a streak gives the size of the jump.
    fn surprised(&mut self, value: f64, surprise: bool, tick: u64) -> Option<f64> {
        let side = if value > self.level { 1 } else { -1 };
        if !surprise || self.streak.signum() == -side {
            (self.streak, self.streak_sum) = (0, 0.0);
        }
        if !surprise {
            return None;
        }
        if self.streak == 0 {
            self.streak_from = tick;
        }
        self.streak += side;
        self.streak_sum += value;
        if self.streak.abs() < STREAK {
            return None;
        }
        let jump = self.streak_sum / f64::from(STREAK) - self.level;
        self.jump(jump, f64::from(STREAK));
        Some(jump)
    }

    /// The level was wrong by `by`, as `values` values told.
    pub(super) fn jump(&mut self, by: f64, values: f64) {
        self.shift(by);
        self.home = self.home.min(self.level);
        let told = self.noise.max(NOISE_START) / values;
        self.variance = told.max(PASSING * by * by).min(DOUBT_MAX);
        self.settled = self.variance;
        (self.streak, self.streak_sum) = (0, 0.0);
    }

    fn learn_noise(&mut self, step: f64) {
        let (least, most) = NOISE_WINDOW;
        let window = (least + self.values as f64).min(most);
        let seen = (step * step - self.variance).max(NOISE_MIN);
        self.noise = (self.noise + (seen - self.noise) / window).min(NOISE_MAX);
    }

    /// Judges a state that came from outside.
    pub(super) fn check(&self, tick: u64) -> Result<()> {
        let sound = self.tick.max(self.seen).max(self.streak_from) <= tick
            && self.level.abs() <= LEVEL_MAX
            && (0.0..=VARIANCE_MAX).contains(&self.variance)
            && (0.0..=VARIANCE_MAX).contains(&self.settled)
            && (NOISE_MIN..=NOISE_MAX).contains(&self.noise)
            && self.streak.abs() < STREAK
            && self.streak_sum.abs() <= 1e4
            && self.home.abs() <= LEVEL_MAX + 1.0
            && (1..=VALUES_MAX).contains(&self.values);
        if sound { Ok(()) } else { Err(Error::new(Kind::Corrupt, "an estimate is out of bounds")) }
    }
}
