//! What is believed of all tools at all sizes in one situation: one Gaussian over everything.
//!
//! The *level* of a tool at a size is the logarithm of its seconds, relative to what the built-in table
//! expects. The covariance of levels says who learns from whom: a value of one tool at one size moves
//! every level that goes along with it, and makes it surer, by as much as the two go together.
//!
//! A field starts from a guess and a covariance of somebody's (`opinions.rs`). Some things go together from
//! the start: the machine is fast or slow with every tool; it, and each tool, has a latency and a bandwidth,
//! which are two things; and what is left of a tool is the more alike the nearer two sizes are. From then on
//! values decide. Tools that were measured side by side stay bound to one another: when the one in
//! use becomes slower bit by bit, the others are expected to have become so too.
//!
//! ```text
//!   value    Kalman's step, over all levels at once
//!   time     the covariance fades to that of the start: means stay, what is known becomes doubtful
//!   cliff    a first value where no other size would have it: doubt about that tool at that size alone
//!   jump     something changed: doubt that is mostly shared, so that the value moves all who were not seen since
//! ```
//!
//! The state has a fixed size, and no variance exceeds [`VARIANCE_MAX`].

use serde::{Deserialize, Serialize};

use super::alike::Alike;
use super::place::{KNOTS, LEVELS, Place, latency_share, level, octave};
use crate::error::{Error, Kind, Result};
use crate::plan::checkpoint::tool::Tool;

/// Variance of the machine's speed around the table.
const MACHINE: f64 = 4.0;
/// Variance of its latency and of its bandwidth around that.
const MACHINE_PARTS: f64 = 1.0;
/// Variance of the latency and of the bandwidth of one tool around the machine's.
const TOOL_PARTS: f64 = 0.48;
/// Variance of one tool around these, and how alike that is at two sizes.
const TOOL: f64 = 0.06;
const TOOL_SIZES: Alike = Alike { always: 0.0, reach: 4.0 };
/// Variance of one tool at one size alone.
const ALONE: f64 = 0.0225;

/// How far the covariance comes back to that of the start with each operation in the situation.
const FADE: f64 = 2e-5;

/// How far a jump of one size is one of another, by their distance, and how alike two such are.
const JUMP_NEAR: Alike = Alike { always: 0.25, reach: 3.5 };
const JUMP_SIZES: Alike = Alike { always: 0.22, reach: 4.0 };
/// Variance that a jump adds over its square: what all tools share, and what each has alone.
const JUMP_SHARED: f64 = 0.8;
const JUMP_ALONE: f64 = 0.11;
/// A tool that was seen since is left out of a jump, up to this many knots from where it was seen.
const SEEN: Alike = Alike { always: 0.0, reach: 4.0 };

/// How much of its lowest level a tool forgets with each of its values.
const HOMESICK: f64 = 0.006;
/// What is expected of the way back to it at a jump, and the variance of that over its square.
const WAY_BACK: f64 = 0.7;
const WAY_BACK_VARIANCE: f64 = 0.7;

/// No level is more doubtful.
const VARIANCE_MAX: f64 = 25.0;
/// No time that a clock shows is further than this from the table.
const LEVEL_MAX: f64 = 60.0;

/// Levels and their covariance.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Field {
    means: Vec<f64>,
    /// The lowest of late, of tools that have values: the next change may lead back to it.
    homes: Vec<Option<f64>>,
    /// Row by row up to the diagonal.
    covariance: Vec<f64>,
}

/// The covariance before the first value, of one who doubts `tools` times as much as is usual how they
/// differ.
pub(super) fn start(tools: f64) -> Vec<f64> {
    let covariance = |(one, other): (Knot, Knot)| {
        let apart = one.1.abs_diff(other.1) as f64;
        let [one_latency, other_latency] =
            [one, other].map(|(_, knot)| latency_share(octave(knot)));
        let parts = one_latency * other_latency + (1.0 - one_latency) * (1.0 - other_latency);
        let machine = MACHINE + MACHINE_PARTS * parts;
        let tool = TOOL_PARTS * parts + TOOL * TOOL_SIZES.at(apart);
        let alone = if one == other { ALONE } else { 0.0 };
        machine + tools * (alone + if one.0 == other.0 { tool } else { 0.0 })
    };
    pairs().map(covariance).collect()
}

