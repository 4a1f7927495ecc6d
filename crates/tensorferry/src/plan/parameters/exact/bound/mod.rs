//! How soon an iteration can end at best, when its first layers are decided: a bound that no completion beats.
//!
//! The search drops a state whose bound is no better than the best plan that is known. So a bound must never be
//! too high. It is built in five steps; each says what is claimed and why. `simulate/clocks.rs` has the rules that
//! they follow from.
//!
//! # What is given
//!
//! A *clock* is the time until which somebody is busy with what was decided so far: `C` of compute, `I` of the
//! link inwards, `O` of the link outwards. The first `k` of `n` layers are decided: forward of them has brought
//! the clocks to `C` and `I`. What backward of them will add is their [`Tail`]: the iteration ends at
//!
//! ```text
//!   E = max(C' + tail.compute, I' + tail.inwards, O' + tail.outwards)                                         (1)
//! ```
//!
//! where `C'`, `I'` and `O'` are the clocks when backward comes to layer `k − 1`, the last of them. Layers `k … n − 1`
//! are open. Layer `j` takes `c_j` seconds of compute in forward, and `i_j` of the link: its copy if it is copied
//! for forward (GFGB), otherwise what its kernel reads in place, which is no longer than the kernel.
//!
//! # 1. When forward ends
//!
//! A layer that is copied starts when compute is free and its copy is there; any other starts when compute is
//! free:
//!
//! ```text
//!   I ← I + i_j
//!   C ← max(C, I) + c_j   if copied        C ← C + c_j   if not
//! ```
//!
//! *Compute is never behind the link*: `C ≥ I` after each layer. It holds at first, as both are zero. A copied layer
//! makes `C` at least `I`, another one adds `c_j ≥ i_j` to a `C` that was at least `I`.
//!
//! So forward ends at `F`, and for every layer `w ≥ k`
//!
//! ```text
//!   F ≥ C + Σ(j ≥ k) c_j                                  compute never waits                                    (2)
//!   F ≥ I + Σ(k ≤ j ≤ w) i_j + Σ(j > w) c_j               the link up to w, compute from there on                (3)
//!   F ≥ the same + c_w   if w is copied                   it starts when its copy is there                       (4)
//! ```
//!
//! `F` is the latest of these times: a maximum of sums, one for each place where compute may wait last.
//!
//! # 2. A mixture instead of the maximum
//!
//! The least of a maximum over all completions can't be had layer by layer, the least of a sum can. And a maximum is
//! never less than a mixture: `max(a, b) ≥ λa + (1 − λ)b` for `0 ≤ λ ≤ 1`. So take a weight `λ` and a layer `t`
//! ([`Multipliers`]), and call `w` the last open layer that is copied.
//!
//! *No open layer is copied.* Then `F = C + Σ c_j` by the rules.
//!
//! *`w` is before `t`.* `λ` times (2) plus `1 − λ` times (4) is
//!
//! ```text
//!   F ≥ λC + (1 − λ)I + Σ(k ≤ j < w) [λc_j + (1 − λ)i_j] + [c_w + (1 − λ)i_w] + Σ(j > w) c_j
//! ```
//!
//! *`w` is not before `t`.* The same with (3) at layer `t − 1` instead of (4): from `t` on compute has all the weight,
//! which is the formula above with `λ = 1` there. If `t` is decided already, (2) is all that is used.
//!
//! In each case a layer adds a term of its own: one *before the last copy*, one *of the last copy*, one *after it*
//! ([`LayerTerms`](relaxation::LayerTerms)). The least over all completions is a sum of each layer's least terms, with the best place for
//! the last copy, which [`LeastSums`] works out once for all states, from the last layer on.
//!
//! # 3. What follows forward
//!
//! Between `F` and `E` each of these is true, and a relaxation takes one of them ([`AfterForward`]):
//!
//! ```text
//!   E ≥ F + Σ(j ≥ k) b_j + tail.compute      b_j: backward of j, or its gradient's writes if they are longer     (5)
//!   E ≥ F + Σ(j ≥ k) g_j + tail.outwards     g_j: how long j's gradient takes the link outwards                  (6)
//!   E ≥ F + rest                             rest: the least that backward of all layers can take                (7)
//! ```
//!
//! (5): compute is free for backward at `F` at the earliest and does the layers one after the other. (6): the link
//! outwards is idle until backward begins and carries gradients one after the other. If it carries none, it claims
//! `F + tail.outwards`; that is true because `tail.compute ≥ tail.outwards` always: what leaves does so after some
//! kernel. (7) is worked out as a tail, with the least of all choices for each clock; to it come the least clocks
//! after backward of the open layers, with the tails of those that are decided, as in (1).
//!
//! `b_j` and `g_j` belong to one layer and depend on its choice alone, so they go into its terms.
//!
//! # 4. Prices instead of limits
//!
//! Parameters and gradients on the device take at most `capacity` bytes, gradients at most `reserve`. A completion
//! that keeps to this has `bytes − capacity ≤ 0`, so that `E + p · (bytes − capacity)` is no more than `E`, for any price
//! `p ≥ 0` of a byte. The same goes for gradients with a price of their own. Bytes are a sum over layers: each adds
//! its own to its term, and the limits, with what is decided, are a constant. Now the open layers may choose as if
//! there was no limit, each for itself. This is the Lagrangian relaxation of the knapsack.
//!
//! # 5. The best of a few
//!
//! Steps 2 to 4 give a bound for every `λ`, `t`, price and choice of (5) to (7). The bound at the start is a minimum
//! of functions that are linear in `λ` and in the prices, so it is concave in each, and a search by golden section
//! finds good ones (`dual.rs`). Any others would be as true: how well the search does decides how much is pruned, and
//! never what is right. A few are kept, because what binds changes from layer to layer: for each of (5) to (7) one for
//! the whole of forward, and one whose `t` is where the best known plan waits last.
//!
//! One more bound needs no mixture: the link inwards has to carry what is left,
//! `E ≥ I + Σ(j ≥ k) least link of j + tail.inwards`, by (1).
//!
//! The bound of a state is the highest of all of these.

