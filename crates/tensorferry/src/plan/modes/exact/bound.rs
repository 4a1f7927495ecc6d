//! How soon an iteration can end at best, when the first layers have their modes.
//!
//! Let *m* be the last layer that forward waits for. The iteration ends no earlier than compute allows, and
//! no earlier than the link allows, which has to copy everything up to *m* before forward can go on from
//! there. Of two such times any mixture is a bound too, and in a mixture each layer can be judged by itself:
//! its least is a sum that is worked out once. Memory joins by a price for each byte. Which mixture and
//! which price give the highest bound is looked for at the start; a handful is kept, because what binds
//! changes along the way.

use super::tail::Tail;
use crate::plan::modes::Mode;
use crate::plan::simulate::parameters::Cost;

/// Steps of a search for the best mixture or price.
const LOOKS: usize = 14;

/// A mixture, a price, and what the layers from each place on cost by them.
#[derive(Debug, Clone)]
struct Mixture {
    /// The weight of compute; the link has the rest.
    weight: f64,
    /// Of a byte, in seconds.
    price: f64,
    /// With backward.
    whole: Sums,
    /// Forward only.
    forward: Sums,
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
    /// The bounds for layers that share `capacity` bytes, and modes that some of the mixtures find best.
    pub(super) fn new(costs: &[Cost], capacity: u64) -> (Self, Vec<Vec<Mode>>) {
        let everything: u64 = costs.iter().map(|cost| cost.bytes).sum();
        let look = Look { costs, capacity, is_scarce: everything > capacity };
        let (whole, forward) = (look.best(true), look.best(false));
        let middle = |(weight, price): (f64, f64), other: f64| (f64::midpoint(weight, other), price);
        let mut pairs = vec![whole, forward, middle(whole, 1.0), middle(whole, 0.0), (1.0, whole.1)];
        pairs.dedup();
        let mixtures: Vec<Mixture> =
            pairs.iter().map(|(weight, price)| Mixture::new(costs, *weight, *price)).collect();
        let guesses = pairs.iter().map(|pair| look.modes(*pair)).collect();
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
        (Self { mixtures, capacity, rest: rest.compute, link }, guesses)
    }

    /// No completion ends sooner.
    pub(super) fn of(&self, known: &Known) -> f64 {
        let Known { layers, compute, inwards, bytes, tail } = *known;
        let over = bytes as f64 - self.capacity as f64;
        let mut bound = inwards + tail.inwards + self.link[layers];
        for Mixture { weight, price, whole, forward } in &self.mixtures {
            let mixed = weight * compute + (1.0 - weight) * inwards;
            let least =
                |sums: &Sums| (mixed + sums.waiting[layers]).min(compute + sums.direct[layers]);
            let later = (least(whole) + tail.compute).max(least(forward) + self.rest);
            bound = bound.max(later + price * over);
        }
        bound
    }
}

impl Mixture {
    fn new(costs: &[Cost], weight: f64, price: f64) -> Self {
        let [whole, forward] = [1.0, 0.0].map(|backward| Sums::new(costs, weight, price, backward));
        Self { weight, price, whole, forward }
    }
}

impl Sums {
    fn new(costs: &[Cost], weight: f64, price: f64, backward: f64) -> Self {
        let count = costs.len();
        let mut sums = Self { waiting: vec![f64::INFINITY; count + 1], direct: vec![0.0; count + 1] };
        for (place, cost) in costs.iter().enumerate().rev() {
            let parts = Parts::new(cost, weight, price, backward);
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
    fn new(cost: &Cost, weight: f64, price: f64, backward: f64) -> Self {
        let bytes = price * cost.bytes as f64;
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
}

impl Look<'_> {
    fn best(&self, whole: bool) -> (f64, f64) {
        let backward = if whole { 1.0 } else { 0.0 };
        let (mut weight, mut price) = (0.5, 0.0);
        for _ in 0..if self.is_scarce { 3 } else { 1 } {
            weight = highest(1.0, |weight| self.bound((weight, price), backward));
            if self.is_scarce {
                price = highest(self.price_max(), |price| self.bound((weight, price), backward));
            }
        }
        (weight, price)
    }

    /// The bound before anything is decided, short of a constant.
    fn bound(&self, (weight, price): (f64, f64), backward: f64) -> f64 {
        let (mut waiting, mut direct) = (f64::INFINITY, 0.0);
        for cost in self.costs.iter().rev() {
            let parts = Parts::new(cost, weight, price, backward);
            waiting = (waiting + parts.before.0).min(direct + parts.last);
            direct += parts.direct.0;
        }
        waiting.min(direct) - price * self.capacity as f64
    }

    /// No layer is worth more: a byte more would not be taken at this price.
    fn price_max(&self) -> f64 {
        let worth = |cost: &Cost| {
            let longer = cost.direct_forward + cost.direct_backward;
            (longer - cost.forward.min(cost.direct_forward) - cost.backward).max(0.0)
                / cost.bytes.max(1) as f64
        };
        self.costs.iter().filter(|cost| cost.bytes > 0).map(worth).fold(0.0, f64::max)
    }

    /// The modes that give the bound.
    fn modes(&self, (weight, price): (f64, f64)) -> Vec<Mode> {
        let sums = Sums::new(self.costs, weight, price, 1.0);
        let mut waits = sums.waiting[0] < sums.direct[0];
        let mut modes = Vec::with_capacity(self.costs.len());
        for (place, cost) in self.costs.iter().enumerate() {
            let parts = Parts::new(cost, weight, price, 1.0);
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

/// Where a concave function of `0..=most` is highest, about.
fn highest(most: f64, of: impl Fn(f64) -> f64) -> f64 {
    let (mut low, mut high) = (0.0, most);
    for _ in 0..LOOKS {
        let (left, right) = (low + (high - low) * 0.382, low + (high - low) * 0.618);
        if of(left) < of(right) { low = left } else { high = right }
    }
    f64::midpoint(low, high)
}
