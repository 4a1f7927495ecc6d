//! `tensorferry bench`: how fast this machine is, with tensorferry and with its rivals.

mod codec;
mod io;
mod progress;

use tensorferry::Result;

/// Measure this machine, beside the rivals that are installed
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    Io(io::Args),
    Codec(codec::Args),
}

pub(crate) fn run(args: &Args) -> Result<()> {
    match &args.what {
        What::Io(args) => io::run(args),
        What::Codec(args) => codec::run(args),
    }
}
