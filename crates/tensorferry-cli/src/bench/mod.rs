//! `tensorferry bench`: how fast this machine is, with tensorferry and with its rivals.

mod activations;
mod checkpoint;
mod codec;
mod contests;
mod data;
mod io;
mod parameters;
mod tools;

use tensorferry::Result;

use crate::Env;

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
    Checkpoint(checkpoint::Args),
    Data(data::Args),
    Activations(activations::Args),
    Parameters(parameters::Args),
    Tools(tools::Args),
}

pub(crate) fn run(args: &Args, env: &Env) -> Result<()> {
    match &args.what {
        What::Io(args) => io::run(args),
        What::Codec(args) => codec::run(args),
        What::Checkpoint(args) => checkpoint::run(args, env),
        What::Data(args) => data::run(args, env),
        What::Activations(args) => activations::run(args, env),
        What::Parameters(args) => parameters::run(args, env),
        What::Tools(args) => tools::run(args, env),
    }
}
