//! What backward of the first layers will add, before it is known when it begins.
//!
//! Backward ends with the layers with which forward began. So when the first layers have their modes, the
//! last part of backward is known but for the clocks with which it will start. Each step is a sum or a
//! maximum, so all of it together is one maximum: the iteration ends at the latest of each clock plus a
//! number of seconds. These numbers are a tail. A smaller one is never worse.

use crate::plan::parameters::Mode;
use crate::plan::parameters::simulate::{Cost, Leaving};

/// Seconds from each clock to the end, at the least.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Tail {
    pub(super) compute: f64,
    pub(super) inwards: f64,
    pub(super) outwards: f64,
}

impl Tail {
    /// Nothing follows.
    pub(super) const NONE: Self = Self {
        compute: f64::NEG_INFINITY,
        inwards: f64::NEG_INFINITY,
        outwards: f64::NEG_INFINITY,
    };

    /// The tail with backward of one more layer before it. `updates` are the seconds of the updates that
    /// follow, this layer's included.
    pub(super) fn after(self, cost: &Cost, mode: Mode, updates: f64) -> Self {
        let (seconds, link) = cost.backward_in(mode);
        let (compute, outwards) = self.leave(cost.leaving, seconds, updates);
        let inwards = match (cost.copy, mode) {
            (Some(copy), Mode::Dfgb) => self.inwards.max(compute) + copy,
            _ => self.inwards + link,
        };
        Self { compute, inwards, outwards }
    }

    /// The least tail of all modes: nothing waits for a copy, and backward is as short as it can be.
    pub(super) fn least_after(self, cost: &Cost, updates: f64) -> Self {
        let seconds = cost.backward.min(cost.direct_backward);
        let (compute, outwards) = self.leave(cost.leaving, seconds, updates);
        Self { compute, outwards, ..Self::NONE }
    }

    /// The least of both.
    pub(super) fn least(self, other: Self) -> Self {
        Self {
            compute: self.compute.min(other.compute),
            inwards: self.inwards.min(other.inwards),
            outwards: self.outwards.min(other.outwards),
        }
    }

    /// From the start of a kernel of so many seconds, and from the clock of the link outwards.
    fn leave(self, leaving: Leaving, seconds: f64, updates: f64) -> (f64, f64) {
        match leaving {
            Leaving::AtOnce => (seconds + self.compute.max(updates), self.outwards),
            Leaving::Copied(copy) => {
                let leaves = copy + self.outwards.max(updates);
                (seconds + self.compute.max(leaves), leaves)
            }
            Leaving::Written(write) => {
                let ended = self.compute.max(updates);
                let leaves = write + self.outwards.max(ended);
                (leaves.max(seconds + ended), leaves)
            }
        }
    }
}
