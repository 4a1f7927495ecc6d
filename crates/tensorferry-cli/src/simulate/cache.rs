//! `tensorferry simulate cache`.

use tensorferry::plan::data::eviction::Policy;
use tensorferry::{Error, Result, Size};
use tensorferry_simulate::data::eviction::{Setup, Sizes, Speeds, compare};

use crate::output;
use crate::progress::Progress;

/// Simulate the caches of a cluster under every policy, beside the fewest bytes that must be read
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A known dataset, instead of --samples and --mean-bytes
    #[arg(long, value_enum)]
    dataset: Option<Dataset>,
    /// Samples of the dataset
    #[arg(long)]
    samples: Option<u64>,
    /// Their mean size
    #[arg(long, value_name = "SIZE")]
    mean_bytes: Option<Size>,
    /// How far sizes differ: standard deviation of their logarithm; photographs have about 0.5
    #[arg(long, default_value_t = 0.0)]
    spread: f64,
    /// Machines
    #[arg(long, default_value_t = 1)]
    nodes: u32,
    /// GPUs of each machine
    #[arg(long, default_value_t = 1)]
    gpus: u32,
    /// Samples that a GPU uses in an iteration
    #[arg(long, default_value_t = 64)]
    batch: u32,
    /// Cache of each machine
    #[arg(long, value_name = "SIZE")]
    cache: Size,
    /// Epochs of the run
    #[arg(long, default_value_t = 5)]
    epochs: u32,
    /// Epochs after the current one that a policy knows; all of the run if not given
    #[arg(long, value_name = "EPOCHS")]
    foresight: Option<u32>,
    /// all, lru, never-evict, nopfs, lobster or belady
    #[arg(long, default_value = "all", value_parser = policies)]
    policy: Policies,
    /// Let machines read from one another's caches
    #[arg(long)]
    peers: bool,
    /// The seed, as given to torch's `DistributedSampler`
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Bytes a second from the backend, for all machines together
    #[arg(long, value_name = "SIZE", default_value = "2GB")]
    backend_bandwidth: Size,
    /// Bytes a second that a machine gets from its peers
    #[arg(long, value_name = "SIZE", default_value = "2.5GB")]
    peer_bandwidth: Size,
    /// Bytes a second from a machine's own cache
    #[arg(long, value_name = "SIZE", default_value = "10GB")]
    local_bandwidth: Size,
    /// Seconds to prepare a batch
    #[arg(long, value_name = "SECONDS", default_value_t = 0.0)]
    prepare_seconds: f64,
    /// Seconds to train with a batch
    #[arg(long, value_name = "SECONDS", default_value_t = 0.1)]
    train_seconds: f64,
    /// Batches that each GPU loads ahead
    #[arg(long, value_name = "BATCHES", default_value_t = 2)]
    ahead: u32,
    /// Print a document for programs
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Dataset {
    /// 1,281,167 photographs of 110 KB
    #[value(name = "imagenet-1k")]
    ImageNet1k,
    /// 14,197,122 photographs of 92 KB
    #[value(name = "imagenet-22k")]
    ImageNet22k,
}

impl Dataset {
    /// Samples, and their mean size.
    const fn extent(self) -> (u64, u64) {
        match self {
            Self::ImageNet1k => (1_281_167, 110_000),
            Self::ImageNet22k => (14_197_122, 92_000),
        }
    }
}

#[derive(Debug, Clone)]
struct Policies(Vec<Policy>);

fn policies(name: &str) -> Result<Policies> {
    if name == "all" {
        return Ok(Policies(Policy::ALL.to_vec()));
    }
    let policy = name.parse().map_err(|_| {
        let choices = "all, lru, never-evict, nopfs, lobster or belady";
        Error::invalid(format!("{name:?} is no policy; choose {choices}"))
    })?;
    Ok(Policies(vec![policy]))
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let setup = setup(args)?;
    let mut progress = Progress::new();
    let comparison = compare(&setup, &args.policy.0, |what, done| progress.show(what, done))?;
    drop(progress);
    output::show(&comparison, args.json)
}

fn setup(args: &Args) -> Result<Setup> {
    let (samples, mean) = extent(args)?;
    Ok(Setup {
        samples,
        sizes: Sizes::log_normal(samples, mean, args.spread, args.seed)?,
        nodes: args.nodes,
        gpus: args.gpus,
        batch: args.batch,
        cache: args.cache.0,
        epochs: args.epochs,
        foresight: args.foresight.unwrap_or(args.epochs),
        peers: args.peers,
        seed: args.seed,
        speeds: Speeds {
            backend: args.backend_bandwidth.0 as f64,
            peer: args.peer_bandwidth.0 as f64,
            local: args.local_bandwidth.0 as f64,
            prepare_seconds: args.prepare_seconds,
            train_seconds: args.train_seconds,
            ahead: args.ahead,
        },
    })
}

/// Samples and their mean size; what is given counts more than what is known of a dataset.
fn extent(args: &Args) -> Result<(u64, u64)> {
    let known = args.dataset.map(Dataset::extent);
    let samples = args.samples.or(known.map(|(samples, _)| samples));
    let mean = args.mean_bytes.map(|size| size.0).or(known.map(|(_, mean)| mean));
    samples.zip(mean).ok_or_else(|| {
        Error::invalid("which dataset? give --samples and --mean-bytes, or --dataset imagenet-1k")
    })
}
