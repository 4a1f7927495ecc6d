//! Histograms: counts in buckets of fixed number, and the quantiles that are read from them.

use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::quantity::{Quantity, Unit};
use super::snapshot::{Bucket, Summary};

/// How often which quantity occurred.
pub struct Histogram<Q>(Arc<Buckets>, PhantomData<fn(Q)>);

impl<Q: Quantity> Histogram<Q> {
    /// The handle of these buckets, whose unit is that of `Q`.
    pub(super) fn new(buckets: Arc<Buckets>) -> Self {
        Self(buckets, PhantomData)
    }

    /// Counts one occurrence.
    pub fn record(&self, quantity: Q) {
        self.0.record(quantity.raw());
    }
}

impl<Q> Clone for Histogram<Q> {
    fn clone(&self) -> Self {
        Self(self.0.clone(), PhantomData)
    }
}

/// Buckets for each power of two, as a power of two.
const FINE_BITS: u32 = 4;
const FINE: usize = 1 << FINE_BITS;
/// The numbers up to `FINE` have a bucket each; then `FINE` for each power of two below 2^64.
const BUCKETS: usize = FINE * (64 - FINE_BITS as usize + 1);

pub(super) struct Buckets {
    counts: [AtomicU64; BUCKETS],
    sum: AtomicU64,
    min: AtomicU64,
    max: AtomicU64,
}

impl Buckets {
    pub(super) fn new() -> Self {
        Self {
            counts: [const { AtomicU64::new(0) }; BUCKETS],
            sum: AtomicU64::new(0),
            min: AtomicU64::new(u64::MAX),
            max: AtomicU64::new(0),
        }
    }

    fn record(&self, raw: u64) {
        // A look leaves the line to other threads, where a change takes it away from them.
        if raw < self.min.load(Relaxed) {
            self.min.fetch_min(raw, Relaxed);
        }
        if raw > self.max.load(Relaxed) {
            self.max.fetch_max(raw, Relaxed);
        }
        self.sum.fetch_add(raw, Relaxed);
        // Last, and released, so that whoever reads this count also sees it within min and max.
        self.counts[index_of(raw)].fetch_add(1, Release);
    }

    pub(super) fn read(&self, unit: Unit) -> Summary {
        let load = |count: &AtomicU64| count.load(Acquire);
        let counts: Vec<(usize, u64)> =
            self.counts.iter().map(load).enumerate().filter(|(_, count)| *count > 0).collect();
        let count = counts.iter().map(|(_, count)| count).sum();
        let (min, max) = (self.min.load(Relaxed), self.max.load(Relaxed));
        let some = |raw: u64| (count > 0).then(|| unit.scale(raw.into()));
        let quantile = |q: f64| some(middle_of(rank(&counts, count, q)).clamp(min.min(max), max));
        Summary {
            unit,
            count,
            sum: unit.scale(self.sum.load(Relaxed).into()),
            min: some(min),
            max: some(max),
            p50: quantile(0.5),
            p90: quantile(0.9),
            p99: quantile(0.99),
            buckets: counts
                .iter()
                .map(|(index, count)| Bucket { le: unit.scale(range_of(*index).1), count: *count })
                .collect(),
        }
    }
}

/// The bucket of a number. Bounds belong to the bucket below, hence the number before it decides.
fn index_of(raw: u64) -> usize {
    let before = raw.saturating_sub(1);
    match before.checked_ilog2() {
        Some(power) if power >= FINE_BITS => {
            let shift = power - FINE_BITS;
            (shift as usize + 1) * FINE + ((before >> shift) as usize & (FINE - 1))
        }
        _ => before as usize,
    }
}

/// The bucket holds the numbers above the first and up to the second; the lowest also holds zero.
fn range_of(index: usize) -> (u128, u128) {
    let shift = (index / FINE).saturating_sub(1);
    let first = if index < FINE { index } else { FINE + index % FINE } as u128;
    (first << shift, (first + 1) << shift)
}

fn middle_of(index: usize) -> u64 {
    let (above, up_to) = range_of(index);
    u64::try_from(u128::midpoint(above + 1, up_to)).unwrap_or(u64::MAX)
}

/// The bucket in which the quantile lies: the first with at least `q * count` up to its end.
fn rank(counts: &[(usize, u64)], count: u64, q: f64) -> usize {
    let wanted = ((q * count as f64).ceil() as u64).max(1);
    let mut seen = 0;
    let found = counts.iter().find(|(_, count)| {
        seen += count;
        seen >= wanted
    });
    found.or(counts.last()).map_or(0, |(index, _)| *index)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::{Registry, Series, Value};
    use proptest::prelude::*;
    use std::time::Duration;

    fn summary(registry: &Registry) -> Summary {
        match &registry.snapshot().series[..] {
            [Series { value: Value::Histogram(summary), .. }] => summary.clone(),
            other => panic!("not one histogram: {other:?}"),
        }
    }

    #[test]
    fn an_empty_histogram_has_no_extremes() {
        let registry = Registry::new();
        registry.histogram::<Duration>("ferry_wait_seconds", &[]).unwrap();
        let summary = summary(&registry);
        assert_eq!((summary.count, summary.min, summary.p99), (0, None, None));
    }

    #[test]
    fn durations_are_read_in_seconds() {
        let registry = Registry::new();
        let histogram = registry.histogram("ferry_wait_seconds", &[]).unwrap();
        histogram.record(Duration::from_millis(250));
        histogram.record(Duration::from_millis(750));
        let summary = summary(&registry);
        assert_eq!((summary.count, summary.min, summary.max), (2, Some(0.25), Some(0.75)));
        assert!((summary.sum - 1.0).abs() < 1e-12);
    }

    #[test]
    fn every_bucket_continues_the_one_below_and_the_last_reaches_the_largest_number() {
        assert_eq!((index_of(0), index_of(1), index_of(u64::MAX)), (0, 0, BUCKETS - 1));
        assert_eq!(range_of(BUCKETS - 1).1, 1 << 64);
        for index in 1..BUCKETS {
            assert_eq!(range_of(index - 1).1, range_of(index).0);
        }
    }

    proptest! {
        #[test]
        fn a_number_falls_into_the_bucket_whose_range_holds_it(bits in 0u32..64, raw: u64) {
            let raw = raw >> bits;
            let (above, up_to) = range_of(index_of(raw));
            prop_assert!((above < raw.into() || raw == 0) && u128::from(raw) <= up_to);
        }

        #[test]
        fn quantiles_are_right_to_one_part_in_32(
            values in prop::collection::vec((0u32..64, any::<u64>()), 1..200),
        ) {
            let registry = Registry::new();
            let histogram = registry.histogram::<u64>("ferry_values", &[]).unwrap();
            let mut values: Vec<u64> = values.into_iter().map(|(bits, v)| v >> bits).collect();
            for value in &values {
                histogram.record(*value);
            }
            values.sort_unstable();
            let summary = summary(&registry);
            prop_assert_eq!(summary.count, values.len() as u64);
            for (q, estimate) in [(0.5, summary.p50), (0.9, summary.p90), (0.99, summary.p99)] {
                let exact = values[(q * values.len() as f64).ceil() as usize - 1] as f64;
                let error = (estimate.unwrap() - exact).abs();
                // Zero shares a bucket with one.
                prop_assert!(error <= exact / 32.0 || (exact == 0.0 && error <= 1.0),
                    "{q}: {estimate:?} for {exact}");
            }
        }
    }
}