/// A tool's number and a knot's.
type Knot = (usize, usize);

/// All pairs of levels, in the order in which their covariances are kept.
fn pairs() -> impl Iterator<Item = (Knot, Knot)> {
    let knot = |level: usize| (level / KNOTS, level % KNOTS);
    (0..LEVELS).flat_map(move |row| (0..=row).map(move |column| (knot(row), knot(column))))
}

/// Where the covariance of two levels is kept.
const fn pair(one: usize, other: usize) -> usize {
    let (row, column) = if one >= other { (one, other) } else { (other, one) };
    row * (row + 1) / 2 + column
}

impl Field {
    /// Levels that are guessed, and how sure that is.
    pub(super) fn new(guess: impl Fn(Tool, usize) -> f64, start: &[f64]) -> Self {
        let knots = |tool: Tool| (0..KNOTS).map(move |knot| (tool, knot));
        let levels = Tool::ALL.into_iter().flat_map(knots);
        let means = levels.map(|(tool, knot)| guess(tool, knot)).collect();
        Self { means, homes: vec![None; LEVELS], covariance: start.to_vec() }
    }

    /// The level at a place.
    pub(super) fn level(&self, place: &Place) -> f64 {
        place.parts().into_iter().map(|(level, part)| part * self.means[level]).sum()
    }

    /// The covariance of the levels at two places.
    pub(super) fn covariance(&self, one: &Place, other: &Place) -> f64 {
        let with = |(level, part): (usize, f64)| part * self.with(level, other);
        one.parts().into_iter().map(with).sum()
    }

    /// How doubtful the level at a place is.
    pub(super) fn variance(&self, place: &Place) -> f64 {
        self.covariance(place, place).max(0.0)
    }

    /// The covariance of one kept level with that at a place.
    fn with(&self, level: usize, place: &Place) -> f64 {
        let kept = |(other, part)| part * self.covariance[pair(level, other)];
        place.parts().into_iter().map(kept).sum()
    }

    /// One operation more has passed.
    pub(super) fn fade(&mut self, start: &[f64]) {
        for (own, start) in self.covariance.iter_mut().zip(start) {
            *own += FADE * (start - *own);
        }
    }

    /// Forgets how sure it was.
    pub(super) fn forget(&mut self, start: &[f64]) {
        self.covariance.copy_from_slice(start);
    }

    /// Takes a value in that is right up to a variance of `noise`.
    pub(super) fn learn(&mut self, place: &Place, value: f64, noise: f64) {
        let along: Vec<f64> = (0..LEVELS).map(|level| self.with(level, place)).collect();
        let spread = self.variance(place) + noise;
        let step = (value - self.level(place)) / spread;
        for (mean, along) in self.means.iter_mut().zip(&along) {
            *mean = (*mean + along * step).clamp(-LEVEL_MAX, LEVEL_MAX);
        }
        let mut rest = &mut self.covariance[..];
        for (row, own) in along.iter().enumerate() {
            let (covariances, below) = rest.split_at_mut(row + 1);
            let gain = own / spread;
            covariances.iter_mut().zip(&along).for_each(|(one, along)| *one -= gain * along);
            rest = below;
        }
        self.settle(place.tool());
    }

    /// Remembers the lowest levels of a tool.
    fn settle(&mut self, tool: Tool) {
        for level in level(tool, 0)..=level(tool, KNOTS - 1) {
            let home = self.homes[level].map_or(f64::INFINITY, |home| home + HOMESICK);
            self.homes[level] = Some(home.min(self.means[level]));
        }
    }

