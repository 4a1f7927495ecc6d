//! How soon an iteration can end at best, when the first layers have their modes.
//!
//! Compute is never ahead of the link: a layer that is copied waits, and one that reads in place takes longer
//! than its reading. So forward ends no earlier than compute allows, and no earlier than the link allows up
//! to some layer and compute from there on. Of such times any mixture is a bound too, and in a mixture each
//! layer can be judged by itself: its least is a sum that is worked out once. Memory joins by a price for each
//! byte. Which mixture and which price give the highest bound is looked for at the start; a handful is kept,
//! because what binds changes along the way.

use super::tail::Tail;
use crate::plan::modes::Mode;
use crate::plan::simulate::parameters::Cost;

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
    /// Whether backward counts.
    backward: bool,
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
    /// From the end of forward to the end, at the least.
    rest: f64,
    /// What the link carries from each layer on, at the least.
    link: Vec<f64>,
}

/// What a state is judged by.
#[derive(Debug, Clone, Copy)]
pub(super) struct Known {
    /// Layers that have their modes.
    pub(super) layers: usize,
    pub(super) compute: f64,
    pub(super) inwards: f64,
    pub(super) bytes: u64,
    pub(super) tail: Tail,
}

impl Bounds {
    /// `turn` is the layer from which on the best plan that is known does not wait in forward.
    pub(super) fn new(start: &Start<'_>, turn: usize) -> Self {
        let Look { costs, capacity, .. } = start.look;
        let turned = [true, false].map(|backward| start.look.best(turn, backward));
        let mixture = |rule| Mixture { rule, sums: Sums::new(costs, rule) };
        let mixtures = start.rules.into_iter().chain(turned).map(mixture).collect();
        let mut updates = 0.0;
        let rest = costs.iter().fold(Tail::NONE, |tail, cost| {
            updates += cost.update;
            tail.least_after(cost, updates)
        });
        let mut link = vec![0.0; costs.len() + 1];
        for (place, cost) in costs.iter().enumerate().rev() {
            let direct = cost.direct_forward_link + cost.direct_backward_link;
            link[place] = link[place + 1] + cost.copy.map_or(0.0, |copy| copy.min(direct));
        }
        Self { mixtures, capacity, rest: rest.compute, link }
    }

    /// No completion ends sooner.
    pub(super) fn of(&self, known: &Known) -> f64 {
        let Known { layers, compute, inwards, bytes, tail } = *known;
        let over = bytes as f64 - self.capacity as f64;
        let mut bound = inwards + tail.inwards + self.link[layers];
        for Mixture { rule, sums } in &self.mixtures {
            let weight = rule.weight_at(layers);
            let mixed = weight * compute + (1.0 - weight) * inwards;
            let least = (mixed + sums.waiting[layers]).min(compute + sums.direct[layers]);
            let rest = if rule.backward { tail.compute } else { self.rest };
            bound = bound.max(least + rest + rule.price * over);
        }
        bound
    }
}

/// What is known before there is a plan.
pub(super) struct Start<'a> {
    look: Look<'a>,
    /// The best without a turn, with backward and without it.
    rules: [Rule; 2],
}

impl<'a> Start<'a> {
    /// Of layers that share `capacity` bytes.
    pub(super) fn new(costs: &'a [Cost], capacity: u64) -> Self {
        let look = Look::new(costs, capacity);
        let rules = [true, false].map(|backward| look.best(costs.len(), backward));
        Self { look, rules }
    }

    /// Modes that some mixtures find best. They may not fit.
    pub(super) fn guesses(&self) -> Vec<Vec<Mode>> {
        let [first, _] = self.rules;
        let half = Rule { weight: f64::midpoint(first.weight, 1.0), ..first };
        self.rules.into_iter().chain([half]).map(|rule| self.look.modes(rule)).collect()
    }
}

impl Rule {
    fn weight_at(&self, layer: usize) -> f64 {
        if layer < self.turn { self.weight } else { 1.0 }
    }
}

impl Sums {
    fn new(costs: &[Cost], rule: Rule) -> Self {
        let count = costs.len();
        let mut sums =
            Self { waiting: vec![f64::INFINITY; count + 1], direct: vec![0.0; count + 1] };
        for (place, cost) in costs.iter().enumerate().rev() {
            let parts = Parts::new(cost, place, rule);
            sums.direct[place] = sums.direct[place + 1] + parts.direct.0;
            let before = sums.waiting[place + 1] + parts.before.0;
            sums.waiting[place] = before.min(sums.direct[place + 1] + parts.last);
        }
        sums
    }
}

