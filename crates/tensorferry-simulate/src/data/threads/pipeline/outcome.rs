//! What a run gave.

use tensorferry::plan::data::threads::Split;

/// Of one scenario under one policy.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// When each batch was trained on, by consumer.
    pub trained: Vec<Vec<f64>>,
    /// Seconds that each consumer waited for batches.
    pub waited: Vec<f64>,
    /// The splits and since when they held.
    pub splits: Vec<(f64, Split)>,
}

impl Outcome {
    /// Until the last consumer was done.
    pub fn seconds(&self) -> f64 {
        self.trained.iter().filter_map(|batches| batches.last()).copied().fold(0.0, f64::max)
    }

    /// Mean seconds a batch of each consumer.
    pub fn steps(&self) -> Vec<f64> {
        let step =
            |batches: &Vec<f64>| batches.last().map_or(0.0, |end| end / batches.len() as f64);
        self.trained.iter().map(step).collect()
    }

    /// Between the slowest and the fastest consumer, in mean seconds a batch.
    pub fn gap(&self) -> f64 {
        let steps = self.steps();
        let slowest = steps.iter().copied().fold(0.0, f64::max);
        slowest - steps.iter().copied().fold(slowest, f64::min)
    }
}
