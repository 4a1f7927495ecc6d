//! One model for each class of sample sizes, a class to each doubling.

use std::collections::BTreeMap;

use super::model::Model;

/// What one kind of work costs here.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Portfolio {
    /// By the binary logarithm of the size. None is empty.
    models: BTreeMap<u8, Model>,
}

impl Portfolio {
    /// Whether nothing was measured yet.
    pub fn is_empty(&self) -> bool {
        self.models.is_empty()
    }

    /// One thread took `seconds` for a sample of `bytes` while `threads` did this kind of work, for any
    /// consumer, itself included.
    pub fn observe(&mut self, bytes: u64, threads: usize, seconds: f64) {
        let model = self.models.entry(class(bytes)).or_default();
        model.observe(threads, seconds);
        if model.is_empty() {
            self.models.remove(&class(bytes));
        }
    }

    /// Seconds that one of `threads` threads spends on a sample of `bytes`, by the model whose size is
    /// nearest; of two as near, that of the larger samples, which errs on the slow side.
    pub fn seconds(&self, bytes: u64, threads: usize) -> Option<f64> {
        self.nearest(bytes)?.seconds(threads)
    }

    fn nearest(&self, bytes: u64) -> Option<&Model> {
        let wanted = class(bytes);
        let below = self.models.range(..=wanted).next_back();
        let above = self.models.range(wanted..).next();
        let nearer = match (below, above) {
            (Some(below), Some(above)) if wanted - below.0 < above.0 - wanted => Some(below),
            (below, above) => above.or(below),
        };
        nearer.map(|(_, model)| model)
    }
}

fn class(bytes: u64) -> u8 {
    bytes.max(1).ilog2() as u8
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    fn of(values: &[(u64, f64)]) -> Portfolio {
        let mut portfolio = Portfolio::default();
        for (bytes, seconds) in values {
            portfolio.observe(*bytes, 1, *seconds);
        }
        portfolio
    }

    #[test]
    fn the_nearest_class_wins() {
        let portfolio = of(&[(1 << 10, 1.0), (1 << 20, 2.0)]);
        assert_eq!(portfolio.seconds(1 << 10, 1), Some(1.0));
        assert_eq!(portfolio.seconds((1 << 11) - 1, 1), Some(1.0));
        assert_eq!(portfolio.seconds(0, 1), Some(1.0));
        assert_eq!(portfolio.seconds(1 << 14, 1), Some(1.0));
        assert_eq!(portfolio.seconds(1 << 15, 1), Some(2.0), "as near: the larger one");
        assert_eq!(portfolio.seconds(u64::MAX, 1), Some(2.0));
        assert_eq!(Portfolio::default().seconds(1, 1), None);
    }

    #[test]
    fn a_value_that_no_clock_shows_leaves_no_class_behind() {
        assert!(of(&[(1 << 10, f64::NAN)]).is_empty());
    }
}
