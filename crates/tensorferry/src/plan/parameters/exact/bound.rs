//! How soon an iteration can end at best, when the first layers have their modes.
//!
//! Compute is never ahead of the link: a layer that is copied waits, and one that reads in place takes longer
//! than its reading. So forward ends no earlier than compute allows, and no earlier than the link allows up
//! to some layer and compute from there on. Of such times any mixture is a bound too, and in a mixture each
//! layer can be judged by itself: its least is a sum that is worked out once. Memory joins by a price for each
//! byte, what is reserved for gradients by another. Which mixture and which prices give the highest bound is
//! looked for at the start; a handful is kept, because what binds changes along the way.

use super::tail::Tail;
use crate::plan::parameters::simulate::{Cost, Leaving, Variants};
use crate::plan::parameters::{Gradient, Mode};

/// Steps of a search for the best mixture or price.
const LOOKS: usize = 8;
/// Between the price of the dearest byte and that of the cheapest one that is looked at.
const PRICE_SPAN: f64 = 1e-6;

/// How times and bytes are weighed against one another.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Rule {
    /// The weight of compute; the link has the rest.
    weight: f64,
    /// From this layer on, compute has all of it.
    turn: usize,
    /// Of a byte, in seconds.
    price: f64,
    /// Of a gradient's byte on top of it.
    gradient_price: f64,
    /// What counts of the time after forward.
    after: After,
}

/// What follows forward, in a bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum After {
    /// Backward of all layers.
    Backward,
    /// Gradients of all layers, on the link outwards.
    Gradients,
    /// Whatever is the least for all choices.
    Least,
}

impl After {
    const ALL: [Self; 3] = [Self::Backward, Self::Gradients, Self::Least];
}

/// A rule, and what the layers from each place on cost by it.
#[derive(Debug, Clone)]
struct Mixture {
    rule: Rule,
    sums: Sums,
}

/// The least from each layer on.
#[derive(Debug, Clone, Default)]
struct Sums {
    /// If forward will wait for one more layer at least.
    waiting: Vec<f64>,
    /// If it waits for none.
    direct: Vec<f64>,
}

#[derive(Debug)]
pub(super) struct Bounds {
    mixtures: Vec<Mixture>,
    capacity: u64,
    reserve: u64,
    /// From the end of forward to the end, at the least.
    rest: f64,
    /// What the link carries inwards from each layer on, at the least.
    link: Vec<f64>,
    /// From the end of forward to the end of backward of each layer: compute, and the link outwards.
    back: Vec<(f64, f64)>,
}

/// What a state is judged by.
#[derive(Debug, Clone, Copy)]
pub(super) struct Known {
    /// Layers that have their modes.
    pub(super) layers: usize,
    pub(super) compute: f64,
    pub(super) inwards: f64,
    pub(super) bytes: u64,
    /// Of these, gradients.
    pub(super) kept: u64,
    pub(super) tail: Tail,
}

impl Bounds {
    /// `turn` is the layer from which on the best plan that is known does not wait in forward.
    pub(super) fn new(start: &Start<'_>, turn: usize) -> Self {
        let Look { layers, capacity, reserve, .. } = start.look;
        let turned = After::ALL.map(|after| start.look.best(turn, after));
        let mixture = |rule| Mixture { rule, sums: Sums::new(layers, rule) };
        let mixtures = start.rules.into_iter().chain(turned).map(mixture).collect();
        let mut updates = 0.0;
        let rest = layers.iter().fold(Tail::NONE, |tail, layer| {
            updates += layer.quickest.update;
            let least = |cost| tail.least_after(cost, updates);
            let quickest = least(&layer.quickest);
            layer.other.as_ref().map_or(quickest, |other| quickest.least(least(other)))
        });
        let mut link = vec![0.0; layers.len() + 1];
        let mut back = vec![(0.0, 0.0); layers.len() + 1];
        for (place, layer) in layers.iter().enumerate().rev() {
            let cost = &layer.quickest;
            let direct = cost.direct_forward_link + cost.direct_backward_link;
            link[place] = link[place + 1] + cost.copy.map_or(0.0, |copy| copy.min(direct));
            back[place] = least_back(layer, back[place + 1]);
        }
        Self { mixtures, capacity, reserve, rest: rest.compute, link, back }
    }

    /// No completion ends sooner.
    pub(super) fn of(&self, known: &Known) -> f64 {
        let Known { layers, compute, inwards, bytes, kept, tail } = *known;
        let over = bytes as f64 - self.capacity as f64;
        let gradients_over = kept as f64 - self.reserve as f64;
        let mut bound = inwards + tail.inwards + self.link[layers];
        let (computed, left) = self.back[layers];
        let least_rest = self.rest.max(computed + tail.compute).max(left + tail.outwards);
        for Mixture { rule, sums } in &self.mixtures {
            let weight = rule.weight_at(layers);
            let mixed = weight * compute + (1.0 - weight) * inwards;
            let least = (mixed + sums.waiting[layers]).min(compute + sums.direct[layers]);
            let rest = match rule.after {
                After::Backward => tail.compute,
                After::Gradients => tail.outwards,
                After::Least => least_rest,
            };
            let priced = rule.price * over + rule.gradient_price * gradients_over;
            bound = bound.max(least + rest + priced);
        }
        bound
    }
}

