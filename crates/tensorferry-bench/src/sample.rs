//! Repeated measurements of one thing.

use serde::Serialize;

/// Measurements in the order in which they were taken, and their median.
#[derive(Debug, Clone, Serialize)]
pub struct Samples {
    /// The middle one; the mean of the two in the middle for an even number.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
    /// All of them.
    pub raw: Vec<f64>,
}

impl Samples {
    /// Summarises; `None` of nothing.
    pub fn of(raw: Vec<f64>) -> Option<Self> {
        let mut sorted = raw.clone();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let median = f64::midpoint(sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2]);
        Some(Self { median, min, max, raw })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_of_the_sorted_samples() {
        let samples = Samples::of(vec![3.0, 1.0, 2.0]).unwrap();
        assert!((samples.median, samples.min, samples.max) == (2.0, 1.0, 3.0));
        assert!((Samples::of(vec![4.0, 1.0]).unwrap().median - 2.5).abs() < 1e-9);
        assert!(Samples::of(vec![]).is_none());
    }
}
