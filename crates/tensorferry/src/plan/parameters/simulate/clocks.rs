//! Four clocks, and what each layer does to them.
//!
//! Every step is a sum or a maximum, so that a later clock never makes an end earlier. That is what lets a
//! planner drop a state that is behind another one in every clock.

use super::costs::{Cost, Leaving};
use crate::plan::parameters::Mode;

/// Until when everybody is busy with what was decided so far. Seconds since the start of forward.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(in crate::plan) struct Clocks {
    /// The device computes.
    pub(in crate::plan) compute: f64,
    /// The link inwards, if it never was idle: copies, and what kernels kept from them.
    pub(in crate::plan) inwards: f64,
    /// The link outwards.
    pub(in crate::plan) outwards: f64,
    /// The optimizer.
    pub(in crate::plan) update: f64,
}

/// From when to when.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::plan) struct Turn {
    pub(in crate::plan) from: f64,
    pub(in crate::plan) until: f64,
}

/// What backward of a layer brings about.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::plan) struct Back {
    /// The kernel; it ends later than it has computed if its writes are held up.
    pub(in crate::plan) compute: Turn,
    /// The gradient's way, if it takes the link.
    pub(in crate::plan) leaving: Option<Turn>,
    pub(in crate::plan) update: Turn,
}

impl Clocks {
    /// Forward of the next layer.
    pub(in crate::plan) fn forward(&mut self, cost: &Cost, mode: Mode) -> Turn {
        let (seconds, link) = cost.forward_in(mode);
        let from = match cost.copy {
            Some(copy) if mode == Mode::Gfgb => self.arrival(copy),
            _ => self.compute,
        };
        self.inwards += link;
        self.compute = from + seconds;
        Turn { from, until: self.compute }
    }

    /// Backward of the layer before.
    pub(in crate::plan) fn backward(&mut self, cost: &Cost, mode: Mode) -> Back {
        let (seconds, link) = cost.backward_in(mode);
        let from = match cost.copy {
            Some(copy) if mode == Mode::Dfgb => self.arrival(copy),
            _ => self.compute,
        };
        self.inwards += link;
        let mut until = from + seconds;
        let (leaving, arrival) = match cost.leaving {
            Leaving::AtOnce => (None, until),
            Leaving::Copied(copy) => {
                let start = self.outwards.max(until);
                (Some(Turn { from: start, until: start + copy }), start + copy)
            }
            Leaving::Written(write) => {
                let start = self.outwards.max(from);
                until = until.max(start + write);
                (Some(Turn { from: start, until: start + write }), until)
            }
        };
        self.compute = until;
        self.outwards = leaving.map_or(self.outwards, |turn| turn.until);
        let start = self.update.max(arrival);
        self.update = start + cost.update;
        let update = Turn { from: start, until: self.update };
        Back { compute: Turn { from, until }, leaving, update }
    }

    /// When compute can go on with a layer that has yet to be copied.
    ///
    /// Kernels that read in place go first, copies use the link in the rest of the time. So if the copy is
    /// late, all kernels so far have had their part by then, and it arrives when the link has done both.
    fn arrival(&mut self, copy: f64) -> f64 {
        self.inwards += copy;
        self.compute.max(self.inwards)
    }
}
