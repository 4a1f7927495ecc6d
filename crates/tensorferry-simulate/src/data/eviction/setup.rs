//! What is simulated.

use tensorferry::plan::data::eviction::SAMPLE_BYTES_MAX;
use tensorferry::plan::data::order::{Distributed, Mt19937, SAMPLES_MAX};
use tensorferry::{Error, Result};

use super::clock::Speeds;

/// The most nodes of a simulated cluster.
const NODES_MAX: u32 = 4096;
/// The most GPUs of one node.
const GPUS_MAX: u32 = 1024;
/// The most bytes that tables of who uses what take.
const TABLES_BYTES_MAX: u128 = 8 << 30;

/// A cluster, a dataset and a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Setup {
    /// Samples of the dataset.
    pub samples: u64,
    /// How large they are.
    pub sizes: Sizes,
    /// Machines with a cache each.
    pub nodes: u32,
    /// GPUs, and ranks, of each.
    pub gpus: u32,
    /// Samples that a GPU uses in an iteration.
    pub batch: u32,
    /// Bytes of each node's cache.
    pub cache: u64,
    /// Epochs of the run; the future ends with it.
    pub epochs: u32,
    /// Epochs after the current one whose orders a policy looks at. Its knowledge ends with the run.
    pub foresight: u32,
    /// Whether nodes read from one another's caches.
    pub peers: bool,
    /// As given to torch's `DistributedSampler`.
    pub seed: u64,
    /// What bytes cost.
    pub speeds: Speeds,
}

/// Sizes of samples, in bytes.
#[derive(Debug, Clone, PartialEq)]
pub enum Sizes {
    /// All alike.
    Same(u32),
    /// One for each.
    Each(Vec<u32>),
}

impl Sizes {
    /// Sizes whose logarithms are spread normally around a mean of `mean` bytes, `spread` being the
    /// standard deviation of the logarithm. Photographs have about 0.5.
    pub fn log_normal(samples: u64, mean: u64, spread: f64, seed: u64) -> Result<Self> {
        if mean == 0 || mean > SAMPLE_BYTES_MAX {
            return Err(Error::invalid(format!(
                "samples of {mean} bytes can't be simulated; choose 1 to {SAMPLE_BYTES_MAX}"
            )));
        }
        if !(0.0..=3.0).contains(&spread) {
            return Err(Error::invalid(format!(
                "a spread of {spread} is not one of sizes; choose 0 (all alike) to 3"
            )));
        }
        if samples > SAMPLES_MAX || spread == 0.0 {
            return Ok(Self::Same(mean as u32));
        }
        let mut random = Mt19937::new(seed);
        // The mean of a log-normal distribution lies above its median.
        let median = mean as f64 * (-0.5 * spread * spread).exp();
        let one = |_| (median * (spread * normal(&mut random)).exp()).round().max(1.0) as u32;
        Ok(Self::Each((0..samples).map(one).collect()))
    }

    pub(super) fn of(&self, id: u32) -> u64 {
        match self {
            Self::Same(bytes) => u64::from(*bytes),
            Self::Each(bytes) => u64::from(bytes[id as usize]),
        }
    }
}

/// Normally distributed, by Box and Muller.
fn normal(random: &mut Mt19937) -> f64 {
    let mut unit = || (f64::from(random.next_u32()) + 0.5) / 4_294_967_296.0;
    (-2.0 * unit().ln()).sqrt() * (std::f64::consts::TAU * unit()).cos()
}

impl Setup {
    /// Whether this can be simulated.
    pub fn check(&self) -> Result<()> {
        let within = |what: &str, given: u64, most: u64| {
            let message = || format!("{given} {what} can't be simulated; choose 1 to {most}");
            if (1..=most).contains(&given) { Ok(()) } else { Err(Error::invalid(message())) }
        };
        within("samples", self.samples, SAMPLES_MAX)?;
        within("nodes", self.nodes.into(), NODES_MAX.into())?;
        within("GPUs a node", self.gpus.into(), GPUS_MAX.into())?;
        within("samples a batch", self.batch.into(), SAMPLES_MAX)?;
        within("epochs", self.epochs.into(), (1 << 20) - 1)?;
        self.check_sizes()?;
        self.check_tables()?;
        self.speeds.check()
    }

    fn check_sizes(&self) -> Result<()> {
        match &self.sizes {
            Sizes::Each(bytes) if bytes.len() as u64 != self.samples => {
                Err(Error::invalid(format!(
                    "{} sizes were given for {} samples; give one for each",
                    bytes.len(),
                    self.samples
                )))
            }
            _ => Ok(()),
        }
    }

    fn check_tables(&self) -> Result<()> {
        let (nodes, epochs) = (u128::from(self.nodes), u128::from(self.epochs));
        let bytes = u128::from(self.samples) * epochs + 8 * nodes * epochs * epochs;
        if bytes > TABLES_BYTES_MAX {
            return Err(Error::invalid(format!(
                "{} samples, {nodes} nodes and {epochs} epochs would take {} GiB to simulate; \
                 choose fewer epochs",
                self.samples,
                bytes >> 30
            )));
        }
        Ok(())
    }

    /// Bytes of the dataset.
    pub fn bytes(&self) -> u64 {
        match &self.sizes {
            Sizes::Same(bytes) => self.samples * u64::from(*bytes),
            Sizes::Each(bytes) => bytes.iter().map(|bytes| u64::from(*bytes)).sum(),
        }
    }

    /// GPUs of all nodes.
    pub fn world_size(&self) -> u32 {
        self.nodes * self.gpus
    }

    /// Iterations of an epoch.
    pub fn iterations(&self) -> u64 {
        self.uses().div_ceil(self.stride())
    }

    /// Samples that all GPUs use in an iteration.
    pub(super) fn stride(&self) -> u64 {
        u64::from(self.world_size()) * u64::from(self.batch)
    }

    /// Uses of an epoch: every GPU has as many, so that some samples may come twice.
    pub(super) fn uses(&self) -> u64 {
        let world = u64::from(self.world_size());
        self.samples.div_ceil(world) * world
    }

    /// The order of all nodes together in that epoch; it starts again where uses go beyond its end.
    pub(super) fn order(&self, epoch: u32) -> Result<Vec<u32>> {
        let world_size = self.world_size();
        let (len, seed) = (self.samples, self.seed);
        let all = Distributed { len, world_size, rank: 0, seed, shuffle: true, drop_last: false };
        all.whole(epoch.into())
    }
}