    /// The first value at a size is further off by `variance` than any other size would have it.
    pub(super) fn cliff(&mut self, place: &Place, variance: f64) {
        let parts = place.parts();
        let square: f64 = parts.iter().map(|(_, part)| part * part).sum();
        for (place, (one, part)) in parts.into_iter().enumerate() {
            for (other, another) in &parts[..=place] {
                self.covariance[pair(one, *other)] += variance * part * another / (square * square);
            }
        }
        self.cut();
    }

    /// A tool's level changed by `by`, and so may all others have that were not `seen` since.
    pub(super) fn jump(&mut self, place: &Place, by: f64, seen: &[Place]) {
        let open = openness(place, seen);
        if by > 0.0 {
            self.come_home(place, &open);
        }
        for (own, (one, other)) in self.covariance.iter_mut().zip(pairs()) {
            let alone = if one.0 == other.0 { JUMP_ALONE } else { 0.0 };
            let sizes = JUMP_SIZES.at(one.1.abs_diff(other.1) as f64);
            let [one, other] = [one, other].map(|(tool, knot)| open[tool * KNOTS + knot]);
            *own += by * by * (JUMP_SHARED + alone) * sizes * one * other;
        }
        self.cut();
    }

    /// Where one tool became slower, another that had become so before may have come home.
    fn come_home(&mut self, place: &Place, open: &[f64]) {
        for tool in Tool::ALL.into_iter().filter(|tool| *tool != place.tool()) {
            let first = level(tool, 0);
            let way = |knot: usize| {
                let (mean, home) = (self.means[first + knot], self.homes[first + knot]);
                WAY_BACK * open[first + knot] * home.map_or(0.0, |home| (mean - home).max(0.0))
            };
            let ways: Vec<f64> = (0..KNOTS).map(way).collect();
            for (knot, way) in ways.iter().enumerate() {
                self.means[first + knot] -= way;
                for (other, another) in ways[..=knot].iter().enumerate() {
                    let alike = JUMP_SIZES.at((knot - other) as f64);
                    self.covariance[pair(first + knot, first + other)] +=
                        WAY_BACK_VARIANCE * alike * way * another;
                }
            }
        }
    }

    /// Cuts variances off, and covariances along with them.
    fn cut(&mut self) {
        let variance = |level: usize| self.covariance[pair(level, level)];
        if (0..LEVELS).all(|level| variance(level) <= VARIANCE_MAX) {
            return;
        }
        let factor = |level: usize| (VARIANCE_MAX / variance(level)).min(1.0).sqrt();
        let factors: Vec<f64> = (0..LEVELS).map(factor).collect();
        for (own, (one, other)) in self.covariance.iter_mut().zip(pairs()) {
            let [one, other] = [one, other].map(|(tool, knot)| factors[tool * KNOTS + knot]);
            *own *= one * other;
        }
    }

    /// Judges a state that came from outside.
    pub(super) fn check(&self) -> Result<()> {
        let is_level = |level: &f64| level.abs() <= LEVEL_MAX + 1.0;
        let whole = self.means.len() == LEVELS
            && self.homes.len() == LEVELS
            && self.covariance.len() == pair(LEVELS, 0);
        let sound = whole
            && self.means.iter().chain(self.homes.iter().flatten()).all(is_level)
            && self.is_covariance();
        if sound { Ok(()) } else { Err(Error::new(Kind::Corrupt, "a field is out of bounds")) }
    }

    /// Whether the variances can be variances, and no two levels go together more than one with itself.
    fn is_covariance(&self) -> bool {
        let variance = |(tool, knot): Knot| {
            let level = tool * KNOTS + knot;
            self.covariance[pair(level, level)]
        };
        self.covariance.iter().zip(pairs()).all(|(own, (one, other))| {
            let (one, other) = (variance(one), variance(other));
            let bounded = |variance: f64| (0.0..=VARIANCE_MAX + 1.0).contains(&variance);
            bounded(one) && bounded(other) && own * own <= one * other * (1.0 + 1e-6) + 1e-9
        })
    }
}

