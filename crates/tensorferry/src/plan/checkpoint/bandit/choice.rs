//! The tool believed best, or a look at another.

use super::belief::Belief;
use super::ledger::{Ledger, Looker};
use super::value::expected_saving;
use crate::plan::checkpoint::tool::Tool;

/// No doubt between two tools counts for more: a factor of about two.
const DOUBT_MAX: f64 = 0.5;

/// What a look must be worth over its cost: it could be had later as well, and by then another size may have
/// told what it would.
const WORTH: f64 = 2.2;

/// A look is left to another size if it costs no more than this part there, and tells at least that part.
const LEFT_COST: f64 = 0.5;
const LEFT_TOLD: f64 = 0.2;

/// One part of two candidates.
type Pair<'a> = (Belief<'a>, Belief<'a>);

/// A tool, and what its choice will cost by the goal.
#[derive(Debug, Clone, Copy)]
pub(super) struct Candidate<'a> {
    pub(super) tool: Tool,
    write: Option<Belief<'a>>,
    read: Option<Belief<'a>>,
    /// Of both.
    seconds: f64,
}

impl<'a> Candidate<'a> {
    /// What the goal counts of it.
    pub(super) fn new(tool: Tool, write: Option<Belief<'a>>, read: Option<Belief<'a>>) -> Self {
        let seconds = write.iter().chain(&read).map(|part| part.seconds).sum::<f64>();
        Self { tool, write, read, seconds: seconds.max(f64::MIN_POSITIVE) }
    }

    fn parts(&self) -> impl Iterator<Item = Belief<'a>> {
        self.write.into_iter().chain(self.read)
    }

    /// Each part beside the same of another.
    fn beside(&self, other: &Self) -> impl Iterator<Item = Pair<'a>> {
        self.write.zip(other.write).into_iter().chain(self.read.zip(other.read))
    }

    fn changed(&self) -> f64 {
        self.parts().map(|part| part.changed()).fold(0.0, f64::max)
    }

    /// How doubtful the seconds are by themselves.
    fn variance(&self) -> f64 {
        self.parts().map(|part| part.variance()).sum()
    }

    /// Variance of the logarithm of the seconds over those of another.
    fn doubt(&self, other: &Self) -> f64 {
        let doubt = |(own, others): Pair<'_>| {
            (own.seconds / self.seconds).powi(2) * own.variance_beside(&others)
        };
        self.beside(other).map(doubt).sum::<f64>().min(DOUBT_MAX)
    }

    /// Seconds to expect: what is doubtful takes longer on average than in the median.
    fn expected(&self, other: &Self) -> f64 {
        self.seconds * (self.doubt(other) / 2.0).exp()
    }
}

/// The candidates at one size.
pub(super) struct Options<'a> {
    candidates: Vec<Candidate<'a>>,
    /// The number of the one believed best.
    best: usize,
    ledger: Ledger,
}

/// A choice of a tool that is not believed best, to learn more of it.
pub(super) struct Look {
    pub(super) tool: Tool,
    /// How doubtful the tool is beside the best.
    pub(super) variance: f64,
    /// Seconds beyond those of the best.
    pub(super) cost: f64,
    /// Seconds that it saves in the end, beyond what it must be worth.
    net: f64,
}

impl<'a> Options<'a> {
    /// None without a candidate.
    pub(super) fn new(candidates: Vec<Candidate<'a>>, ledger: Ledger) -> Option<Self> {
        let order = |one: f64, other: f64| one.total_cmp(&other);
        // Doubts are about differences: from the tool that is known best.
        let surest = candidates.iter().min_by(|one, other| {
            order(one.variance(), other.variance()).then(order(one.seconds, other.seconds))
        })?;
        let expected = candidates.iter().map(|candidate| candidate.expected(surest));
        let (best, _) = expected.enumerate().min_by(|(_, a), (_, b)| a.total_cmp(b))?;
        Some(Self { candidates, best, ledger })
    }

