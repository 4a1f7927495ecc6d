//! `tensorferry bench codec`.

use tensorferry::Result;
use tensorferry_bench::codec::{Options, run as measure};

use super::progress::Progress;
use super::show;

/// Encode, decode, convert and checksum on one core, beside a plain copy
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How often each case is timed; the median is shown
    #[arg(long, default_value_t = 11)]
    samples: usize,
    /// Print a document for programs, with all samples
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let mut progress = Progress::new();
    progress.show("every codec at every level of this processor", 0.0);
    let report = measure(&Options { rounds: args.samples, ..Options::default() })?;
    drop(progress);
    show(&report, args.json)
}
