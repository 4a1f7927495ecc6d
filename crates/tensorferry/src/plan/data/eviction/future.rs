//! Next uses, from the orders of coming epochs.

use std::collections::VecDeque;

use super::moment::Moment;
use crate::error::{Error, Result};
use crate::plan::data::order::SAMPLES_MAX;

/// The most epochs that are known at once, the current one included. A rank of a world of `w` uses a
/// sample every `w` epochs on average; what it does not use for so long need not be kept.
pub const EPOCHS_AHEAD_MAX: usize = 64;

/// When one node uses which sample, in the current epoch and some coming ones.
///
/// One bit for each sample of the dataset and four bytes for each use, in each epoch known. On one node the
/// next epoch is all there is to know; of several, each should know about twice as many epochs ahead
/// as there are nodes.
#[derive(Debug, Clone)]
pub struct Future {
    len: u32,
    first: u32,
    epochs: VecDeque<Uses>,
}

impl Future {
    /// Of a dataset of that many samples; no epoch is known yet.
    pub fn new(len: u64) -> Result<Self> {
        if len > SAMPLES_MAX {
            let message =
                format!("{len} samples are more than the {SAMPLES_MAX} that can be numbered");
            return Err(Error::invalid(message));
        }
        Ok(Self { len: len as u32, first: 0, epochs: VecDeque::new() })
    }

    /// The node's order in the epoch after the last one known.
    pub fn push_epoch(&mut self, order: &[u32]) -> Result<()> {
        if self.epochs.len() == EPOCHS_AHEAD_MAX {
            return Err(Error::invalid(format!(
                "{EPOCHS_AHEAD_MAX} epochs are known already; forget those that are over"
            )));
        }
        if let Some(id) = order.iter().find(|id| **id >= self.len) {
            let message = format!("there is no sample {id} in a dataset of {}", self.len);
            return Err(Error::invalid(message));
        }
        self.epochs.push_back(Uses::new(self.len, order));
        Ok(())
    }

    /// Forgets the epochs before this one.
    pub fn forget_before(&mut self, epoch: u32) {
        while self.first < epoch {
            self.epochs.pop_front();
            self.first += 1;
        }
    }

    /// Whether no epoch is known: then no next use is, although there may be one.
    pub fn is_unknown(&self) -> bool {
        self.epochs.is_empty()
    }

    /// When the node uses the sample for the first time after that moment, as far as is known. Of several
    /// uses in one epoch (padding does that) the first one counts.
    pub fn next_use(&self, id: u32, after: Moment) -> Option<Moment> {
        let skipped = after.epoch.saturating_sub(self.first);
        let known = (self.first + skipped..).zip(self.epochs.iter().skip(skipped as usize));
        let uses =
            known.filter_map(|(epoch, uses)| Some(Moment { epoch, position: uses.position(id)? }));
        uses.into_iter().find(|moment| *moment > after)
    }

    /// How often the node uses the sample in the epochs known.
    pub fn uses(&self, id: u32) -> u32 {
        self.epochs.iter().filter(|uses| uses.position(id).is_some()).count() as u32
    }
}

/// Positions of the samples used in one epoch, in order of the samples, under a bit for each sample.
#[derive(Debug, Clone)]
struct Uses {
    blocks: Vec<Block>,
    positions: Vec<u32>,
}

/// 32 samples: which are used, and how many before them are.
#[derive(Debug, Clone, Copy, Default)]
struct Block {
    used: u32,
    before: u32,
}

impl Uses {
    fn new(len: u32, order: &[u32]) -> Self {
        let mut blocks = vec![Block::default(); len.div_ceil(32) as usize];
        for id in order {
            blocks[(id / 32) as usize].used |= 1 << (id % 32);
        }
        let mut total = 0;
        for block in &mut blocks {
            block.before = total;
            total += block.used.count_ones();
        }
        let mut uses = Self { blocks, positions: vec![0; total as usize] };
        // From the last to the first, so that the first of several uses is what stays.
        for (position, id) in order.iter().enumerate().rev() {
            if let Some(place) = uses.place(*id) {
                uses.positions[place] = position as u32;
            }
        }
        uses
    }

    fn position(&self, id: u32) -> Option<u32> {
        self.place(id).map(|place| self.positions[place])
    }

    fn place(&self, id: u32) -> Option<usize> {
        let block = self.blocks.get((id / 32) as usize)?;
        let bit = 1u32 << (id % 32);
        let before = block.before + (block.used & (bit - 1)).count_ones();
        (block.used & bit != 0).then_some(before as usize)
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_next_use_lies_after_the_moment_even_in_the_same_epoch() {
        let mut future = Future::new(5).unwrap();
        for order in [[3, 1], [4, 0], [1, 3]] {
            future.push_epoch(&order).unwrap();
        }
        let at = |epoch, position| Moment { epoch, position };
        assert_eq!(future.next_use(1, at(0, 0)), Some(at(0, 1)));
        assert_eq!(future.next_use(1, at(0, 1)), Some(at(2, 0)));
        assert_eq!(future.next_use(2, at(0, 0)), None);
        assert_eq!((future.uses(1), future.uses(2), future.is_unknown()), (2, 0, false));
        future.forget_before(2);
        assert_eq!(future.next_use(1, at(0, 0)), Some(at(2, 0)));
        assert_eq!(future.uses(1), 1);
        future.forget_before(7);
        assert_eq!((future.next_use(1, at(0, 0)), future.is_unknown()), (None, true));
    }

    #[test]
    fn what_can_not_be_known_is_an_error() {
        let mut future = Future::new(5).unwrap();
        let error = future.push_epoch(&[5]).unwrap_err();
        assert_eq!(error.to_string(), "there is no sample 5 in a dataset of 5");
        (0..EPOCHS_AHEAD_MAX).for_each(|_| future.push_epoch(&[]).unwrap());
        let error = future.push_epoch(&[]).unwrap_err();
        assert_eq!(error.to_string(), "64 epochs are known already; forget those that are over");
        assert!(Future::new(1 << 32).is_err());
    }

    proptest! {
        #[test]
        fn every_next_use_is_that_of_a_search(
            orders in prop::collection::vec(prop::collection::vec(0u32..100, 0..80), 1..5),
            id in 0u32..100, epoch in 0u32..5, position in 0u32..80,
        ) {
            let mut future = Future::new(100).unwrap();
            for order in &orders {
                future.push_epoch(order).unwrap();
            }
            let after = Moment { epoch, position };
            let firsts = (0u32..).zip(&orders).filter_map(|(epoch, order)| {
                let position = order.iter().position(|other| *other == id)? as u32;
                Some(Moment { epoch, position })
            });
            let expected = firsts.into_iter().find(|moment| *moment > after);
            prop_assert_eq!(future.next_use(id, after), expected);
        }
    }
}
