//! Who goes first.
//!
//! Ranks change at every use, and only few samples ever leave, so nothing is moved when a rank
//! changes: a new entry is added, and an old one is recognised when it comes to the top, since the
//! sample has another rank by then. Entries are at most [`SLACK`] times as many as samples kept.

use std::collections::{BinaryHeap, VecDeque};

use super::policy::{Policy, Rank};

/// Entries for each sample kept before the outdated ones are swept.
const SLACK: usize = 2;
/// Below this many entries sweeping is not worth a thought.
const SWEPT_FROM: usize = 64;

/// Samples by rank, some of them outdated.
#[derive(Debug)]
pub(super) enum Queue {
    /// Nobody ever leaves.
    Still,
    /// Ranks fall from use to use: who was added first has the highest.
    Falling(VecDeque<(Rank, u32)>),
    /// Any order.
    Mixed(BinaryHeap<(Rank, u32)>),
}

impl Queue {
    pub(super) fn new(policy: Policy) -> Self {
        match policy {
            Policy::NeverEvict => Self::Still,
            Policy::Lru => Self::Falling(VecDeque::new()),
            Policy::NoPfs | Policy::Lobster | Policy::Belady => Self::Mixed(BinaryHeap::new()),
        }
    }

    pub(super) fn push(&mut self, rank: Rank, id: u32) {
        match self {
            Self::Still => {}
            Self::Falling(entries) => entries.push_back((rank, id)),
            Self::Mixed(entries) => entries.push((rank, id)),
        }
    }

    pub(super) fn peek(&self) -> Option<(Rank, u32)> {
        match self {
            Self::Still => None,
            Self::Falling(entries) => entries.front().copied(),
            Self::Mixed(entries) => entries.peek().copied(),
        }
    }

    pub(super) fn pop(&mut self) {
        match self {
            Self::Still => {}
            Self::Falling(entries) => drop(entries.pop_front()),
            Self::Mixed(entries) => drop(entries.pop()),
        }
    }

    /// Takes back what was popped and is kept after all.
    pub(super) fn restore(&mut self, rank: Rank, id: u32) {
        match self {
            Self::Still => {}
            Self::Falling(entries) => entries.push_front((rank, id)),
            Self::Mixed(entries) => entries.push((rank, id)),
        }
    }

    /// Whether the outdated entries have become too many for that many samples.
    pub(super) fn is_slack(&self, kept: usize) -> bool {
        self.len() > SWEPT_FROM.max(SLACK * kept)
    }

    /// Starts again with one entry for each sample kept.
    pub(super) fn rebuild(&mut self, kept: impl Iterator<Item = (Rank, u32)>) {
        match self {
            Self::Still => {}
            Self::Falling(entries) => {
                entries.clear();
                entries.extend(kept);
                entries.make_contiguous().sort_unstable_by(|a, b| b.cmp(a));
            }
            Self::Mixed(entries) => {
                let mut emptied = std::mem::take(entries).into_vec();
                emptied.clear();
                emptied.extend(kept);
                *entries = BinaryHeap::from(emptied);
            }
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Still => 0,
            Self::Falling(entries) => entries.len(),
            Self::Mixed(entries) => entries.len(),
        }
    }
}
