//! Which gradients stay on the device until they are copied out.
//!
//! Backward is shorter if it leaves a gradient in a buffer on the device than if it writes it over the link.
//! Memory for such buffers is reserved, and which gradients are to have them is the knapsack problem: the most
//! seconds saved within the reserve. The paper fills a table of layers by bytes; sizes in bytes would make
//! that table too large, so here the frontier of (bytes, seconds) is kept instead, in the order of seconds
//! saved for a byte, and what can't become better than the best so far is left out. The result is the same.
//!
//! *States.* None. *Bounds.* [`PAIRS_MAX`] limits the pairs of all layers together; beyond that, those that
//! promise least are dropped.

#[cfg(test)]
#[cfg(not(loom))]
mod tests;

use crate::plan::parameters::{Layer, Profile};

/// Pairs of bytes and seconds, of all layers together.
pub const PAIRS_MAX: usize = 1 << 15;
/// Pairs after one layer, at the least.
const WIDTH_MIN: usize = 24;
/// Parts of the best by which another must be better to be looked for: less is rounding.
const ROUNDING: f64 = 1e-9;

/// What could stay.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Item {
    /// It would take.
    pub bytes: u64,
    /// It would save.
    pub seconds: f64,
}

/// Whether each layer's gradient stays within `reserve` bytes.
pub fn keep(profile: &Profile, reserve: u64) -> Vec<bool> {
    let item = |layer: &Layer| Item {
        bytes: layer.gradient_bytes,
        seconds: layer.direct_gradient_seconds,
    };
    choose(&profile.layers.iter().map(item).collect::<Vec<_>>(), reserve)
}

/// Whether each item is among those that save most and fit. If all fit, all stay.
pub fn choose(items: &[Item], reserve: u64) -> Vec<bool> {
    let everything: u64 = items.iter().map(|item| item.bytes).sum();
    if everything <= reserve {
        return vec![true; items.len()];
    }
    let rate = |item: &Item| item.seconds / item.bytes as f64;
    let mut order: Vec<usize> = (0..items.len()).collect();
    // Nothing is gained by what saves nothing; what takes no room is always taken.
    order.retain(|id| items[*id].seconds > 0.0 && (1..=reserve).contains(&items[*id].bytes));
    order.sort_by(|a, b| rate(&items[*b]).total_cmp(&rate(&items[*a])));
    let sorted: Vec<Item> = order.iter().map(|id| items[*id]).collect();
    let mut chosen: Vec<bool> = items.iter().map(|item| item.bytes == 0).collect();
    for (id, is_in) in order.into_iter().zip(Knapsack::new(&sorted, reserve).solve()) {
        chosen[id] = is_in;
    }
    chosen
}

/// Some of the first items.
#[derive(Debug, Clone, Copy)]
struct Pair {
    bytes: u64,
    seconds: f64,
    /// The most that it can become.
    promise: f64,
    /// Where its last item stands in the trail.
    trail: usize,
}

/// Before the first item.
const START: usize = usize::MAX;

struct Knapsack<'a> {
    /// By seconds a byte.
    items: &'a [Item],
    reserve: u64,
    /// Bytes and seconds of all items before each.
    sums: Vec<(u64, f64)>,
    /// Items that were taken, each with the one before.
    trail: Vec<(usize, usize)>,
}

impl<'a> Knapsack<'a> {
    fn new(items: &'a [Item], reserve: u64) -> Self {
        let mut sums = vec![(0, 0.0)];
        let mut sum = (0, 0.0);
        for item in items {
            sum = (sum.0 + item.bytes, sum.1 + item.seconds);
            sums.push(sum);
        }
        Self { items, reserve, sums, trail: Vec::new() }
    }

    fn solve(mut self) -> Vec<bool> {
        let mut frontier = vec![Pair { bytes: 0, seconds: 0.0, promise: 0.0, trail: START }];
        let mut best = self.greedy();
        for (place, item) in self.items.iter().enumerate() {
            let mut with: Vec<Pair> = Vec::with_capacity(frontier.len());
            for pair in &frontier {
                if pair.bytes + item.bytes <= self.reserve {
                    self.trail.push((pair.trail, place));
                    let trail = self.trail.len() - 1;
                    let (bytes, seconds) = (pair.bytes + item.bytes, pair.seconds + item.seconds);
                    best = best.max(seconds);
                    with.push(Pair { bytes, seconds, promise: 0.0, trail });
                }
            }
            frontier = merge(&frontier, &with);
            let enough = best - best * ROUNDING;
            self.promise(&mut frontier, place + 1);
            frontier.retain(|pair| pair.seconds >= enough || pair.promise >= enough);
            self.narrow(&mut frontier);
        }
        let most = frontier.iter().max_by(|a, b| a.seconds.total_cmp(&b.seconds));
        self.taken(most.map_or(START, |pair| pair.trail))
    }

    /// What taking all that still fit comes to.
    fn greedy(&self) -> f64 {
        let mut left = self.reserve;
        let fits = |item: &&Item| {
            let fits = item.bytes <= left;
            left -= if fits { item.bytes } else { 0 };
            fits
        };
        self.items.iter().filter(fits).map(|item| item.seconds).sum()
    }

    /// What each pair can become with the items from `place` on: whole ones in order, and a part of the first
    /// that does not fit. Pairs come by bytes, so that one fits no more items than the one before.
    fn promise(&self, frontier: &mut [Pair], place: usize) {
        let (bytes, seconds) = self.sums[place];
        let mut end = self.items.len();
        for pair in frontier {
            let limit = self.reserve - pair.bytes + bytes;
            while self.sums[end].0 > limit {
                end -= 1;
            }
            let whole = pair.seconds + self.sums[end].1 - seconds;
            let part = self.items.get(end).map_or(0.0, |item| {
                (limit - self.sums[end].0) as f64 / item.bytes as f64 * item.seconds
            });
            pair.promise = whole + part;
        }
    }

    /// Keeps those that promise most.
    fn narrow(&self, frontier: &mut Vec<Pair>) {
        let width = (PAIRS_MAX / self.items.len()).max(WIDTH_MIN);
        if frontier.len() > width {
            frontier.select_nth_unstable_by(width, |a, b| {
                b.promise.total_cmp(&a.promise).then(a.bytes.cmp(&b.bytes))
            });
            frontier.truncate(width);
            frontier.sort_unstable_by_key(|pair| pair.bytes);
        }
    }

    fn taken(&self, mut at: usize) -> Vec<bool> {
        let mut taken = vec![false; self.items.len()];
        while at != START {
            let (before, place) = self.trail[at];
            taken[place] = true;
            at = before;
        }
        taken
    }
}

/// Both by bytes, without those that take more and save no more than another.
fn merge(a: &[Pair], b: &[Pair]) -> Vec<Pair> {
    let mut merged: Vec<Pair> = Vec::with_capacity(a.len() + b.len());
    let (mut a, mut b) = (a.iter().peekable(), b.iter().peekable());
    loop {
        let from_a = match (a.peek(), b.peek()) {
            (Some(a), Some(b)) => (a.bytes, -a.seconds) <= (b.bytes, -b.seconds),
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (None, None) => return merged,
        };
        let next = if from_a { a.next() } else { b.next() };
        if let Some(pair) = next
            && merged.last().is_none_or(|last| pair.seconds > last.seconds)
        {
            merged.push(*pair);
        }
    }
}
