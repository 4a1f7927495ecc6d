//! Every policy beside the bound, as data and as a table.

use std::fmt;

use serde::Serialize;
use tensorferry::Size;
use tensorferry::plan::data::eviction::Policy;

use super::replay::Tally;
use super::setup::{Setup, Sizes};

/// What all policies came to.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// Samples of the dataset.
    pub samples: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Whether samples differ in size.
    pub sizes_differ: bool,
    /// Machines.
    pub nodes: u32,
    /// GPUs of each.
    pub gpus: u32,
    /// Samples a GPU uses in an iteration.
    pub batch: u32,
    /// Iterations of an epoch.
    pub iterations: u64,
    /// Bytes of each node's cache.
    pub cache: u64,
    /// Epochs.
    pub epochs: u32,
    /// Whether nodes read from one another.
    pub peers: bool,
    /// The seed of the orders.
    pub seed: u64,
    /// The fewest bytes that the backend has to give, in each epoch.
    pub bound_bytes: Vec<u64>,
    /// One for each policy.
    pub policies: Vec<Outcome>,
}

/// What one policy came to.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Outcome {
    /// Which it is.
    pub policy: Policy,
    /// All epochs after the first, in which every policy has to read everything; the first if it is the
    /// only one.
    pub warm: Tally,
    /// Bytes from the backend over the fewest there can be, in those epochs; none where that is nothing and
    /// not reached.
    pub of_bound: Option<f64>,
    /// Each epoch by itself.
    pub epochs: Vec<Tally>,
}

impl Comparison {
    pub(super) fn new(setup: &Setup, bound_bytes: Vec<u64>) -> Self {
        Self {
            samples: setup.samples,
            bytes: setup.bytes(),
            sizes_differ: matches!(setup.sizes, Sizes::Each(_)),
            nodes: setup.nodes,
            gpus: setup.gpus,
            batch: setup.batch,
            iterations: setup.iterations(),
            cache: setup.cache,
            epochs: setup.epochs,
            peers: setup.peers,
            seed: setup.seed,
            bound_bytes,
            policies: Vec::new(),
        }
    }

    pub(super) fn add(&mut self, policy: Policy, epochs: Vec<Tally>) {
        let warm = epochs[self.cold()..].iter().fold(Tally::default(), Tally::plus);
        let bound = self.warm_bound();
        let of_bound = match (warm.backend_bytes, bound) {
            (0, 0) => Some(1.0),
            (_, 0) => None,
            (bytes, bound) => Some(bytes as f64 / bound as f64),
        };
        self.policies.push(Outcome { policy, warm, of_bound, epochs });
    }

    /// What that policy came to.
    pub fn outcome(&self, policy: Policy) -> Option<&Outcome> {
        self.policies.iter().find(|outcome| outcome.policy == policy)
    }

    /// The fewest bytes that the backend has to give in the epochs that are compared.
    pub fn warm_bound(&self) -> u64 {
        self.bound_bytes[self.cold()..].iter().sum()
    }

    /// Epochs at the beginning that are not compared.
    fn cold(&self) -> usize {
        usize::from(self.epochs > 1)
    }

    fn heading(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { samples, nodes, gpus, batch, iterations, .. } = self;
        let alike = if self.sizes_differ { "of different sizes" } else { "all alike" };
        writeln!(f, "{samples} samples, {}, {alike}", Size(self.bytes))?;
        let (cache, share) = (Size(self.cache), self.cache as f64 / self.bytes.max(1) as f64);
        let share = 100.0 * share.min(1.0);
        let peers = if self.peers { "read by all nodes" } else { "read by its own node only" };
        writeln!(f, "{nodes} nodes with {gpus} GPUs, batches of {batch}, {iterations} iterations")?;
        writeln!(f, "cache of {cache} a node ({share:.1} % of the dataset), {peers}")?;
        let compared = if self.cold() == 1 { "mean of epochs 2 to" } else { "epoch" };
        writeln!(f, "{compared} {}, seed {}\n", self.epochs, self.seed)
    }
}

/// Width of the column of names.
const NAME: usize = 12;

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.heading(f)?;
        write!(f, "{:NAME$}{:>11}{:>11}", "policy", "local hits", "peer hits")?;
        write!(f, "{:>14}{:>10}{:>12}{:>12}", "from backend", "of bound", "s an epoch", "gap, s")?;
        let epochs = u64::from(self.epochs) - self.cold() as u64;
        let bound = Size(self.warm_bound() / epochs).to_string();
        write!(f, "\n{:NAME$}{:>11}{:>11}{bound:>14}", "lower bound", "", "")?;
        self.policies.iter().try_for_each(|outcome| {
            f.write_str("\n")?;
            outcome.row(f, epochs)
        })
    }
}

impl Outcome {
    fn row(&self, f: &mut fmt::Formatter<'_>, epochs: u64) -> fmt::Result {
        let Self { policy, warm, of_bound, .. } = self;
        write!(f, "{policy:NAME$}{:>11.4}{:>11.4}", warm.local_ratio(), warm.peer_ratio())?;
        let bytes = Size(warm.backend_bytes / epochs).to_string();
        let ratio = of_bound.map_or("-".to_owned(), |ratio| format!("{ratio:.4}"));
        let seconds = [warm.seconds, warm.gap_seconds].map(|seconds| seconds / epochs as f64);
        write!(f, "{bytes:>14}{ratio:>10}{:>12.1}{:>12.1}", seconds[0], seconds[1])
    }
}
