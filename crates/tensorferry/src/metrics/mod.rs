//! Metrics: what each stage did, as counters, gauges and histograms, readable as plain data and as
//! Prometheus text.
//!
//! A [`Registry`] owns series; a series is a name and labels. Asking for one takes a lock and may
//! allocate, so a stage asks once and keeps the handle. Handles are shared counts of atomics:
//! recording takes no lock, allocates nothing and never fails. A registry belongs to whoever made
//! it, so that two engines or two tests do not mix their numbers; [`Registry::global`] is the one
//! that Python's `metrics()` shows. That, and plain data without an exporter, is why this is not
//! the `metrics` crate, whose recorder is one for the process.
//!
//! **Histograms** have fixed memory: 16 buckets for each power of two, so that a quantile is wrong
//! by at most 1/32 of its value, over the whole range of `u64`, in 8 KiB. Bucket bounds belong to
//! the bucket below, as in Prometheus: 4096 bytes are counted under `le="4096"`. A histogram is of
//! one [`Quantity`]: durations, sizes or plain numbers; it counts in nanoseconds, bytes or ones,
//! and is read in seconds, bytes or ones.
//!
//! **Bounds.** A registry holds at most [`SERIES_MAX`] series and [`NAMES_MAX`] names. Names stand
//! in the code, so one too many is an error. Label values may come from outside, and a metric must
//! not fail the work it counts, so when the registry is full, new label values of a name share one
//! series labelled `overflow="true"`: sums over a name stay right, only the detail is lost.
//!
//! **Consistency.** A snapshot is taken while others record. Each number in it was true at some
//! moment during the snapshot; a histogram's `count` is the sum of its buckets, its `sum` may be
//! of one moment later.

// Atomics and locks here are not from `crate::sync`: no lock is held while another is taken or
// waited for, so there is nothing for loom to explore, and code under loom may record as elsewhere.

mod histogram;
mod number;
mod prometheus;
mod quantity;
mod registry;
mod snapshot;

pub use histogram::Histogram;
pub use number::{Counter, Gauge};
pub use quantity::{Quantity, Unit};
pub use registry::{LABELS_MAX, NAMES_MAX, Registry, SERIES_MAX, TEXT_BYTES_MAX};
pub use snapshot::{Bucket, Series, Snapshot, Summary, Value};