/// The clocks of compute and of the link outwards after backward of a layer, at the least.
fn least_back(layer: &Variants, (compute, outwards): (f64, f64)) -> (f64, f64) {
    let after = |cost: &Cost| {
        let computed = compute + cost.backward.min(cost.direct_backward);
        match cost.leaving {
            Leaving::AtOnce => (computed, outwards),
            Leaving::Copied(copy) => (computed, outwards.max(computed) + copy),
            Leaving::Written(write) => {
                let left = outwards.max(compute) + write;
                (computed.max(left), left)
            }
        }
    };
    let least = |a: (f64, f64), b: (f64, f64)| (a.0.min(b.0), a.1.min(b.1));
    let quickest = after(&layer.quickest);
    layer.other.as_ref().map_or(quickest, |other| least(quickest, after(other)))
}

/// What is known before there is a plan.
pub(super) struct Start<'a> {
    look: Look<'a>,
    /// The best without a turn.
    rules: [Rule; 3],
}

impl<'a> Start<'a> {
    /// Of layers that share `capacity` bytes, and gradients of them that share `reserve` bytes.
    pub(super) fn new(layers: &'a [Variants], capacity: u64, reserve: u64) -> Self {
        let look = Look::new(layers, capacity, reserve);
        let rules = After::ALL.map(|after| look.best(layers.len(), after));
        Self { look, rules }
    }

    /// Modes and places that some mixtures find best. They may not fit.
    pub(super) fn guesses(&self) -> Vec<Vec<Choice>> {
        let [first, ..] = self.rules;
        let half = Rule { weight: f64::midpoint(first.weight, 1.0), ..first };
        self.rules.into_iter().chain([half]).map(|rule| self.look.decide(rule)).collect()
    }
}

impl Rule {
    fn weight_at(&self, layer: usize) -> f64 {
        if layer < self.turn { self.weight } else { 1.0 }
    }

    /// What a layer costs after forward at the least, on the device and in place, and where its gradient is then.
    fn back(&self, layer: &Variants) -> [(f64, Gradient); 2] {
        let of = |cost: &Cost, seconds: f64| {
            let seconds = match (self.after, cost.leaving) {
                (After::Backward, Leaving::Written(write)) => seconds.max(write),
                (After::Backward, _) => seconds,
                (After::Gradients, leaving) => leaving.seconds(),
                (After::Least, _) => 0.0,
            };
            let priced = (self.price + self.gradient_price) * cost.kept as f64;
            (seconds + priced, cost.gradient)
        };
        let least = |a: (f64, Gradient), b: (f64, Gradient)| if b.0 < a.0 { b } else { a };
        let both = |cost: &Cost| [of(cost, cost.backward), of(cost, cost.direct_backward)];
        let [there, in_place] = both(&layer.quickest);
        let Some([other, other_in_place]) = layer.other.as_ref().map(both) else {
            return [there, in_place];
        };
        [least(there, other), least(in_place, other_in_place)]
    }
}

impl Sums {
    fn new(layers: &[Variants], rule: Rule) -> Self {
        let count = layers.len();
        let mut sums =
            Self { waiting: vec![f64::INFINITY; count + 1], direct: vec![0.0; count + 1] };
        for (place, layer) in layers.iter().enumerate().rev() {
            let parts = Parts::new(layer, place, rule);
            sums.direct[place] = sums.direct[place + 1] + parts.direct.0;
            let before = sums.waiting[place + 1] + parts.before.0;
            sums.waiting[place] = before.min(sums.direct[place + 1] + parts.last.0);
        }
        sums
    }
}

/// What is decided about a layer.
type Choice = (Mode, Gradient);

/// What one layer costs by a mixture, at the least, and with which choice.
struct Parts {
    /// Before the last that forward waits for.
    before: (f64, Choice),
    /// If it is the last.
    last: (f64, Choice),
    /// After it.
    direct: (f64, Choice),
}

impl Parts {
    fn new(layer: &Variants, place: usize, rule: Rule) -> Self {
        let cost = &layer.quickest;
        let weight = rule.weight_at(place);
        let [(there, kept), (in_place, other)] = rule.back(layer);
        let copied = (Mode::Gfgb, kept);
        let Some(copy) = cost.copy else {
            let (before, direct) = (weight * cost.forward + there, cost.forward + there);
            let last = (f64::INFINITY, copied);
            return Self { before: (before, copied), last, direct: (direct, copied) };
        };
        let there = there + rule.price * cost.bytes as f64;
        let (back, choice) = if in_place <= there {
            (in_place, (Mode::Dha, other))
        } else {
            (there, (Mode::Dfgb, kept))
        };
        let before = weight * cost.forward + (1.0 - weight) * copy + there;
        let read = weight * cost.direct_forward + (1.0 - weight) * cost.direct_forward_link + back;
        Self {
            before: if before < read { (before, copied) } else { (read, choice) },
            last: ((1.0 - weight) * copy + cost.forward + there, copied),
            direct: (cost.direct_forward + back, choice),
        }
    }
}