/// What one layer costs by a mixture, at the least, and in which mode.
struct Parts {
    /// Before the last that forward waits for.
    before: (f64, Mode),
    /// If it is the last.
    last: f64,
    /// After it.
    direct: (f64, Mode),
}

impl Parts {
    fn new(cost: &Cost, place: usize, rule: Rule) -> Self {
        let weight = rule.weight_at(place);
        let backward = if rule.backward { 1.0 } else { 0.0 };
        let bytes = rule.price * cost.bytes as f64;
        let (there, in_place) = (backward * cost.backward, backward * cost.direct_backward);
        let Some(copy) = cost.copy else {
            let (before, direct) = (weight * cost.forward + there, cost.forward + there);
            let (before, direct) = ((before, Mode::Gfgb), (direct, Mode::Gfgb));
            return Self { before, last: f64::INFINITY, direct };
        };
        let copied = weight * cost.forward + (1.0 - weight) * copy + there + bytes;
        let direct = if in_place <= there + bytes {
            (in_place, Mode::Dha)
        } else {
            (there + bytes, Mode::Dfgb)
        };
        let read = weight * cost.direct_forward + (1.0 - weight) * cost.direct_forward_link;
        let (read, mode) = (read + direct.0, direct.1);
        let before = if copied < read { (copied, Mode::Gfgb) } else { (read, mode) };
        let last = (1.0 - weight) * copy + cost.forward + there + bytes;
        Self { before, last, direct: (cost.direct_forward + direct.0, mode) }
    }
}

/// The search for mixtures and prices. The bound at the start is concave in both.
struct Look<'a> {
    costs: &'a [Cost],
    capacity: u64,
    is_scarce: bool,
    /// No byte is worth more.
    price_max: f64,
}

impl<'a> Look<'a> {
    fn new(costs: &'a [Cost], capacity: u64) -> Self {
        let everything: u64 = costs.iter().map(|cost| cost.bytes).sum();
        let worth = |cost: &Cost| {
            let longer = cost.direct_forward + cost.direct_backward;
            let shorter = cost.forward.min(cost.direct_forward) + cost.backward;
            (longer - shorter).max(0.0) / cost.bytes.max(1) as f64
        };
        let worths = costs.iter().filter(|cost| cost.bytes > 0).map(worth);
        let price_max = worths.fold(0.0, f64::max);
        Self { costs, capacity, is_scarce: everything > capacity, price_max }
    }

    /// The best weight and price for a turn.
    fn best(&self, turn: usize, backward: bool) -> Rule {
        let mut rule = Rule { weight: 0.5, turn, price: 0.0, backward };
        for _ in 0..if self.is_scarce { 2 } else { 1 } {
            rule.weight = highest(|weight| self.bound(Rule { weight, ..rule }));
            if self.is_scarce {
                // What a byte is worth differs by orders of magnitude between layers.
                let price = |part: f64| self.price_max * PRICE_SPAN.powf(1.0 - part);
                let part = highest(|part| self.bound(Rule { price: price(part), ..rule }));
                let priced = Rule { price: price(part), ..rule };
                rule = if self.bound(priced) > self.bound(rule) { priced } else { rule };
            }
        }
        rule
    }

    /// The bound before anything is decided, short of a constant.
    fn bound(&self, rule: Rule) -> f64 {
        let (mut waiting, mut direct) = (f64::INFINITY, 0.0);
        for (place, cost) in self.costs.iter().enumerate().rev() {
            let parts = Parts::new(cost, place, rule);
            waiting = (waiting + parts.before.0).min(direct + parts.last);
            direct += parts.direct.0;
        }
        waiting.min(direct) - rule.price * self.capacity as f64
    }

    /// The modes that give the bound.
    fn modes(&self, rule: Rule) -> Vec<Mode> {
        let sums = Sums::new(self.costs, Rule { backward: true, ..rule });
        let mut waits = sums.waiting[0] < sums.direct[0];
        let mut modes = Vec::with_capacity(self.costs.len());
        for (place, cost) in self.costs.iter().enumerate() {
            let parts = Parts::new(cost, place, Rule { backward: true, ..rule });
            let is_last = waits
                && sums.direct[place + 1] + parts.last <= sums.waiting[place + 1] + parts.before.0;
            modes.push(match (waits, is_last) {
                (true, true) => Mode::Gfgb,
                (true, false) => parts.before.1,
                (false, _) => parts.direct.1,
            });
            waits &= !is_last;
        }
        modes
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
