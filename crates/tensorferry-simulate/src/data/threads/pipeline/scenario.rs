//! What is simulated: a machine, what work costs on it, and who wants how much.

use tensorferry::plan::data::threads::portfolio::Portfolio;
use tensorferry::plan::data::threads::{Consumer, Machine};

/// Seconds of one kind of work.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cost {
    /// Of any sample.
    pub latency_seconds: f64,
    /// On top, for each byte.
    pub seconds_per_byte: f64,
    /// Threads that do not slow each other down; with more, all together are as fast as these.
    pub lanes: usize,
}

impl Cost {
    /// Of one thread for a sample, while `threads` do such work.
    pub fn seconds(&self, bytes: u64, threads: usize) -> f64 {
        let crowd = threads as f64 / self.lanes.max(1) as f64;
        (self.latency_seconds + self.seconds_per_byte * bytes as f64) * crowd.max(1.0)
    }
}

/// One consumer's order.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Feed {
    /// Of each sample.
    pub sample_bytes: u64,
    /// Samples a batch.
    pub batch: usize,
    /// Its own time for a batch.
    pub train_seconds: f64,
    /// Until it is done.
    pub batches: usize,
}

impl Feed {
    pub(super) fn samples(&self) -> usize {
        self.batches * self.batch
    }

    /// As the split sees it with so many samples left to load and batches ready.
    pub(super) fn consumer(&self, samples: usize, ready: usize) -> Consumer {
        Consumer {
            queued_bytes: samples as u64 * self.sample_bytes,
            sample_bytes: self.sample_bytes,
            batch: self.batch,
            train_seconds: self.train_seconds,
            ready,
        }
    }
}

/// Costs that change, once and for good.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Drift {
    /// When.
    pub at_seconds: f64,
    /// By which factor loading becomes slower.
    pub load: f64,
    /// By which factor preparing does.
    pub prepare: f64,
}

/// Everything that a run depends on, but for the policy.
#[derive(Debug, Clone, PartialEq)]
pub struct Scenario {
    /// Threads and cores.
    pub machine: Machine,
    /// The consumers.
    pub feeds: Vec<Feed>,
    /// Of loading.
    pub load: Cost,
    /// Of preparing.
    pub prepare: Cost,
    /// Batches of a consumer that may be on their way or ready, at least one.
    pub ahead: usize,
    /// Batches, of all consumers together, after which the split is looked at again; at least one.
    pub every: usize,
    /// A change of costs.
    pub drift: Option<Drift>,
    /// Each sample costs up to this share more or less, evenly; below one.
    pub jitter: f64,
    /// Of the jitter.
    pub seed: u64,
}

impl Scenario {
    /// Factors of loading and preparing at a time.
    pub(super) fn factors(&self, seconds: f64) -> (f64, f64) {
        let drift = self.drift.filter(|drift| seconds >= drift.at_seconds);
        drift.map_or((1.0, 1.0), |drift| (drift.load, drift.prepare))
    }

    /// The true costs of preparing and loading, as if they had been measured.
    pub(super) fn profile(&self, drifted: bool) -> (Portfolio, Portfolio) {
        let factors = self.factors(if drifted { f64::INFINITY } else { f64::NEG_INFINITY });
        let (mut prepare, mut load) = (Portfolio::default(), Portfolio::default());
        for bytes in self.feeds.iter().map(|feed| feed.sample_bytes) {
            for threads in 1..=self.machine.threads {
                load.observe(bytes, threads, self.load.seconds(bytes, threads) * factors.0);
                prepare.observe(bytes, threads, self.prepare.seconds(bytes, threads) * factors.1);
            }
        }
        (prepare, load)
    }
}
