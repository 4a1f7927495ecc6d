//! What was spent in one situation at one size class, and how much of it on looks.

use serde::{Deserialize, Serialize};

use super::LOOK_SHARE;
use crate::error::{Error, Kind, Result};
use crate::plan::tools::tool::Tool;

/// Operations that may profit from a look: as many as there were since things last changed, because
/// what has lasted will last, but no fewer and no more.
const HORIZON: (u64, u64) = (16, 256);

/// First looks that are not paid for: more than one, because the first may meet an outlier.
const FREE_LOOKS: u8 = 3;
/// Variance from which on a tool is as good as unknown: a factor of a third.
const FREE_DOUBT: f64 = 0.1;

#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Ledger {
    /// Operations since the start, a jump or a flush.
    lasted: u64,
    seconds: f64,
    /// Believed extra seconds of looks that were not the first.
    spent: f64,
    /// Free looks that each tool had, in the order of `Tool::ALL`.
    free: [u8; 5],
}

impl Ledger {
    pub(super) fn record(&mut self, seconds: f64) {
        self.lasted = self.lasted.saturating_add(1);
        self.seconds = (self.seconds + seconds).min(f64::MAX);
    }

    pub(super) fn horizon(&self) -> f64 {
        self.lasted.clamp(HORIZON.0, HORIZON.1) as f64
    }

    /// Whether a look at a tool as doubtful as `variance` says is free or can be paid.
    pub(super) fn affords(&self, tool: Tool, variance: f64, extra: f64) -> bool {
        self.is_free(tool, variance) || self.spent + extra <= LOOK_SHARE * self.seconds
    }

    /// Pays for a look that it affords.
    pub(super) fn pay(&mut self, tool: Tool, variance: f64, extra: f64) {
        if self.is_free(tool, variance) {
            self.free[tool as usize] += 1;
        } else {
            self.spent += extra;
        }
    }

    /// Everything is new again.
    pub(super) fn renew(&mut self) {
        (self.lasted, self.free) = (0, [0; 5]);
    }

    fn is_free(&self, tool: Tool, variance: f64) -> bool {
        variance >= FREE_DOUBT && self.free[tool as usize] < FREE_LOOKS
    }

    pub(super) fn seconds(&self) -> f64 {
        self.seconds
    }

    #[cfg(test)]
    pub(super) fn spent(&self) -> f64 {
        self.spent
    }

    /// Judges a state that came from outside.
    pub(super) fn check(&self) -> Result<()> {
        let is_time = |seconds: f64| seconds.is_finite() && seconds >= 0.0;
        if is_time(self.seconds) && is_time(self.spent) {
            return Ok(());
        }
        Err(Error::new(Kind::Corrupt, "a ledger is out of bounds"))
    }
}