/// How far each level takes part in a jump: by its distance from the place, unless its tool was seen since.
fn openness(place: &Place, seen: &[Place]) -> Vec<f64> {
    let near = |tool: Tool, knot: usize| {
        let others = seen.iter().filter(|seen| seen.tool() == tool && tool != place.tool());
        let known = others.map(|seen| SEEN.at(seen.distance(knot))).fold(0.0, f64::max);
        JUMP_NEAR.at(place.distance(knot)) * (1.0 - known)
    };
    Tool::ALL.iter().flat_map(|tool| (0..KNOTS).map(|knot| near(*tool, knot))).collect()
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use std::sync::LazyLock;

    use proptest::prelude::*;

    use super::*;

    static START: LazyLock<Vec<f64>> = LazyLock::new(|| start(1.0));

    fn new() -> Field {
        Field::new(|_, _| 0.0, &START)
    }

    /// How doubtful it is by how much two levels differ.
    fn between(field: &Field, one: &Place, other: &Place) -> f64 {
        field.variance(one) + field.variance(other) - 2.0 * field.covariance(one, other)
    }

    fn place(tool: Tool, power: u32) -> Place {
        Place::of(tool, 1 << power)
    }

    /// Direct and buffered were seen at 16 MiB, as the table has them.
    fn known() -> Field {
        let mut field = new();
        for _ in 0..20 {
            for tool in [Tool::Direct, Tool::Buffered] {
                field.learn(&place(tool, 24), 0.0, 0.04);
            }
        }
        field
    }

    #[test]
    fn the_first_value_tells_how_fast_the_machine_is_and_little_of_how_tools_differ() {
        let mut field = new();
        field.learn(&place(Tool::Direct, 24), 2.0, 0.04);
        for (tool, power) in [(Tool::Direct, 30), (Tool::Torch, 24), (Tool::Torch, 30)] {
            assert!((field.level(&place(tool, power)) - 2.0).abs() < 0.4, "{tool}, {power}");
        }
        let between = |tool| between(&field, &place(Tool::Direct, 24), &place(tool, 24));
        assert!(between(Tool::Torch) > TOOL_PARTS, "{}", between(Tool::Torch));
    }

    #[test]
    fn a_size_learns_from_another_the_more_the_nearer_it_is() {
        let doubt =
            |power| between(&known(), &place(Tool::Direct, power), &place(Tool::Buffered, power));
        assert!(doubt(24) < doubt(26) && doubt(26) < doubt(30) && doubt(30) < doubt(36));
        assert!(doubt(30) < TOOL_PARTS / 2.0, "{}", doubt(30));
    }

    #[test]
    fn what_is_known_fades_and_levels_stay() {
        let mut field = known();
        let (direct, buffered) = (place(Tool::Direct, 24), place(Tool::Buffered, 24));
        let before = between(&field, &direct, &buffered);
        for _ in 0..2000 {
            field.fade(&START);
        }
        let after = between(&field, &direct, &buffered);
        assert!(before < 0.3 * after && after < TOOL_PARTS, "{before}, {after}");
        assert!(field.level(&direct).abs() < 1e-6);
        field.forget(&START);
        assert_eq!(field.covariance, new().covariance);
    }

    #[test]
    fn tools_that_were_seen_side_by_side_drift_together() {
        let mut field = known();
        for step in 1..=40 {
            (0..50).for_each(|_| field.fade(&START));
            field.learn(&place(Tool::Direct, 24), 0.02 * f64::from(step), 0.04);
        }
        let [direct, buffered] =
            [Tool::Direct, Tool::Buffered].map(|tool| field.level(&place(tool, 24)));
        assert!(direct > 0.6 && buffered > 0.7 * direct, "{direct}, {buffered}");
    }

    #[test]
    fn a_jump_takes_along_whoever_was_not_seen_since() {
        let (direct, buffered) = (place(Tool::Direct, 24), place(Tool::Buffered, 24));
        let after = |seen: &[Place]| {
            let mut field = known();
            field.jump(&direct, 1.0, seen);
            field.learn(&direct, 1.0, 0.04);
            (field.level(&direct), field.level(&buffered), field.variance(&buffered))
        };
        let (moved, along, doubt) = after(&[]);
        assert!(moved > 0.9 && along > 0.7 && doubt > 0.05, "{moved}, {along}, {doubt}");
        let (moved, along, doubt) = after(&[direct, buffered]);
        assert!(moved > 0.9 && along < 0.1 && doubt < 0.05, "{moved}, {along}, {doubt}");
    }

    #[test]
    fn a_tool_that_had_become_slow_may_have_come_home_when_another_becomes_so() {
        let (direct, buffered) = (place(Tool::Direct, 24), place(Tool::Buffered, 24));
        let mut field = known();
        field.jump(&direct, 1.0, &[buffered]);
        field.learn(&direct, 1.0, 0.01);
        let slow = field.level(&direct);
        field.jump(&buffered, 0.5, &[]);
        let hoped = field.level(&direct);
        assert!(hoped < 0.6 * slow, "{slow}, {hoped}");
        field.jump(&buffered, -0.5, &[]);
        assert!((field.level(&direct) - hoped).abs() < 1e-12, "only when one becomes slower");
    }

    #[test]
    fn a_cliff_is_about_one_tool_at_one_size() {
        let (large, small) = (place(Tool::Direct, 30), place(Tool::Direct, 24));
        let mut field = known();
        field.cliff(&large, 4.0);
        field.learn(&large, 2.0, 0.04);
        assert!(field.level(&large) > 1.8, "{}", field.level(&large));
        assert!(field.level(&small) < 0.1, "{}", field.level(&small));
    }

    /// Whether no mixture of levels has less than no variance, up to rounding.
    fn is_positive(field: &Field) -> bool {
        let mut factor = vec![vec![0.0; LEVELS]; LEVELS];
        for row in 0..LEVELS {
            for column in 0..=row {
                let known: f64 = (0..column).map(|at| factor[row][at] * factor[column][at]).sum();
                let rest = field.covariance[pair(row, column)] - known;
                if row == column {
                    if rest < -1e-9 {
                        return false;
                    }
                    factor[row][row] = (rest + 1e-9).max(1e-12).sqrt();
                } else {
                    factor[row][column] = rest / factor[column][column];
                }
            }
        }
        true
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn whatever_happens_the_field_stays_one_and_comes_back_from_json_as_it_was(
            steps in prop::collection::vec((0usize..5, 8u32..40, -4f64..4.0, 0usize..6), 1..60),
        ) {
            let mut field = new();
            for (tool, power, value, what) in steps {
                let place = place(Tool::ALL[tool], power);
                match what {
                    0 => field.jump(&place, value, &[]),
                    1 => field.cliff(&place, value * value),
                    2 => (0..500).for_each(|_| field.fade(&START)),
                    _ => field.learn(&place, value, 1e-3),
                }
                prop_assert!(field.check().is_ok());
                prop_assert!(is_positive(&field));
            }
            let json = serde_json::to_string(&field).unwrap();
            prop_assert_eq!(serde_json::from_str::<Field>(&json).unwrap(), field);
        }
    }

    #[test]
    fn a_field_that_cannot_be_one_is_refused() {
        let wrong = |change: fn(&mut Field)| {
            let mut field = known();
            change(&mut field);
            field.check().is_err()
        };
        assert!(!wrong(|_| {}));
        assert!(wrong(|field| field.means.truncate(3)));
        assert!(wrong(|field| field.means[3] = f64::NAN));
        assert!(wrong(|field| field.homes[0] = Some(99.0)));
        assert!(wrong(|field| field.covariance[0] = -1.0));
        assert!(wrong(|field| field.covariance[1] = 9.0));
    }
}
