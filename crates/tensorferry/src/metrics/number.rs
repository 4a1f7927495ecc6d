//! Handles of single numbers: counters and gauges.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// A number that only grows.
#[derive(Debug, Clone)]
pub struct Counter(pub(super) Arc<AtomicU64>);

impl Counter {
    /// Adds `n`.
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Relaxed);
    }

    /// The sum so far.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// A number that goes up and down: a queue's length, a share.
#[derive(Debug, Clone)]
pub struct Gauge(pub(super) Arc<AtomicU64>);

impl Gauge {
    /// Replaces the value.
    pub fn set(&self, value: f64) {
        self.0.store(value.to_bits(), Relaxed);
    }

    /// Adds to the value, or takes from it.
    pub fn add(&self, change: f64) {
        let changed = |bits| (f64::from_bits(bits) + change).to_bits();
        self.0.update(Relaxed, Relaxed, changed);
    }

    /// The value now.
    pub fn get(&self) -> f64 {
        f64::from_bits(self.0.load(Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use crate::metrics::Registry;

    #[test]
    fn a_gauge_is_set_and_changed() {
        let gauge = Registry::new().gauge("ferry_queue_length", &[]).unwrap();
        gauge.set(2.5);
        gauge.add(-1.0);
        assert_eq!(gauge.get().to_bits(), 1.5f64.to_bits());
    }
}
