//! Repeated measurements of one thing.

use serde::Serialize;

/// Measurements in the order in which they were taken, and their median.
#[derive(Debug, Clone, Serialize)]
pub struct Samples {
    /// The middle one; the mean of the two in the middle for an even number.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// A quarter of them are smaller than this; interpolated.
    pub lower_quartile: f64,
    /// A quarter of them are larger than this; interpolated.
    pub upper_quartile: f64,
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
        let [lower_quartile, median, upper_quartile] = [1, 2, 3].map(|i| quartile(&sorted, i));
        Some(Self { median, min, lower_quartile, upper_quartile, max, raw })
    }
}

/// Between the two samples that stand next to the place.
fn quartile(sorted: &[f64], quarters: usize) -> f64 {
    let place = (sorted.len() - 1) * quarters;
    let (below, share) = (place / 4, (place % 4) as f64 / 4.0);
    let above = sorted[sorted.len().min(below + 2) - 1];
    sorted[below] + (above - sorted[below]) * share
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

    #[test]
    fn half_of_the_samples_lie_between_the_quartiles() {
        let quartiles = |raw: Vec<f64>| {
            let samples = Samples::of(raw).unwrap();
            (samples.lower_quartile, samples.upper_quartile)
        };
        assert_eq!(quartiles(vec![5.0, 1.0, 2.0, 4.0, 3.0]), (2.0, 4.0));
        assert_eq!(quartiles(vec![1.0, 2.0]), (1.25, 1.75));
        assert_eq!(quartiles(vec![7.0]), (7.0, 7.0));
    }
}
