//! Two opinions of a machine, and how far to believe either.
//!
//! ```text
//!   like     tools differ as the built-in table has it, bends and all, give or take a quarter
//!   unlike   tools differ by whatever it may be: little is expected of the table, and little held on to
//!   odds     how much better the first values of tools at sizes fitted the one than the other
//! ```
//!
//! One Gaussian can't be both. If it is sure of the table, a machine on which the table is wrong is never
//! looked at closely; if it is not, every machine pays for looks at tools that are slow everywhere, and
//! the first few slow moments of a good tool outweigh the table. Each opinion is a field of its own, and
//! learns all values. What is believed is their mixture: where they disagree, that is doubt too, which
//! makes looks worth their cost; and looks decide.
//!
//! A first value is held against an opinion as far as it lies from it, but for what stands above, which may
//! be an outlier. That an opinion was right about latencies says little of bandwidths: small objects
//! speak against the table as loudly as large ones, but for it only as far as they are large.

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use super::field::{Field, start};
use super::place::{Place, octave};
use super::prior;
use super::track::OUTLIER;
use crate::error::{Error, Kind, Result};
use crate::plan::checkpoint::ask::Situation;

/// Chance that a machine is unlike those of the table, before anything is known of it.
const UNLIKE: f64 = 0.7;
/// No logarithm of the odds goes further: an opinion can come back.
const ODDS_MAX: f64 = 8.0;

/// Covariances of the two at the start: how far they doubt by how much tools differ.
static LIKE_START: LazyLock<Vec<f64>> = LazyLock::new(|| start(0.1));
static UNLIKE_START: LazyLock<Vec<f64>> = LazyLock::new(|| start(1.0));

/// Both, of one situation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Opinions {
    like: Field,
    unlike: Field,
    /// Logarithm of the odds that the machine is unlike the table.
    odds: f64,
}

impl Opinions {
    pub(super) fn new(situation: Situation) -> Self {
        let unlike = |tool, knot| prior::ln_unlike(situation, tool, octave(knot));
        Self {
            like: Field::new(|_, _| 0.0, &LIKE_START),
            unlike: Field::new(unlike, &UNLIKE_START),
            odds: odds_at_start(),
        }
    }

    /// Chance that the machine is unlike the table.
    fn unlike(&self) -> f64 {
        1.0 / (1.0 + (-self.odds).exp())
    }

    fn both(&mut self) -> [&mut Field; 2] {
        [&mut self.like, &mut self.unlike]
    }

    /// The level at a place.
    pub(super) fn level(&self, place: &Place) -> f64 {
        self.like.level(place) + self.unlike() * self.apart(place)
    }

    /// How far the two disagree about it.
    fn apart(&self, place: &Place) -> f64 {
        self.unlike.level(place) - self.like.level(place)
    }

    /// The covariance of the levels at two places.
    pub(super) fn covariance(&self, one: &Place, other: &Place) -> f64 {
        let unlike = self.unlike();
        (1.0 - unlike) * self.like.covariance(one, other)
            + unlike * self.unlike.covariance(one, other)
            + unlike * (1.0 - unlike) * self.apart(one) * self.apart(other)
    }

    /// How doubtful the level at a place is.
    pub(super) fn variance(&self, place: &Place) -> f64 {
        self.covariance(place, place).max(0.0)
    }

    /// How doubtful it is by how much the levels at two places differ.
    pub(super) fn variance_between(&self, one: &Place, other: &Place) -> f64 {
        let both = self.covariance(one, one) + self.covariance(other, other);
        (both - 2.0 * self.covariance(one, other)).max(0.0)
    }

    /// One operation more has passed.
    pub(super) fn fade(&mut self) {
        self.like.fade(&LIKE_START);
        self.unlike.fade(&UNLIKE_START);
    }

    /// Forgets how sure it was, and of whom.
    pub(super) fn forget(&mut self) {
        self.like.forget(&LIKE_START);
        self.unlike.forget(&UNLIKE_START);
        self.odds = odds_at_start();
    }

    /// Takes in the first value of a tool at a size, which is right up to a variance of `noise`. As far as
    /// it is further off than an opinion would have it, that is a cliff, of that tool at that size alone.
    pub(super) fn meet(&mut self, place: &Place, value: f64, noise: f64) {
        let told = fit(&self.unlike, place, value, noise) - fit(&self.like, place, value, noise);
        let told = if told < 0.0 { told * (1.0 - place.latency_share()) } else { told };
        self.odds = (self.odds + told).clamp(-ODDS_MAX, ODDS_MAX);
        for field in self.both() {
            let step = value - field.level(place);
            field.cliff(place, (step * step - field.variance(place)).max(0.0));
            field.learn(place, value, noise);
        }
    }

    /// Takes in a value that is right up to a variance of `noise`.
    pub(super) fn learn(&mut self, place: &Place, value: f64, noise: f64) {
        self.both().into_iter().for_each(|field| field.learn(place, value, noise));
    }