    pub(super) fn best(&self) -> &Candidate<'a> {
        &self.candidates[self.best]
    }

    /// Whether any look can be paid; where none can, no other size need be asked.
    pub(super) fn affords_a_look(&self, looker: Looker) -> bool {
        self.others().any(|candidate| {
            let variance = candidate.doubt(self.best());
            self.ledger.affords(looker, variance, self.cost(candidate))
        })
    }

    /// The look that is worth most, if it is worth its cost and no other size should take it. Only that one:
    /// cheap looks at near equals would eat up what it is saving for.
    pub(super) fn look(&self, elsewhere: &[Self], looker: Looker) -> Option<Look> {
        let others = self.others().map(|candidate| self.look_at(candidate, elsewhere));
        let look = others.max_by(|one, other| one.net.total_cmp(&other.net))?;
        let is_left = || elsewhere.iter().any(|there| self.leaves(&look, there, looker));
        (look.net > 0.0 && !is_left()).then_some(look)
    }

    fn others(&self) -> impl Iterator<Item = &Candidate<'a>> {
        self.candidates.iter().filter(|candidate| candidate.tool != self.best().tool)
    }

    /// A tool that is not believed best.
    fn other(&self, tool: Tool) -> Option<&Candidate<'a>> {
        self.others().find(|candidate| candidate.tool == tool)
    }

    fn look_at(&self, candidate: &Candidate<'a>, elsewhere: &[Self]) -> Look {
        let (changed, lasted) = (candidate.changed(), self.ledger.lasted() * self.best().seconds);
        let everywhere = elsewhere.iter().chain([self]);
        let saved: f64 = everywhere.map(|there| there.saving(candidate)).sum();
        let worth = (1.0 - changed) * saved
            + changed * expected_saving(self.gap(candidate), DOUBT_MAX.sqrt()) * lasted;
        let cost = self.cost(candidate);
        let variance = candidate.doubt(self.best());
        Look { tool: candidate.tool, variance, cost, net: worth - WORTH * cost }
    }

    /// Seconds that a look at a tool, at whatever size, may save here within the horizon.
    fn saving(&self, look: &Candidate<'_>) -> f64 {
        let Some(own) = self.other(look.tool) else { return 0.0 };
        let saving = expected_saving(self.gap(own), self.told(own, look));
        saving * self.ledger.horizon() * self.best().seconds
    }

    /// How much longer a tool takes than the best, as a logarithm.
    fn gap(&self, candidate: &Candidate<'_>) -> f64 {
        (candidate.seconds / self.best().seconds).ln()
    }

    /// How far a look is expected to move a tool against the best.
    fn told(&self, own: &Candidate<'_>, look: &Candidate<'_>) -> f64 {
        let total = own.seconds.max(self.best().seconds);
        let told = |((own, best), look): (Pair<'_>, Belief<'_>)| {
            // Two writers of one format are read alike.
            if own.is_of(&best) {
                return 0.0;
            }
            let moves = |belief: &Belief<'_>| belief.seconds * look.tells(belief);
            ((moves(&own) - moves(&best)) / total).powi(2)
        };
        own.beside(self.best()).zip(look.parts()).map(told).sum::<f64>().sqrt()
    }

    /// Seconds that a look is believed to take longer, doubt included.
    fn cost(&self, candidate: &Candidate<'_>) -> f64 {
        (candidate.expected(self.best()) - self.best().seconds).max(0.0)
    }

    /// Whether another size can take a look that costs less, tells enough of it here, and can be paid there.
    fn leaves(&self, look: &Look, there: &Self, looker: Looker) -> bool {
        let (Some(own), Some(other)) = (self.other(look.tool), there.other(look.tool)) else {
            return false;
        };
        let cost = there.cost(other);
        let variance = other.doubt(there.best());
        cost <= LEFT_COST * look.cost
            && there.ledger.affords(looker, variance, cost)
            && self.saving(other) >= LEFT_TOLD * self.saving(own)
    }
}
