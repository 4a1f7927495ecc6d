//! What open layers cost by a relaxation: each layer for itself, and all of them together.
//!
//! The [module above](super) has the derivation; the numbers in brackets are its formulas.

use crate::plan::parameters::simulate::{Cost, Leaving, Variants};
use crate::plan::parameters::{Gradient, Mode};

/// How times and bytes are weighed against one another.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Multipliers {
    /// `λ`: the weight of compute; the link has the rest.
    pub(super) weight: f64,
    /// `t`: from this layer on, compute has all of it.
    pub(super) link_until: usize,
    /// Of a byte on the device, in seconds.
    pub(super) byte_price: f64,
    /// Of a gradient's byte on top of it.
    pub(super) gradient_price: f64,
    /// What counts of the time after forward.
    pub(super) after: AfterForward,
}

/// What follows forward, in a bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AfterForward {
    /// Backward of all layers: (5).
    Backward,
    /// Gradients of all layers, on the link outwards: (6).
    Gradients,
    /// Whatever is the least for all choices: (7).
    Least,
}

/// What is decided about a layer.
pub(super) type Choice = (Mode, Gradient);

/// What one layer adds at the least, and with which choice, by where the last copy of forward is.
pub(super) struct LayerTerms {
    /// Before the last layer that is copied for forward.
    pub(super) before: (f64, Choice),
    /// If it is that one.
    pub(super) last: (f64, Choice),
    /// After it.
    pub(super) after: (f64, Choice),
}

/// The least that all layers from each one on add.
#[derive(Debug, Clone, Default)]
pub(super) struct LeastSums {
    /// If at least one of them is copied for forward.
    pub(super) with_a_copy: Vec<f64>,
    /// If none is.
    pub(super) without_a_copy: Vec<f64>,
}

impl AfterForward {
    pub(super) const ALL: [Self; 3] = [Self::Backward, Self::Gradients, Self::Least];
}

impl Multipliers {
    /// The weight of compute at a layer.
    pub(super) fn weight_at(&self, layer: usize) -> f64 {
        if layer < self.link_until { self.weight } else { 1.0 }
    }

    /// What a layer adds after forward at the least, with the parameters on the device and in place, and where its
    /// gradient is then.
    fn after_forward(&self, layer: &Variants) -> [(f64, Gradient); 2] {
        let of = |cost: &Cost, seconds: f64| {
            let seconds = match (self.after, cost.leaving) {
                (AfterForward::Backward, Leaving::Written(write)) => seconds.max(write),
                (AfterForward::Backward, _) => seconds,
                (AfterForward::Gradients, leaving) => leaving.seconds(),
                (AfterForward::Least, _) => 0.0,
            };
            let priced = (self.byte_price + self.gradient_price) * cost.kept as f64;
            (seconds + priced, cost.gradient)
        };
        let least = |a: (f64, Gradient), b: (f64, Gradient)| if b.0 < a.0 { b } else { a };
        let both = |cost: &Cost| [of(cost, cost.backward), of(cost, cost.direct_backward)];
        let [on_device, in_place] = both(&layer.quickest);
        let Some([other_on_device, other_in_place]) = layer.other.as_ref().map(both) else {
            return [on_device, in_place];
        };
        [least(on_device, other_on_device), least(in_place, other_in_place)]
    }
}

impl LayerTerms {
    /// Of the layer at this place.
    pub(super) fn new(layer: &Variants, place: usize, multipliers: Multipliers) -> Self {
        let cost = &layer.quickest;
        let weight = multipliers.weight_at(place);
        let [(on_device, kept), (in_place, other)] = multipliers.after_forward(layer);
        let copied = (Mode::Gfgb, kept);
        let Some(copy) = cost.copy else {
            // Without parameters: never copied, never read.
            let before = (weight * cost.forward + on_device, copied);
            let after = (cost.forward + on_device, copied);
            let last = (f64::INFINITY, copied);
            return Self { before, last, after };
        };
        let on_device = on_device + multipliers.byte_price * cost.bytes as f64;
        // Read in place in forward: then backward may do so again, or have a copy.
        let (back, choice) = if in_place <= on_device {
            (in_place, (Mode::Dha, other))
        } else {
            (on_device, (Mode::Dfgb, kept))
        };
        let before = weight * cost.forward + (1.0 - weight) * copy + on_device;
        let read = weight * cost.direct_forward + (1.0 - weight) * cost.direct_forward_link + back;
        Self {
            before: if before < read { (before, copied) } else { (read, choice) },
            last: ((1.0 - weight) * copy + cost.forward + on_device, copied),
            after: (cost.direct_forward + back, choice),
        }
    }
}

impl LeastSums {
    pub(super) fn new(layers: &[Variants], multipliers: Multipliers) -> Self {
        let count = layers.len();
        let mut sums = Self {
            with_a_copy: vec![f64::INFINITY; count + 1],
            without_a_copy: vec![0.0; count + 1],
        };
        for (place, layer) in layers.iter().enumerate().rev() {
            let terms = LayerTerms::new(layer, place, multipliers);
            sums.without_a_copy[place] = sums.without_a_copy[place + 1] + terms.after.0;
            let before = sums.with_a_copy[place + 1] + terms.before.0;
            sums.with_a_copy[place] = before.min(sums.without_a_copy[place + 1] + terms.last.0);
        }
        sums
    }
}
