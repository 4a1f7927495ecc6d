//! What was spent in one situation at one size class, and how much of it on looks.

use serde::{Deserialize, Serialize};

use super::LOOK_SHARE;
use crate::error::{Error, Kind, Result};
use crate::plan::tools::tool::{Tool, Tools};

/// Operations that may profit from a look: as many as were seen, but no fewer and no more.
const HORIZON: (u64, u64) = (8, 256);

#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Ledger {
    operations: u64,
    seconds: f64,
    /// Believed extra seconds of looks that were not the first.
    spent: f64,
    /// Tools that had their first look, or were chosen for what they are.
    pub(super) looked: Tools,
}

impl Ledger {
    pub(super) fn record(&mut self, tool: Tool, seconds: f64) {
        self.operations = self.operations.saturating_add(1);
        self.seconds = (self.seconds + seconds).min(f64::MAX);
        self.looked = self.looked.with(tool);
    }

    pub(super) fn horizon(&self) -> f64 {
        self.operations.clamp(HORIZON.0, HORIZON.1) as f64
    }

    pub(super) fn affords(&self, tool: Tool, extra: f64) -> bool {
        !self.looked.contains(tool) || self.spent + extra <= LOOK_SHARE * self.seconds
    }

    /// Pays for a look that it affords.
    pub(super) fn pay(&mut self, tool: Tool, extra: f64) {
        if self.looked.contains(tool) {
            self.spent += extra;
        }
        self.looked = self.looked.with(tool);
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
