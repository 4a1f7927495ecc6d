//! What a loader counts.

use std::time::Duration;

use serde::Serialize;

use super::work::Loaded;
use crate::data::cache::Origin;
use crate::data::spent::Spent;
use crate::sync::{Mutex, lock};

/// Numbers of a loader, since it was made.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Stats {
    /// Batches handed over.
    pub batches: u64,
    /// Samples in them.
    pub samples: u64,
    /// Samples found in memory.
    pub memory_hits: u64,
    /// Samples found on the SSD.
    pub disk_hits: u64,
    /// Samples that came from the source.
    pub backend_loads: u64,
    /// Their bytes.
    pub backend_bytes: u64,
    /// Seconds that threads spent waiting for storage.
    pub storage_seconds: f64,
    /// Seconds that threads spent on decoding and transforms.
    pub prepare_seconds: f64,
    /// Seconds that threads spent in functions of the user's.
    pub function_seconds: f64,
    /// Seconds that the consumer waited for a batch.
    pub waited_seconds: f64,
    /// Bad samples among those that were asked for.
    pub bad_samples: u64,
    /// Threads that load for this consumer, as planned.
    pub load_threads: usize,
    /// Threads that prepare, for all consumers, as planned.
    pub prepare_threads: usize,
    /// Seconds of a batch, of the consumer that waits longest, as planned.
    pub predicted_batch_seconds: Option<f64>,
    /// Seconds of a batch, lately.
    pub measured_batch_seconds: Option<f64>,
}

/// How much the last batch counts in what is told of late ones.
const LATEST: f64 = 0.1;

/// Counts while threads work.
#[derive(Debug, Default)]
pub(super) struct Tally(Mutex<Stats>);

impl Tally {
    pub(super) fn loaded(&self, took: Duration, loaded: Option<&Loaded>) {
        self.count(|stats| {
            stats.storage_seconds += took.as_secs_f64();
            let Some(Loaded { raw, origin, .. }) = loaded else { return };
            match origin {
                Origin::Memory => stats.memory_hits += 1,
                Origin::Disk => stats.disk_hits += 1,
                Origin::Backend => {
                    stats.backend_loads += 1;
                    stats.backend_bytes += raw.bytes();
                }
            }
        });
    }

    pub(super) fn prepared(&self, spent: Spent) {
        self.count(|stats| {
            stats.storage_seconds += spent.storage;
            stats.prepare_seconds += spent.prepare;
            stats.function_seconds += spent.functions;
        });
    }

    pub(super) fn handed_over(&self, samples: usize, waited: Duration, busy: Duration) {
        self.count(|stats| {
            stats.batches += 1;
            stats.samples += samples as u64;
            stats.waited_seconds += waited.as_secs_f64();
            let seconds = (waited + busy).as_secs_f64();
            let lately = stats.measured_batch_seconds.get_or_insert(seconds);
            *lately += LATEST * (seconds - *lately);
        });
    }

    pub(super) fn planned(&self, load: usize, prepare: usize, predicted: Option<f64>) {
        self.count(|stats| {
            (stats.load_threads, stats.prepare_threads) = (load, prepare);
            stats.predicted_batch_seconds = predicted.or(stats.predicted_batch_seconds);
        });
    }

    pub(super) fn bad(&self, samples: usize) {
        self.count(|stats| stats.bad_samples += samples as u64);
    }

    /// The numbers so far.
    pub fn stats(&self) -> Stats {
        lock(&self.0).clone()
    }

    fn count(&self, change: impl FnOnce(&mut Stats)) {
        change(&mut lock(&self.0));
    }
}