mod dual;
mod relaxation;

pub(super) use self::dual::Start;
use self::relaxation::{AfterForward, LeastSums, Multipliers};
use super::tail::Tail;
use crate::plan::parameters::simulate::{Cost, Leaving, Variants};

/// A relaxation: its multipliers, and the least that open layers cost by them.
#[derive(Debug, Clone)]
struct Relaxation {
    multipliers: Multipliers,
    sums: LeastSums,
}

/// The bounds of all states of a search.
#[derive(Debug)]
pub(super) struct Bounds {
    relaxations: Vec<Relaxation>,
    capacity: u64,
    reserve: u64,
    /// From the end of forward to the end, at the least: `rest` in (7).
    rest: f64,
    /// What the link carries inwards from each layer on, at the least.
    link: Vec<f64>,
    /// From the end of forward to the end of backward of each layer, at the least: the clocks of compute and of the
    /// link outwards.
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
    /// `last_wait` is the layer from which on the best plan that is known does not wait in forward.
    pub(super) fn new(start: &Start<'_>, last_wait: usize) -> Self {
        let (layers, capacity, reserve) = start.limits();
        let relaxation =
            |multipliers| Relaxation { multipliers, sums: LeastSums::new(layers, multipliers) };
        let relaxations = start.multipliers(last_wait).map(relaxation).collect();
        let rest = least_rest(layers);
        let mut link = vec![0.0; layers.len() + 1];
        let mut back = vec![(0.0, 0.0); layers.len() + 1];
        for (place, layer) in layers.iter().enumerate().rev() {
            let cost = &layer.quickest;
            let direct = cost.direct_forward_link + cost.direct_backward_link;
            link[place] = link[place + 1] + cost.copy.map_or(0.0, |copy| copy.min(direct));
            back[place] = least_back(layer, back[place + 1]);
        }
        Self { relaxations, capacity, reserve, rest, link, back }
    }

