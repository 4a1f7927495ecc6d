//! How long an operation will take, as far as is known.
//!
//! Where there are values of the very class, they decide. Elsewhere three sources follow one another,
//! each a correction of the one before: the machine's line, fitted to all other tools; the tool's own
//! line, which starts from the machine's; and how far the tool lies off its line at the nearest classes
//! below and above, the less the further away. How sure all that is comes out of the same fit.

use super::estimate::{DOUBT_MAX, Estimate, NOISE_START};
use super::line::{Line, MISFIT, Point};
use super::{Bandit, prior};
use crate::plan::tools::ask::Situation;
use crate::plan::tools::class::SizeClass;
use crate::plan::tools::tool::Tool;

/// Variance that a tool's distance from its line gains with each class that lies between: tools bend
/// where small objects become large ones, each at its own place.
const CLASS_VARIANCE: f64 = 0.02;
/// Variance between a machine's latency and its bandwidth, each around the built-in table.
const PARTS_VARIANCE: f64 = 1.0;
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
    /// Chance that something changed since the last value of the very class.
    pub(super) changed: f64,
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
            return Belief {
                seconds: seconds(own.level),
                variance,
                noise,
                known: true,
                changed: own.changed_at(tick),
            };
        }
        let (level, variance, _) = self.guess(situation, tool, class);
        Belief { seconds: seconds(level), variance, noise: NOISE_START, known: false, changed: 0.0 }
    }

    /// Level, variance and common variance of a tool without values in the class.
    pub(super) fn guess(
        &self,
        situation: Situation,
        tool: Tool,
        class: SizeClass,
    ) -> (f64, f64, f64) {
        let machine = self.machine(situation, tool);
        let own = self.points(situation, tool);
        let line = Line::new(machine.factors(), DOUBT_MAX, 0.0).fit(&own);
        let latency = prior::latency_share(situation, tool, class.start());
        let (level, variance) = line.at(latency);
        let (residual, misfit) = self.residual(situation, tool, class, &line);
        let variance = (variance + misfit).min(DOUBT_MAX);
        // The further the tool is known itself, the less it hangs on the machine's speed.
        let hangs = variance / DOUBT_MAX;
        (level + residual, variance, machine.at(latency).1.min(MACHINE_VARIANCE) * hangs * hangs)
    }

    /// What the other tools show of this machine's latency and bandwidth.
    fn machine(&self, situation: Situation, tool: Tool) -> Line {
        let others = Tool::ALL.into_iter().filter(|other| *other != tool);
        let points = others.flat_map(|other| self.points(situation, other));
        let doubted = |point: Point| Point { variance: point.variance + DOUBT_MAX, ..point };
        let points: Vec<_> = points.map(doubted).collect();
        Line::new([0.0; 2], PARTS_VARIANCE, MACHINE_VARIANCE).fit(&points)
    }

    fn points(&self, situation: Situation, tool: Tool) -> Vec<Point> {
        let tick = self.tick(situation);
        let key = |class| (situation, tool, class);
        let own = self.estimates.range(key(SizeClass::MIN)..=key(SizeClass::MAX));
        let point = |((.., class), estimate): (&super::Key, &Estimate)| Point {
            latency: prior::latency_share(situation, tool, class.start()),
            level: estimate.level,
            variance: estimate.variance_at(tick),
        };
        own.map(point).collect()
    }

    /// How far the nearest classes below and above lie off the line, and how sure that is here.
    fn residual(
        &self,
        situation: Situation,
        tool: Tool,
        class: SizeClass,
        line: &Line,
    ) -> (f64, f64) {
        let tick = self.tick(situation);
        let key = |class| (situation, tool, class);
        let below = self.estimates.range(key(SizeClass::MIN)..=key(class)).next_back();
        let above = self.estimates.range(key(class)..=key(SizeClass::MAX)).next();
        let sources = below.into_iter().chain(above).map(|((.., found), estimate)| {
            let latency = prior::latency_share(situation, tool, found.start());
            let far = f64::from(found.distance(class));
            let off = estimate.level - line.at(latency).0;
            (off, estimate.variance_at(tick) + CLASS_VARIANCE * far)
        });
        weigh(sources.chain([(0.0, MISFIT)]))
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
