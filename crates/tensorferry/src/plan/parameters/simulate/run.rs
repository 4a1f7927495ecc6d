//! A whole iteration, in numbers.

use super::clocks::{Back, Clocks, Turn};
use super::costs::Cost;
use super::timeline::{Doing, Watch};
use crate::plan::parameters::{Gradient, Mode, Prediction, Profile, kept_bytes};

/// Runs plans of one profile whose gradients have their places.
#[derive(Debug)]
pub struct Simulator<'a> {
    profile: &'a Profile,
    costs: Vec<Cost>,
    /// Work, and the gradients that stay.
    resident_bytes: u64,
}

impl<'a> Simulator<'a> {
    /// For a profile that holds together, with a place for each gradient.
    pub fn new(profile: &'a Profile, gradients: &[Gradient]) -> Self {
        let resident_bytes = profile.work_bytes + kept_bytes(profile, gradients);
        Self { profile, costs: Cost::of(profile, gradients), resident_bytes }
    }

    pub(in crate::plan) fn costs(&self) -> &[Cost] {
        &self.costs
    }

    /// Bytes on the device if nothing is copied.
    pub(in crate::plan) fn resident_bytes(&self) -> u64 {
        self.resident_bytes
    }

    /// Bytes on the device.
    pub fn device_bytes(&self, modes: &[Mode]) -> u64 {
        let copied = self.costs.iter().zip(modes).filter(|(_, mode)| mode.is_copied());
        self.resident_bytes + copied.map(|(cost, _)| cost.bytes).sum::<u64>()
    }

    /// Seconds of the iteration, and nothing else.
    pub fn seconds(&self, modes: &[Mode]) -> f64 {
        let mut clocks = Clocks::default();
        for (cost, mode) in self.costs.iter().zip(modes) {
            clocks.forward(cost, *mode);
        }
        for (cost, mode) in self.costs.iter().zip(modes).rev() {
            clocks.backward(cost, *mode);
        }
        clocks.update
    }

    pub(in crate::plan) fn run(&self, modes: &[Mode], watch: &mut impl Watch) -> Prediction {
        let mut clocks = Clocks::default();
        let mut came = Prediction { device_bytes: self.device_bytes(modes), ..Default::default() };
        for (layer, (cost, mode)) in self.costs.iter().zip(modes).enumerate() {
            let from = clocks.compute;
            let turn = clocks.forward(cost, *mode);
            let link = cost.forward_in(*mode).1;
            came.forward_wait += turn.from - from;
            came.compute_seconds += turn.until - turn.from;
            watch.span(Doing::Forward(layer), turn);
            watch.span(Doing::Read(layer), Turn { until: turn.from + link, ..turn });
        }
        for (layer, (cost, mode)) in self.costs.iter().zip(modes).enumerate().rev() {
            let from = clocks.compute;
            let Back { compute: turn, leaving, update } = clocks.backward(cost, *mode);
            let (seconds, link) = cost.backward_in(*mode);
            let computed = turn.from + seconds;
            came.backward_wait += (turn.from - from) + (turn.until - computed);
            came.compute_seconds += seconds;
            watch.span(Doing::Backward(layer), Turn { until: computed, ..turn });
            watch.span(Doing::Read(layer), Turn { until: turn.from + link, ..turn });
            if let Some(turn) = leaving {
                watch.span(Doing::Gradient(layer), turn);
            }
            watch.span(Doing::Update(layer), update);
        }
        came.seconds = clocks.update;
        came.tail_seconds = clocks.update - clocks.compute;
        self.count(modes, &mut came);
        came
    }

    fn count(&self, modes: &[Mode], came: &mut Prediction) {
        for (layer, mode) in self.profile.layers.iter().zip(modes) {
            if layer.parameter_bytes == 0 {
                continue;
            }
            if mode.is_copied() {
                came.copied_bytes += layer.parameter_bytes;
            }
            if mode.is_direct_in_forward() {
                came.direct_bytes += layer.direct_forward_bytes;
            }
            if *mode == Mode::Dha {
                came.direct_bytes += layer.direct_backward_bytes;
            }
        }
    }
}
