//! The search for good multipliers: those whose bound at the start is highest.
//!
//! The bound is concave in the weight, and in each price; a price is looked for on a logarithmic scale, on which
//! the bound has one summit still. So each is found by golden section, one after the other, twice where prices
//! change what weight is best.

use super::relaxation::{AfterForward, Choice, LayerTerms, LeastSums, Multipliers};
use crate::plan::parameters::simulate::{Cost, Variants};

/// Steps of a search for the best weight or price.
const STEPS: usize = 8;
/// Between the price of the dearest byte and that of the cheapest one that is looked at.
const PRICE_SPAN: f64 = 1e-6;

/// What is known before there is a plan.
pub(in crate::plan::parameters::exact) struct Start<'a> {
    dual: Dual<'a>,
    /// The best for the whole of forward.
    best: [Multipliers; 3],
}

impl<'a> Start<'a> {
    /// Of layers that share `capacity` bytes, and gradients of them that share `reserve` bytes.
    pub(in crate::plan::parameters::exact) fn new(
        layers: &'a [Variants],
        capacity: u64,
        reserve: u64,
    ) -> Self {
        let dual = Dual::new(layers, capacity, reserve);
        let best = AfterForward::ALL.map(|after| dual.best(layers.len(), after));
        Self { dual, best }
    }

    /// Modes and places that some relaxations find best. They may not fit.
    pub(in crate::plan::parameters::exact) fn guesses(&self) -> Vec<Vec<Choice>> {
        let [first, ..] = self.best;
        let half = Multipliers { weight: f64::midpoint(first.weight, 1.0), ..first };
        self.best.into_iter().chain([half]).map(|best| self.dual.choices(best)).collect()
    }

    /// Those that are kept: the best for the whole of forward, and up to this layer.
    pub(super) fn multipliers(&self, last_wait: usize) -> impl Iterator<Item = Multipliers> {
        let up_to = AfterForward::ALL.map(|after| self.dual.best(last_wait, after));
        self.best.into_iter().chain(up_to)
    }

    /// Layers, capacity and reserve.
    pub(super) fn limits(&self) -> (&'a [Variants], u64, u64) {
        (self.dual.layers, self.dual.capacity, self.dual.reserve)
    }
}

/// The bound at the start as a function of its multipliers.
struct Dual<'a> {
    layers: &'a [Variants],
    capacity: u64,
    reserve: u64,
    is_scarce: bool,
    /// Whether gradients have less than they would take.
    is_reserve_scarce: bool,
    /// No byte is worth more.
    price_max: f64,
    /// No byte of a gradient is.
    gradient_price_max: f64,
}

impl<'a> Dual<'a> {
    fn new(layers: &'a [Variants], capacity: u64, reserve: u64) -> Self {
        let parameters: u64 = layers.iter().map(|layer| layer.quickest.bytes).sum();
        let gradients: u64 = layers.iter().map(|layer| layer.quickest.kept).sum();
        let worths = layers.iter().filter(|layer| layer.quickest.bytes > 0).map(byte_worth);
        let gradient_price_max = layers.iter().map(gradient_byte_worth).fold(0.0, f64::max);
        Self {
            layers,
            capacity,
            reserve,
            is_scarce: parameters + gradients > capacity,
            is_reserve_scarce: gradients > reserve && gradient_price_max > 0.0,
            price_max: worths.fold(gradient_price_max, f64::max),
            gradient_price_max,
        }
    }

    /// The best weight and prices, with the link counted up to this layer.
    fn best(&self, link_until: usize, after: AfterForward) -> Multipliers {
        let (weight, byte_price, gradient_price) = (0.5, 0.0, 0.0);
        let mut best = Multipliers { weight, link_until, byte_price, gradient_price, after };
        for _ in 0..if self.is_scarce || self.is_reserve_scarce { 2 } else { 1 } {
            best.weight = highest(|weight| self.bound(Multipliers { weight, ..best }));
            if self.is_scarce {
                let with = |byte_price| Multipliers { byte_price, ..best };
                best = self.priced(best, self.price_max, with);
            }
            if self.is_reserve_scarce {
                let with = |gradient_price| Multipliers { gradient_price, ..best };
                best = self.priced(best, self.gradient_price_max, with);
            }
        }
        best
    }