/// The search for mixtures and prices. The bound at the start is concave in both.
struct Look<'a> {
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

impl<'a> Look<'a> {
    fn new(layers: &'a [Variants], capacity: u64, reserve: u64) -> Self {
        let parameters: u64 = layers.iter().map(|layer| layer.quickest.bytes).sum();
        let gradients: u64 = layers.iter().map(|layer| layer.quickest.kept).sum();
        let worth = |layer: &Variants| {
            let cost = &layer.quickest;
            let longer = cost.direct_forward + cost.direct_backward;
            let shorter = cost.forward.min(cost.direct_forward) + cost.backward;
            (longer - shorter).max(0.0) / cost.bytes.max(1) as f64
        };
        let worths = layers.iter().filter(|layer| layer.quickest.bytes > 0).map(worth);
        let gradient_worth = |layer: &Variants| {
            let longer = |other: &Cost| {
                let written = other.leaving.seconds().max(other.backward);
                (written - layer.quickest.backward)
                    .max(other.leaving.seconds() - layer.quickest.leaving.seconds())
                    .max(0.0)
            };
            let longer = layer.other.as_ref().map_or(0.0, longer);
            longer / layer.quickest.kept.max(1) as f64
        };
        let gradient_price_max = layers.iter().map(gradient_worth).fold(0.0, f64::max);
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

    /// The best weight and price for a turn.
    fn best(&self, turn: usize, after: After) -> Rule {
        let mut rule = Rule { weight: 0.5, turn, price: 0.0, gradient_price: 0.0, after };
        for _ in 0..if self.is_scarce || self.is_reserve_scarce { 2 } else { 1 } {
            rule.weight = highest(|weight| self.bound(Rule { weight, ..rule }));
            if self.is_scarce {
                rule = self.priced(rule, self.price_max, |price| Rule { price, ..rule });
            }
            if self.is_reserve_scarce {
                let with = |gradient_price| Rule { gradient_price, ..rule };
                rule = self.priced(rule, self.gradient_price_max, with);
            }
        }
        rule
    }

    /// The rule with the best price up to `most`, if there is one.
    fn priced(&self, rule: Rule, most: f64, with: impl Fn(f64) -> Rule) -> Rule {
        // What a byte is worth differs by orders of magnitude between layers.
        let price = |part: f64| most * PRICE_SPAN.powf(1.0 - part);
        let part = highest(|part| self.bound(with(price(part))));
        let priced = with(price(part));
        if self.bound(priced) > self.bound(rule) { priced } else { rule }
    }

    /// The bound before anything is decided, short of a constant.
    fn bound(&self, rule: Rule) -> f64 {
        let (mut waiting, mut direct) = (f64::INFINITY, 0.0);
        for (place, layer) in self.layers.iter().enumerate().rev() {
            let parts = Parts::new(layer, place, rule);
            waiting = (waiting + parts.before.0).min(direct + parts.last.0);
            direct += parts.direct.0;
        }
        let priced = rule.price * self.capacity as f64;
        waiting.min(direct) - priced - rule.gradient_price * self.reserve as f64
    }

    /// The modes and places that give the bound.
    fn decide(&self, rule: Rule) -> Vec<Choice> {
        let sums = Sums::new(self.layers, Rule { after: After::Backward, ..rule });
        let mut waits = sums.waiting[0] < sums.direct[0];
        let mut decided = Vec::with_capacity(self.layers.len());
        for (place, layer) in self.layers.iter().enumerate() {
            let parts = Parts::new(layer, place, Rule { after: After::Backward, ..rule });
            let is_last = waits
                && sums.direct[place + 1] + parts.last.0
                    <= sums.waiting[place + 1] + parts.before.0;
            decided.push(match (waits, is_last) {
                (true, true) => parts.last.1,
                (true, false) => parts.before.1,
                (false, _) => parts.direct.1,
            });
            waits &= !is_last;
        }
        decided
    }
}

/// Where a function of 0 to 1 with one summit is highest, about.
fn highest(of: impl Fn(f64) -> f64) -> f64 {
    const SECTION: f64 = 0.618;
    let (mut low, mut high) = (0.0, 1.0);
    let (mut left, mut right) = (1.0 - SECTION, SECTION);
    let (mut at_left, mut at_right) = (of(left), of(right));
    for _ in 0..LOOKS {
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
