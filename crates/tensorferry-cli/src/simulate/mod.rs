//! `tensorferry simulate`: plans replayed over what was recorded, beside their rivals and the best
//! there could be.

mod tools;

use tensorferry::Result;

/// Replay plans over recorded runs, beside their rivals
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    Tools(tools::Args),
}

pub(crate) fn run(args: &Args) -> Result<()> {
    match &args.what {
        What::Tools(args) => tools::run(args),
    }
}