    /// With the best price up to `most`, if one is better than none.
    fn priced(
        &self,
        unpriced: Multipliers,
        most: f64,
        with: impl Fn(f64) -> Multipliers,
    ) -> Multipliers {
        // What a byte is worth differs by orders of magnitude between layers.
        let price = |part: f64| most * PRICE_SPAN.powf(1.0 - part);
        let part = highest(|part| self.bound(with(price(part))));
        let priced = with(price(part));
        if self.bound(priced) > self.bound(unpriced) { priced } else { unpriced }
    }

    /// The bound before anything is decided, short of a constant.
    fn bound(&self, multipliers: Multipliers) -> f64 {
        let (mut with_a_copy, mut without) = (f64::INFINITY, 0.0);
        for (place, layer) in self.layers.iter().enumerate().rev() {
            let terms = LayerTerms::new(layer, place, multipliers);
            with_a_copy = (with_a_copy + terms.before.0).min(without + terms.last.0);
            without += terms.after.0;
        }
        let priced = multipliers.byte_price * self.capacity as f64;
        with_a_copy.min(without) - priced - multipliers.gradient_price * self.reserve as f64
    }

    /// The modes and places that give the bound.
    fn choices(&self, multipliers: Multipliers) -> Vec<Choice> {
        let multipliers = Multipliers { after: AfterForward::Backward, ..multipliers };
        let sums = LeastSums::new(self.layers, multipliers);
        let mut copies = sums.with_a_copy[0] < sums.without_a_copy[0];
        let mut choices = Vec::with_capacity(self.layers.len());
        for (place, layer) in self.layers.iter().enumerate() {
            let terms = LayerTerms::new(layer, place, multipliers);
            let is_last = copies
                && sums.without_a_copy[place + 1] + terms.last.0
                    <= sums.with_a_copy[place + 1] + terms.before.0;
            choices.push(match (copies, is_last) {
                (true, true) => terms.last.1,
                (true, false) => terms.before.1,
                (false, _) => terms.after.1,
            });
            copies &= !is_last;
        }
        choices
    }
}

/// The most seconds that a byte of a layer's parameters on the device can save.
fn byte_worth(layer: &Variants) -> f64 {
    let cost = &layer.quickest;
    let longer = cost.direct_forward + cost.direct_backward;
    let shorter = cost.forward.min(cost.direct_forward) + cost.backward;
    (longer - shorter).max(0.0) / cost.bytes.max(1) as f64
}

/// The most seconds that a byte of its gradient there can save.
fn gradient_byte_worth(layer: &Variants) -> f64 {
    let longer = |other: &Cost| {
        let written = other.leaving.seconds().max(other.backward);
        (written - layer.quickest.backward)
            .max(other.leaving.seconds() - layer.quickest.leaving.seconds())
            .max(0.0)
    };
    let longer = layer.other.as_ref().map_or(0.0, longer);
    longer / layer.quickest.kept.max(1) as f64
}

/// Where a function of 0 to 1 with one summit is highest, about.
fn highest(of: impl Fn(f64) -> f64) -> f64 {
    const SECTION: f64 = 0.618;
    let (mut low, mut high) = (0.0, 1.0);
    let (mut left, mut right) = (1.0 - SECTION, SECTION);
    let (mut at_left, mut at_right) = (of(left), of(right));
    for _ in 0..STEPS {
        if at_left < at_right {
            (low, left, at_left) = (left, right, at_right);
            right = low + SECTION * (high - low);
            at_right = of(right);
        } else {
            (high, right, at_right) = (right, left, at_left);
            left = high - SECTION * (high - low);
            at_left = of(left);
        }
    }
    if at_left < at_right { right } else { left }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use crate::plan::parameters::exact::cases::case;

    #[test]
    fn the_summit_is_found_wherever_it_is() {
        for summit in [0.05, 0.3, 0.5, 0.8, 0.95] {
            let found = highest(|at| -(at - summit) * (at - summit));
            assert!((found - summit).abs() < 0.05, "{found} for {summit}");
        }
    }

    #[test]
    fn what_is_found_is_no_worse_than_where_the_search_began() {
        for seed in 0..100 {
            let case = case(seed, 12);
            let layers = Variants::of(&case.profile, case.gradient_reserve);
            let capacity = case.budget.saturating_sub(case.profile.work_bytes);
            let dual = Dual::new(&layers, capacity, case.gradient_reserve.min(capacity));
            for after in AfterForward::ALL {
                let best = dual.best(layers.len(), after);
                let unpriced = Multipliers { byte_price: 0.0, gradient_price: 0.0, ..best };
                assert!(dual.bound(best) >= dual.bound(unpriced), "seed {seed}, {after:?}");
            }
        }
    }
}
