//! How long an operation will take, as far as is known, and who would learn from it.

use super::alike::Alike;
use super::opinions::Opinions;
use super::place::Place;
use super::track::{NOISE_START, Track};
use super::{Bandit, prior};
use crate::plan::checkpoint::ask::Situation;
use crate::plan::checkpoint::class::SizeClass;
use crate::plan::checkpoint::tool::Tool;

/// Operations in a situation in which a tool that nobody looks at changes once, on average, to what it
/// might as well have been from the start.
const CHANGE_EVERY: f64 = 10_000.0;
/// How far what is seen of a tool at one size is seen at another, by the classes between.
const SEEN: Alike = Alike { always: 0.3, reach: 16.0 };
/// How far what all values scatter by counts for a tool that has none, by the classes between; and so many
/// values are made up, that scatter as is usual.
const SCATTER: Alike = Alike { always: 0.0, reach: 16.0 };
const SCATTER_MADE_UP: f64 = 4.0;
/// No noise makes a mean longer than this one: a factor of about 1.6.
const NOISE_COUNTED_MAX: f64 = 1.0;

/// Seconds of one operation, believed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Belief<'a> {
    /// The mean over the noise.
    pub(super) seconds: f64,
    /// Variance of the logarithm of a single time.
    pub(super) noise: f64,
    place: Place,
    class: SizeClass,
    situation: Situation,
    bandit: &'a Bandit,
}

impl<'a> Belief<'a> {
    fn field(&self) -> &'a Opinions {
        self.bandit.field(self.situation)
    }

    /// How doubtful it is, by itself.
    pub(super) fn variance(&self) -> f64 {
        self.field().variance(&self.place)
    }

    /// How doubtful it is by how much this differs from another tool.
    pub(super) fn variance_beside(&self, other: &Self) -> f64 {
        self.field().variance_between(&self.place, &other.place)
    }

    /// Whether both are about the same tool at the same size.
    pub(super) fn is_of(&self, other: &Self) -> bool {
        self.place == other.place
    }

    /// How far a look at this is expected to move `other`: a standard deviation, with the sign of the
    /// correlation.
    pub(super) fn tells(&self, other: &Self) -> f64 {
        self.field().covariance(&self.place, &other.place) / (self.variance() + self.noise).sqrt()
    }

    /// Chance that the tool has changed since it was seen; one never seen has not. What was seen of it at
    /// sizes near by counts as far as they are near.
    pub(super) fn changed(&self) -> f64 {
        let tick = self.bandit.tick(self.situation);
        let age = |track: &Track| tick.saturating_sub(track.seen()) as f64;
        let key = |class| (self.situation, self.place.tool(), class);
        let Some(own) = self.bandit.tracks.get(&key(self.class)).map(age) else { return 0.0 };
        let tracks = self.bandit.tracks.range(key(SizeClass::MIN)..=key(SizeClass::MAX));
        let ages = tracks.map(|((.., class), track)| {
            let near = SEEN.at(class.distance(self.class).into());
            near * age(track) + (1.0 - near) * own
        });
        1.0 - (-ages.fold(own, f64::min) / CHANGE_EVERY).exp()
    }
}

impl Bandit {
    pub(super) fn belief(&self, situation: Situation, tool: Tool, size: u64) -> Belief<'_> {
        let (place, class) = (Place::of(tool, size), SizeClass::of(size));
        let track = self.tracks.get(&(situation, tool, class));
        let noise = track.map_or_else(|| self.noise_around(situation, class), Track::noise);
        let median = prior::ln_seconds(situation, tool, size) + self.field(situation).level(&place);
        let seconds = (median + noise.min(NOISE_COUNTED_MAX) / 2.0).exp();
        Belief { seconds, noise, place, class, situation, bandit: self }
    }

    /// By how much values of a tool will scatter that has none at this size: machines are noisy with every
    /// tool, and one value on a noisy machine must not be taken for the truth.
    fn noise_around(&self, situation: Situation, class: SizeClass) -> f64 {
        let tracks = self.tracks.iter().filter(|((found, ..), _)| *found == situation);
        let made_up = (NOISE_START * SCATTER_MADE_UP, SCATTER_MADE_UP);
        let (sum, weight) = tracks.fold(made_up, |(sum, weight), ((.., other), track)| {
            let values = SCATTER.at(other.distance(class).into()) * track.values() as f64;
            (sum + values * track.noise(), weight + values)
        });
        (sum / weight).min(NOISE_COUNTED_MAX)
    }
}