    /// A tool's level changed by `by`, and so may all others have that were not `seen` since.
    pub(super) fn jump(&mut self, place: &Place, by: f64, seen: &[Place]) {
        self.both().into_iter().for_each(|field| field.jump(place, by, seen));
    }

    /// Judges a state that came from outside.
    pub(super) fn check(&self) -> Result<()> {
        if !(-ODDS_MAX..=ODDS_MAX).contains(&self.odds) {
            return Err(Error::new(Kind::Corrupt, "the odds of opinions are out of bounds"));
        }
        self.like.check()?;
        self.unlike.check()
    }
}

fn odds_at_start() -> f64 {
    (UNLIKE / (1.0 - UNLIKE)).ln()
}

/// How well a value fits what a field would have it: the logarithm of its density, up to a constant.
fn fit(field: &Field, place: &Place, value: f64, noise: f64) -> f64 {
    let step = value - field.level(place);
    let noise = if step > 0.0 { noise.max(OUTLIER * step * step) } else { noise };
    let spread = field.variance(place) + noise;
    -0.5 * (spread.ln() + step * step / spread)
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use crate::plan::checkpoint::tool::Tool;

    const NOISE: f64 = 0.01;

    /// The machine takes twice as long as the table has it, and each tool by a factor more or less.
    fn met(values: &[(Tool, u32, f64)]) -> Opinions {
        let mut opinions = Opinions::new(Situation::Cold);
        for (tool, power, factor) in values {
            opinions.meet(&Place::of(*tool, 1 << power), (2.0 * factor).ln(), NOISE);
        }
        opinions
    }

    #[test]
    fn values_as_the_table_has_them_are_for_it_and_say_what_others_will_be() {
        let opinions =
            met(&[(Tool::Direct, 24, 1.0), (Tool::Numpy, 24, 1.0), (Tool::Torch, 24, 1.0)]);
        assert!(opinions.unlike() < UNLIKE / 2.0, "{}", opinions.unlike());
        let level = opinions.level(&Place::of(Tool::Numpy, 1 << 30));
        assert!((level - 2f64.ln()).abs() < 0.3, "the cliff of the table: {level}");
    }

    #[test]
    fn values_as_it_does_not_have_them_are_against_it() {
        let [before, after] =
            [1, 2].map(|values| met(&[(Tool::Direct, 24, 1.0), (Tool::Torch, 24, 0.2)][..values]));
        assert!(after.unlike() > 0.95, "{}", after.unlike());
        for power in [22, 26, 30] {
            let place = Place::of(Tool::Torch, 1 << power);
            let moved = after.level(&place) - before.level(&place);
            assert!(moved < -0.5, "2^{power}: {moved}");
        }
    }

    #[test]
    fn small_objects_speak_against_the_table_but_hardly_for_it() {
        let small = |factor| met(&[(Tool::Direct, 12, 1.0), (Tool::Torch, 12, factor)]).unlike();
        assert!((small(1.0) - UNLIKE).abs() < 0.02, "{}", small(1.0));
        assert!(small(0.3) > UNLIKE + 0.1, "{}", small(0.3));
    }

    #[test]
    fn where_the_two_disagree_is_doubt_and_values_end_it() {
        let mut opinions = met(&[(Tool::Direct, 24, 1.0)]);
        let [direct, numpy] = [Tool::Direct, Tool::Numpy].map(|tool| Place::of(tool, 1 << 30));
        let apart = opinions.apart(&numpy).abs();
        let before = opinions.variance_between(&direct, &numpy);
        assert!(apart > 0.5 && before > UNLIKE * (1.0 - UNLIKE) * apart * apart * 0.5, "{before}");
        for _ in 0..20 {
            opinions.meet(&numpy, 1.0, NOISE);
            opinions.learn(&direct, 0.5, NOISE);
        }
        assert!(opinions.apart(&numpy).abs() < 0.1 * apart);
        assert!(opinions.variance_between(&direct, &numpy) < 0.05 * before);
    }

    #[test]
    fn what_is_forgotten_is_doubtful_as_at_the_start() {
        let mut opinions = met(&[(Tool::Direct, 24, 1.0), (Tool::Torch, 24, 0.2)]);
        opinions.forget();
        let place = Place::of(Tool::Torch, 1 << 24);
        let new = Opinions::new(Situation::Cold);
        assert!((opinions.unlike() - UNLIKE).abs() < 1e-12);
        assert!(opinions.like.variance(&place) >= new.like.variance(&place) - 1e-12);
        assert!(opinions.level(&place) < new.level(&place), "what was learned stays");
    }

    #[test]
    fn odds_from_outside_are_judged() {
        let mut opinions = Opinions::new(Situation::Warm);
        assert!(opinions.check().is_ok());
        for odds in [f64::NAN, 9.0, f64::NEG_INFINITY] {
            opinions.odds = odds;
            assert!(opinions.check().is_err(), "{odds}");
        }
    }
}
