//! `tensorferry bench data`.

use clap::ValueEnum;
use tensorferry::Result;
use tensorferry_bench::contests::DATA;

use super::contests::Contests;
use crate::Env;

/// Load pictures and arrays, beside torch, DALI, SPDL and `WebDataset`; needs Python with torch
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    contests: Contests,
    /// How much of everything
    #[arg(long, default_value = "quick")]
    set: Set,
    /// Only this workload; may be given several times
    #[arg(long, value_name = "WORKLOAD")]
    only: Vec<Workload>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Set {
    /// A minute or two
    Quick,
    /// What published figures are from
    Full,
    /// For tests: nothing is measured that means anything
    #[value(hide = true)]
    Tiny,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Workload {
    /// JPEG files to batches of crops: speed, cost, first batch, memory
    Images,
    /// Arrays of tens of megabytes, beside a plain copy
    Arrays,
    /// A slow store and a cache of half the dataset, beside the bound and the simulator
    Slow,
    /// Two loaders in one process with samples of different sizes
    Consumers,
    /// A loader on a cold disk while a checkpoint is saved
    Beside,
}

pub(crate) fn run(args: &Args, env: &Env) -> Result<()> {
    args.contests.run(DATA, &args.set, &args.only, env).map(drop)
}
