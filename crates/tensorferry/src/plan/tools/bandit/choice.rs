//! The tool believed best, or a look at another.

use super::belief::Belief;
use super::ledger::Ledger;
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

    /// Variance of the logarithm of the seconds, from those parts in which `other` differs: two
    /// writers of one format are read alike.
    fn variance(&self, other: &Self) -> f64 {
        let alike = self.write.is_some() && self.tool.format() == other.tool.format();
        let parts = self.write.into_iter().chain(self.read.filter(|_| !alike));
        let squares = parts.map(|part| part.variance * part.seconds * part.seconds);
        squares.sum::<f64>() / (self.seconds() * self.seconds()).max(f64::MIN_POSITIVE)
    }

    /// What a look is worth and what it costs beyond `best`, in seconds.
    fn look(&self, best: &Self, horizon: f64) -> (f64, f64) {
        let (own, other) = (self.variance(best), best.variance(self));
        let gap = (self.seconds() / best.seconds()).ln();
        let worth = horizon * expected_saving(gap, (own + other).sqrt()) * best.seconds();
        let cost = self.seconds() * (own / 2.0).exp() - best.seconds();
        (worth, cost.max(0.0))
    }
}

/// The choice among at least one candidate; a look is paid from the ledger.
pub(super) fn choose(candidates: &[Candidate], ledger: &mut Ledger) -> Option<Tool> {
    let by_seconds = |a: &&Candidate, b: &&Candidate| a.seconds().total_cmp(&b.seconds());
    let best = candidates.iter().min_by(by_seconds)?;
    // First it must show what it is believed to be: the others are judged by it.
    if !best.is_known() {
        return Some(best.tool);
    }
    let looks = candidates.iter().filter(|candidate| candidate.tool != best.tool);
    let looks = looks.map(|candidate| {
        let (worth, cost) = candidate.look(best, ledger.horizon());
        (candidate.tool, worth - cost, cost)
    });
    let worthy = looks.filter(|(tool, net, cost)| *net > 0.0 && ledger.affords(*tool, *cost));
    let look = worthy.max_by(|(_, a, _), (_, b, _)| a.total_cmp(b));
    look.map_or(Some(best.tool), |(tool, _, cost)| {
        ledger.pay(tool, cost);
        Some(tool)
    })
}
