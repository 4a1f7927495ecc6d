//! What was spent in one situation at one size class, and how much of it on looks.

use serde::{Deserialize, Serialize};

use super::{FIRST_SHARE, LOOK_SHARE};
use crate::error::{Error, Kind, Result};
use crate::plan::checkpoint::tool::Tool;

/// Operations that may profit from a look: as many as there were since things last changed, because
/// what has lasted will last, but no fewer and no more.
const HORIZON: (u64, u64) = (16, 72);

/// Of a look that took longer than believed, no more is paid than this share of all seconds: one stall of
/// a disk must not forbid looks for ever.
pub(super) const OVERRUN_SHARE: f64 = 0.01;

/// Variance from which on a tool is as good as unknown: a factor of a third.
const FIRST_DOUBT: f64 = 0.1;

/// Who takes a look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Looker {
    /// A choice of the situation's own direction.
    Own,
    /// A choice of a writer that is made for the sake of reading.
    Writer,
}

#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Ledger {
    /// Operations since the start, a jump or a flush.
    lasted: u64,
    /// Of all operations ever.
    seconds: f64,
    /// One for each [`Looker`], so that neither starves the other.
    purses: [Purse; 2],
    /// A look that was paid by what it was believed to take, and is not over.
    open: Option<Open>,
}

/// Who takes a look, at what, and from which purse.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Open {
    looker: Looker,
    tool: Tool,
    first: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Purse {
    /// Believed extra seconds of other looks.
    spent: f64,
    /// Believed extra seconds of first looks, ever.
    first: f64,
}

impl Ledger {
    /// An operation is over that was believed to take `believed` seconds.
    pub(super) fn record(&mut self, tool: Tool, seconds: f64, believed: f64) {
        self.settle(tool, (seconds - believed).max(0.0));
        self.lasted = self.lasted.saturating_add(1);
        self.seconds = (self.seconds + seconds).min(f64::MAX);
    }

    /// The last look took so much longer than was believed: that is paid too. If another tool comes, the
    /// look has failed, and nobody knows what it would have taken.
    fn settle(&mut self, by: Tool, longer: f64) {
        let open = self.open.take().filter(|open| open.tool == by);
        let Some(Open { looker, first, .. }) = open else { return };
        let purse = &mut self.purses[looker as usize];
        let paid = if first { &mut purse.first } else { &mut purse.spent };
        *paid += longer.min(OVERRUN_SHARE * self.seconds);
    }

    pub(super) fn horizon(&self) -> f64 {
        self.lasted.clamp(HORIZON.0, HORIZON.1) as f64
    }

    /// Operations since things last changed, without limits.
    pub(super) fn lasted(&self) -> f64 {
        self.lasted as f64
    }

    /// Pays for a look at a tool as doubtful as `variance` says, if that can be paid.
    pub(super) fn pay(&mut self, looker: Looker, tool: Tool, variance: f64, extra: f64) -> bool {
        let first = self.is_first(looker, variance, extra);
        let affordable = first || self.affords(looker, variance, extra);
        if affordable {
            let purse = &mut self.purses[looker as usize];
            *if first { &mut purse.first } else { &mut purse.spent } += extra;
            self.open = Some(Open { looker, tool, first });
        }
        affordable
    }

    /// Whether a look can be paid.
    pub(super) fn affords(&self, looker: Looker, variance: f64, extra: f64) -> bool {
        let spent = self.purses[looker as usize].spent;
        self.is_first(looker, variance, extra) || spent + extra <= LOOK_SHARE / 2.0 * self.seconds
    }

    /// Whether it is paid from the purse for tools that are as good as unknown.
    fn is_first(&self, looker: Looker, variance: f64, extra: f64) -> bool {
        let first = self.purses[looker as usize].first;
        variance >= FIRST_DOUBT && first + extra <= FIRST_SHARE * self.seconds
    }

    /// Everything is new again.
    pub(super) fn renew(&mut self) {
        self.lasted = 0;
    }

    #[cfg(test)]
    pub(super) fn seconds(&self) -> f64 {
        self.seconds
    }

    #[cfg(test)]
    pub(super) fn spent(&self) -> f64 {
        self.purses.iter().map(|purse| purse.spent).sum()
    }

    #[cfg(test)]
    pub(super) fn first(&self) -> f64 {
        self.purses.iter().map(|purse| purse.first).sum()
    }

    /// Judges a state that came from outside.
    pub(super) fn check(&self) -> Result<()> {
        let is_time = |seconds: f64| seconds.is_finite() && seconds >= 0.0;
        let is_sound = |purse: &Purse| is_time(purse.spent) && is_time(purse.first);
        if is_time(self.seconds) && self.purses.iter().all(is_sound) {
            return Ok(());
        }
        Err(Error::new(Kind::Corrupt, "a ledger is out of bounds"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A hundred seconds spent, and a look at torch that was believed to take one more.
    fn looking() -> Ledger {
        let mut ledger = Ledger::default();
        ledger.record(Tool::Direct, 100.0, 100.0);
        assert!(ledger.pay(Looker::Own, Tool::Torch, FIRST_DOUBT, 1.0));
        ledger
    }

    #[test]
    fn a_look_that_takes_longer_than_believed_is_paid_in_full_within_a_share_of_all() {
        let mut ledger = looking();
        ledger.record(Tool::Torch, 2.5, 2.0);
        assert!((ledger.first() - 1.5).abs() < 1e-12, "{ledger:?}");
        ledger.record(Tool::Torch, 9.0, 2.0);
        assert!((ledger.first() - 1.5).abs() < 1e-12, "that was no look: {ledger:?}");
        let mut stalled = looking();
        stalled.record(Tool::Torch, 50.0, 2.0);
        assert!((stalled.first() - 2.0).abs() < 1e-12, "one in a hundred: {stalled:?}");
    }

    #[test]
    fn who_has_overrun_waits_longer_for_the_next_look() {
        let [mut prompt, mut late] = [looking(), looking()];
        prompt.record(Tool::Torch, 2.0, 2.0);
        late.record(Tool::Torch, 3.0, 2.0);
        let extra = FIRST_SHARE * prompt.seconds() - 1.0;
        assert!(prompt.pay(Looker::Own, Tool::Numpy, FIRST_DOUBT, extra));
        assert!(!late.pay(Looker::Own, Tool::Numpy, FIRST_DOUBT, extra));
    }

    #[test]
    fn a_look_that_failed_is_not_paid_by_the_next_operation() {
        let mut ledger = looking();
        ledger.record(Tool::Direct, 50.0, 1.0);
        assert!((ledger.first() - 1.0).abs() < 1e-12, "{ledger:?}");
    }
}
