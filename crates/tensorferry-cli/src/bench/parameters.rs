//! `tensorferry bench parameters`.

use clap::ValueEnum;
use tensorferry::Result;
use tensorferry_bench::contests::PARAMETERS;

use super::contests::Contests;
use crate::Env;

/// Steps of the optimizer beside torch and `DeepSpeed`, and models that do not fit on their device;
/// needs Python with torch
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    contests: Contests,
    /// How much of everything
    #[arg(long, default_value = "small")]
    set: Set,
    /// Only this workload; may be given several times
    #[arg(long, value_name = "WORKLOAD")]
    only: Vec<Workload>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Set {
    /// A minute or two
    Small,
    /// What published figures are from: 50 million parameters
    Full,
    /// For tests: nothing is measured that means anything
    #[value(hide = true)]
    Tiny,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Workload {
    /// `AdamW` over float32 parameters
    Adamw,
    /// `AdamW` over bfloat16 parameters with float32 masters
    Halves,
    /// State on SSD, beside what the disk allows
    Disk,
    /// A model that does not fit on the device: planned, beside copying every layer
    Shadow,
    /// How large a model runs in a budget, with and without gradients on the device
    Reserve,
}

pub(crate) fn run(args: &Args, env: &Env) -> Result<()> {
    args.contests.run(PARAMETERS, &args.set, &args.only, env).map(drop)
}
