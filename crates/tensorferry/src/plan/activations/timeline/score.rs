//! What makes one plan better than another.

use super::super::plan::Prediction;

/// Less is better: seconds that compute waits, then bytes written.
///
/// Whole nanoseconds, so that plans which differ by rounding only are equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Score {
    stall_nanos: u64,
    written_bytes: u64,
}

const NANOS: f64 = 1e9;

impl Score {
    /// Worse than any.
    pub(super) const WORST: Self = Self { stall_nanos: u64::MAX, written_bytes: u64::MAX };

    /// Nothing waits and nothing is written.
    pub(super) const NOTHING_LEFT: Self = Self { stall_nanos: 0, written_bytes: 0 };

    pub(super) fn of(prediction: &Prediction) -> Self {
        let stall_nanos = (prediction.stall() * NANOS).round() as u64;
        Self { stall_nanos, written_bytes: prediction.written_bytes }
    }

    /// A run that waits for longer is certainly worse.
    pub(super) fn stall_max(&self) -> f64 {
        match self.stall_nanos.checked_add(1) {
            Some(nanos) => nanos as f64 / NANOS,
            None => f64::INFINITY,
        }
    }
}
