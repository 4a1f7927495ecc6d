//! How long an operation will take, as far as is known.
//!
//! Where there are values of the very class, they decide. Elsewhere three sources are weighed by how
//! sure they are: the same tool at the nearest class below and above, each the less sure the further
//! away, and what the other tools show of this machine's speed here.

use super::estimate::{DOUBT_MAX, Estimate, NOISE_START};
use super::{Bandit, prior};
use crate::plan::tools::ask::Situation;
use crate::plan::tools::class::SizeClass;
use crate::plan::tools::tool::Tool;

/// Variance that a level gains with the square of the classes that lie between: tools bend where small
/// objects become large ones, each at its own place.
const CLASS_VARIANCE: f64 = 0.02;
/// Variance of the machine's speed around the built-in table, before the first operation.
const MACHINE_VARIANCE: f64 = 4.0;

/// Seconds of one operation, believed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Belief {
    /// The median.
    pub(super) seconds: f64,
    /// Of the logarithm, between this tool and others.
    pub(super) variance: f64,
    /// Variance of a single time.
    pub(super) noise: f64,
    /// Whether there are values of the very class.
    pub(super) known: bool,
}

/// A level and its variance.
type Weighed = (f64, f64);

impl Bandit {
    pub(super) fn belief(&self, situation: Situation, tool: Tool, size: u64) -> Belief {
        let class = SizeClass::of(size);
        let expected = prior::ln_seconds(situation, tool, size);
        let seconds = |level: f64| (expected + level).exp();
        let tick = self.tick(situation);
        if let Some(own) = self.estimates.get(&(situation, tool, class)) {
            let variance = own.variance_at(tick);
            let noise = own.noise();
            return Belief { seconds: seconds(own.level), variance, noise, known: true };
        }
        let (level, variance, _) = self.guess(situation, tool, class);
        Belief { seconds: seconds(level), variance, noise: NOISE_START, known: false }
    }

    /// Level, variance and common variance of a tool without values in the class.
    pub(super) fn guess(
        &self,
        situation: Situation,
        tool: Tool,
        class: SizeClass,
    ) -> (f64, f64, f64) {
        let others = Tool::ALL.into_iter().filter(|other| *other != tool);
        let others = others.flat_map(|other| self.around(situation, other, class));
        let others = others.map(|(level, variance)| (level, variance + DOUBT_MAX));
        let (speed, common) = weigh(others.chain([(0.0, MACHINE_VARIANCE)]));
        let sources = self.around(situation, tool, class);
        let (level, variance) = weigh(sources.chain([(speed, DOUBT_MAX)]));
        // The further the tool is known itself, the less it hangs on the machine's speed.
        let hangs = variance / DOUBT_MAX;
        (level, variance, common * hangs * hangs)
    }

    /// The tool's estimates at the class, or else at the nearest below and above, carried over.
    fn around(
        &self,
        situation: Situation,
        tool: Tool,
        class: SizeClass,
    ) -> impl Iterator<Item = Weighed> {
        let tick = self.tick(situation);
        let key = |class| (situation, tool, class);
        let below = self.estimates.range(key(SizeClass::MIN)..=key(class)).next_back();
        let exact = below.is_some_and(|((.., found), _)| *found == class);
        let above = self.estimates.range(key(class)..=key(SizeClass::MAX)).next();
        let weighed = move |((.., found), estimate): (&super::Key, &Estimate)| {
            let far = f64::from(found.distance(class));
            let level = estimate.level + self.slope(situation, *found, class);
            (level, estimate.variance_at(tick) + CLASS_VARIANCE * far * far)
        };
        below.into_iter().chain(above.filter(|_| !exact)).map(weighed)
    }

    /// How the levels of tools that are known at both classes differ between them: where all small
    /// objects take longer than the table expects, so will those of a tool not tried yet.
    fn slope(&self, situation: Situation, from: SizeClass, to: SizeClass) -> f64 {
        let level = |tool, class| Some(self.estimates.get(&(situation, tool, class))?.level);
        let slopes =
            Tool::ALL.into_iter().filter_map(|tool| Some(level(tool, to)? - level(tool, from)?));
        let (sum, count) =
            slopes.fold((0.0, 0.0), |(sum, count), slope| (sum + slope, count + 1.0));
        if count > 0.0 { sum / count } else { 0.0 }
    }
}

/// The mean by precision, and its variance.
fn weigh(sources: impl Iterator<Item = Weighed>) -> Weighed {
    let add = |(sum, precision): (f64, f64), (level, variance): Weighed| {
        (sum + level / variance, precision + 1.0 / variance)
    };
    let (sum, precision) = sources.fold((0.0, 0.0), add);
    (sum / precision, 1.0 / precision)
}
