//! `tensorferry plan`: what would be done, from what was measured or modelled, before anything is done.

mod parameters;

use tensorferry::Result;

/// Plan what moves where, and say why
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    Parameters(parameters::Args),
}

pub(crate) fn run(args: &Args) -> Result<()> {
    match &args.what {
        What::Parameters(args) => parameters::run(args),
    }
}
