//! What happened, in numbers.

use serde::Serialize;

use crate::plan::activations::Prediction;

/// How a step was served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// No plan was there: what fitted stayed. It was measured.
    Profiled,
    /// A plan was followed.
    Planned,
    /// A plan was followed until the step differed from it.
    Differed,
}

/// One step: forward passes, and the backward pass after them.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StepReport {
    /// Counted from one.
    pub step: u64,
    /// How it was served.
    pub mode: Mode,
    /// Tensors that were saved.
    pub tensors: usize,
    /// Their bytes.
    pub saved_bytes: u64,
    /// Bytes of those that were written to disk.
    pub offloaded_bytes: u64,
    /// Bytes that this took on disk.
    pub stored_bytes: u64,
    /// Bytes that were read from disk.
    pub read_bytes: u64,
    /// Seconds from the first forward pass to the end of the last, stalls included.
    pub forward_seconds: f64,
    /// Seconds from the first use to the last, stalls included.
    pub backward_seconds: f64,
    /// Seconds of forward that waited for room.
    pub forward_stall: f64,
    /// Seconds of backward that waited for a tensor.
    pub backward_stall: f64,
    /// Seconds in which writes were under way.
    pub write_seconds: f64,
    /// Seconds in which reads were under way.
    pub read_seconds: f64,
    /// The share of the seconds of reads and writes in which compute went on.
    pub overlap: f64,
    /// The most bytes of activations that were in memory, staging included.
    pub peak_bytes: u64,
    /// What was expected of it after the step before, if a plan is followed.
    pub predicted: Option<Prediction>,
}

/// A store since it was opened.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// Steps that are over.
    pub steps: u64,
    /// The budget.
    pub budget: u64,
    /// The part of it that the workers' staging buffers take.
    pub staging_bytes: u64,
    /// Bytes of activations in memory now, without staging.
    pub used_bytes: u64,
    /// Bytes on disk now.
    pub scratch_bytes: u64,
    /// Bytes written to disk, in all.
    pub written_bytes: u64,
    /// Seconds since the store was opened.
    pub seconds: f64,
    /// Bytes of the file systems of the scratch files.
    pub drive_bytes: u64,
    /// How often a day the drives would be written whole at the pace so far: what their endurance
    /// is given in.
    pub drive_writes_per_day: f64,
    /// Why there is no plan, if there should be one.
    pub unplanned: Option<String>,
    /// The last step that is over.
    pub last: Option<StepReport>,
}
