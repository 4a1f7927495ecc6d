//! Who goes first.
//!
//! Ranks change at every use, and only few samples ever leave, so nothing is moved when a rank
//! changes: a new entry is added, and an old one is recognised when it comes to the top, since the
//! sample has another rank by then. Entries are at most [`SLACK`] times as many as samples kept.

use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use super::policy::{Policy, Rank};

/// Entries for each sample kept before the outdated ones are swept.
const SLACK: usize = 2;
/// Up to this many entries sweeping is not worth a thought.
const SWEPT_FROM: usize = 64;

/// Samples by rank, some of them outdated.
#[derive(Debug)]
pub(super) struct Queue {
    order: Order,
    entries: usize,
}

#[derive(Debug)]
enum Order {
    /// Nobody ever leaves.
    Still,
    /// Ranks fall from use to use: who was added first has the highest.
    Falling(VecDeque<(Rank, u32)>),
    /// Few different ranks; among equals, who was added last goes first. No list is empty.
    Few(BTreeMap<Rank, Vec<u32>>),
    /// Any ranks.
    Many(BinaryHeap<(Rank, u32)>),
}

impl Queue {
    pub(super) fn new(policy: Policy) -> Self {
        let order = match policy {
            Policy::NeverEvict => Order::Still,
            Policy::Lru => Order::Falling(VecDeque::new()),
            Policy::NoPfs | Policy::Belady => Order::Few(BTreeMap::new()),
            Policy::Lobster => Order::Many(BinaryHeap::new()),
        };
        Self { order, entries: 0 }
    }

    pub(super) fn push(&mut self, rank: Rank, id: u32) {
        self.entries += 1;
        match &mut self.order {
            Order::Still => self.entries = 0,
            Order::Falling(queue) => queue.push_back((rank, id)),
            Order::Few(lists) => lists.entry(rank).or_default().push(id),
            Order::Many(heap) => heap.push((rank, id)),
        }
    }

    /// The entry of the highest rank.
    pub(super) fn peek(&self) -> Option<(Rank, u32)> {
        match &self.order {
            Order::Still => None,
            Order::Falling(queue) => queue.front().copied(),
            Order::Few(lists) => {
                lists.last_key_value().and_then(|(rank, ids)| Some((*rank, *ids.last()?)))
            }
            Order::Many(heap) => heap.peek().copied(),
        }
    }

    /// Removes the entry of the highest rank.
    pub(super) fn pop(&mut self) {
        self.entries = self.entries.saturating_sub(1);
        match &mut self.order {
            Order::Still => {}
            Order::Falling(queue) => drop(queue.pop_front()),
            Order::Many(heap) => drop(heap.pop()),
            Order::Few(lists) => {
                if let Some(mut last) = lists.last_entry() {
                    last.get_mut().pop();
                    if last.get().is_empty() {
                        last.remove();
                    }
                }
            }
        }
    }

    /// Takes back what was popped last and is kept after all.
    pub(super) fn restore(&mut self, rank: Rank, id: u32) {
        if let Order::Falling(queue) = &mut self.order {
            queue.push_front((rank, id));
            self.entries += 1;
        } else {
            self.push(rank, id);
        }
    }

    /// Whether the outdated entries have become too many for that many samples.
    pub(super) const fn is_slack(&self, kept: usize) -> bool {
        self.entries > SWEPT_FROM && self.entries > SLACK * kept
    }

    #[cfg(test)]
    pub(super) const fn entries(&self) -> usize {
        self.entries
    }

    /// Starts again with one entry for each sample kept.
    pub(super) fn rebuild(&mut self, kept: impl Iterator<Item = (Rank, u32)>) {
        match &mut self.order {
            Order::Still => {}
            Order::Falling(queue) => queue.clear(),
            Order::Few(lists) => lists.clear(),
            Order::Many(heap) => heap.clear(),
        }
        self.entries = 0;
        kept.for_each(|(rank, id)| self.push(rank, id));
        if let Order::Falling(queue) = &mut self.order {
            queue.make_contiguous().sort_unstable_by(|a, b| b.cmp(a));
        }
    }
}
