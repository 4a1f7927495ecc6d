//! `tensorferry simulate`: plans replayed over what was recorded or is known beforehand, beside their
//! rivals and the best there could be.

mod activations;
mod cache;
mod tools;

use tensorferry::Result;

/// Replay plans over recorded or simulated runs, beside their rivals
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    Activations(activations::Args),
    Cache(cache::Args),
    Tools(tools::Args),
}

pub(crate) fn run(args: &Args) -> Result<()> {
    match &args.what {
        What::Activations(args) => activations::run(args),
        What::Cache(args) => cache::run(args),
        What::Tools(args) => tools::run(args),
    }
}
