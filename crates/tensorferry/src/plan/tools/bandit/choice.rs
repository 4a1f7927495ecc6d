//! The tool believed best, or a look at another.

use super::belief::Belief;
use super::estimate::DOUBT_MAX;
use super::ledger::{Ledger, Looker};
use super::value::expected_saving;
use crate::plan::tools::tool::Tool;

/// A tool, and what its choice will cost by the goal.
#[derive(Debug, Clone, Copy)]
pub(super) struct Candidate {
    pub(super) tool: Tool,
    /// Present where the goal counts it.
    pub(super) write: Option<Belief>,
    pub(super) read: Option<Belief>,
}

impl Candidate {
    fn parts(&self) -> impl Iterator<Item = Belief> {
        self.write.into_iter().chain(self.read)
    }

    pub(super) fn seconds(&self) -> f64 {
        self.parts().map(|part| part.seconds).sum()
    }

    fn is_known(&self) -> bool {
        self.parts().all(|part| part.known)
    }

    /// Variance of the logarithm of the seconds, and how far a single look is expected to move it, from
    /// those parts in which `other` differs: two writers of one format are read alike.
    fn doubt(&self, other: &Self) -> (f64, f64) {
        let alike = self.write.is_some() && self.tool.format() == other.tool.format();
        let parts = || self.write.into_iter().chain(self.read.filter(|_| !alike));
        let square = (self.seconds() * self.seconds()).max(f64::MIN_POSITIVE);
        let sum = |of: fn(&Belief) -> f64| {
            parts().map(|part| of(&part) * part.seconds * part.seconds).sum::<f64>() / square
        };
        let told = |part: &Belief| part.variance * part.variance / (part.variance + part.noise);
        (sum(|part| part.variance), sum(told).sqrt())
    }

    fn look(&self, best: &Self, ahead: &Ahead) -> Look {
        let (variance, told) = self.doubt(best);
        let gap = (self.seconds() / best.seconds()).ln();
        let changed = self.parts().map(|part| part.changed).fold(0.0, f64::max);
        let elsewhere = if self.is_known() { 0.0 } else { ahead.elsewhere };
        let worth = (1.0 - changed) * expected_saving(gap, told) * (ahead.here + elsewhere)
            + changed * expected_saving(gap, DOUBT_MAX.sqrt()) * ahead.lasting;
        let cost = (self.seconds() * (variance / 2.0).exp() - best.seconds()).max(0.0);
        Look { tool: self.tool, variance, cost, net: worth - cost }
    }
}

/// Seconds of operations to come that may profit from a look.
struct Ahead {
    here: f64,
    /// Here too, if what was found lasts as long again as all has lasted.
    lasting: f64,
    /// At other sizes: they learn from a tool's first look at this one.
    elsewhere: f64,
}

/// A choice of a tool that is not believed best, to learn more of it.
struct Look {
    tool: Tool,
    variance: f64,
    /// Seconds beyond those of the best.
    cost: f64,
    /// Seconds that it saves in the end, beyond its cost.
    net: f64,
}

/// The choice among at least one candidate; a look is paid from the ledger. Operations `elsewhere`, in
/// seconds, profit from first looks too.
pub(super) fn choose(
    candidates: &[Candidate],
    ledger: &mut Ledger,
    elsewhere: f64,
    looker: Looker,
) -> Option<Tool> {
    let by_seconds = |a: &&Candidate, b: &&Candidate| a.seconds().total_cmp(&b.seconds());
    let best = candidates.iter().min_by(by_seconds)?;
    // First it must show what it is believed to be: the others are judged by it.
    if !best.is_known() {
        return Some(best.tool);
    }
    let ahead = Ahead {
        here: ledger.horizon() * best.seconds(),
        lasting: ledger.lasted() * best.seconds(),
        elsewhere,
    };
    let others = candidates.iter().filter(|candidate| candidate.tool != best.tool);
    let looks = others.map(|candidate| candidate.look(best, &ahead));
    // Only the one that is worth most: cheap looks at near equals would eat up what it is saving for.
    let look = looks.max_by(|a, b| a.net.total_cmp(&b.net));
    let look = look.filter(|look| look.net > 0.0);
    let look = look.filter(|look| ledger.pay(looker, look.tool, look.variance, look.cost));
    Some(look.map_or(best.tool, |look| look.tool))
}