    /// No completion ends sooner.
    pub(super) fn of(&self, known: &Known) -> f64 {
        let Known { layers, compute, inwards, bytes, kept, tail } = *known;
        let over = bytes as f64 - self.capacity as f64;
        let gradients_over = kept as f64 - self.reserve as f64;
        let mut bound = inwards + tail.inwards + self.link[layers];
        let (computed, left) = self.back[layers];
        let least_rest = self.rest.max(computed + tail.compute).max(left + tail.outwards);
        for Relaxation { multipliers, sums } in &self.relaxations {
            let weight = multipliers.weight_at(layers);
            let mixed = weight * compute + (1.0 - weight) * inwards;
            let forward =
                (mixed + sums.with_a_copy[layers]).min(compute + sums.without_a_copy[layers]);
            let rest = match multipliers.after {
                AfterForward::Backward => tail.compute,
                AfterForward::Gradients => tail.outwards,
                AfterForward::Least => least_rest,
            };
            let priced =
                multipliers.byte_price * over + multipliers.gradient_price * gradients_over;
            bound = bound.max(forward + rest + priced);
        }
        bound
    }
}

/// The seconds from the end of forward to the end of the iteration, whatever is chosen: a tail of all layers that
/// is the least of their choices for each clock.
fn least_rest(layers: &[Variants]) -> f64 {
    let mut updates = 0.0;
    let rest = layers.iter().fold(Tail::NONE, |tail, layer| {
        updates += layer.quickest.update;
        let least = |cost| tail.least_after(cost, updates);
        let quickest = least(&layer.quickest);
        layer.other.as_ref().map_or(quickest, |other| quickest.least(least(other)))
    });
    rest.compute
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

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use crate::plan::parameters::Mode;
    use crate::plan::parameters::exact::cases::case;
    use crate::plan::parameters::simulate::Clocks;

    /// Rounding, as a share of an iteration.
    const ROUNDING: f64 = 1e-9;

    /// Every way to decide about the layers of a case.
    struct All<'a> {
        layers: &'a [Variants],
        bounds: &'a Bounds,
        states: usize,
    }

    impl All<'_> {
        /// When the best completion ends, of which there may be none; no bound of a state on the way is higher.
        fn best(&mut self, known: &Known, updates: f64) -> f64 {
            let Known { layers: count, compute, inwards, bytes, kept, tail } = *known;
            let Some(layer) = self.layers.get(count) else {
                return (compute + tail.compute).max(inwards + tail.inwards);
            };
            self.states += 1;
            let updates = updates + layer.quickest.update;
            let mut best = f64::INFINITY;
            for cost in layer.all() {
                for mode in Mode::ALL {
                    let copied = if mode.is_copied() { cost.bytes } else { 0 };
                    let next = (bytes + cost.kept + copied, kept + cost.kept);
                    let fits = next.0 <= self.bounds.capacity && next.1 <= self.bounds.reserve;
                    if !fits || (cost.copy.is_none() && mode != Mode::Gfgb) {
                        continue;
                    }
                    let mut clocks = Clocks { compute, inwards, ..Default::default() };
                    clocks.forward(cost, mode);
                    let next = Known {
                        layers: count + 1,
                        compute: clocks.compute,
                        inwards: clocks.inwards,
                        bytes: next.0,
                        kept: next.1,
                        tail: tail.after(cost, mode, updates),
                    };
                    best = best.min(self.best(&next, updates));
                }
            }
            let bound = self.bounds.of(known);
            assert!(bound <= best * (1.0 + ROUNDING), "{bound} is above {best}: {known:?}");
            best
        }
    }

    #[test]
    fn no_completion_ends_before_the_bound_of_any_state() {
        let start =
            Known { layers: 0, compute: 0.0, inwards: 0.0, bytes: 0, kept: 0, tail: Tail::NONE };
        let mut states = 0;
        for seed in 0..60 {
            let case = case(seed, 4);
            let capacity = case.budget.saturating_sub(case.profile.work_bytes);
            let reserve = case.gradient_reserve.min(capacity);
            let layers = Variants::of(&case.profile, reserve);
            for last_wait in [0, 2, 4] {
                let bounds = Bounds::new(&Start::new(&layers, capacity, reserve), last_wait);
                let mut all = All { layers: &layers, bounds: &bounds, states: 0 };
                all.best(&start, 0.0);
                states += all.states;
            }
        }
        assert!(states > 10_000, "only {states} states were looked at");
    }
}
