//! `tensorferry bench io`.

use std::path::PathBuf;
use std::time::Duration;

use tensorferry::io::Choice;
use tensorferry::{Error, Result, Size};
use tensorferry_bench::io::{CASES, Plan, run as measure};

use crate::output::show;
use crate::progress::Progress;

/// Read and write, in order and at random, at several queue depths; fio beside it if installed
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A directory on the disk to measure; the file made there is removed again
    #[arg(long, value_name = "DIRECTORY", default_value = ".")]
    path: PathBuf,
    /// The engine's backend: auto, ring, threads or memory
    #[arg(long, default_value = "auto")]
    backend: Choice,
    /// Length of the file
    #[arg(long, default_value = "2GiB")]
    size: Size,
    /// Length of one sample
    #[arg(long, default_value_t = 2.0, allow_negative_numbers = true)]
    seconds: f64,
    /// Samples of each case; the median is shown
    #[arg(long, default_value_t = 3)]
    samples: usize,
    /// Leave fio out
    #[arg(long)]
    alone: bool,
    /// Print a document for programs, with all samples
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let sample = Duration::try_from_secs_f64(args.seconds).map_err(|_| {
        Error::invalid(format!("--seconds is {}, it must be a length of time", args.seconds))
    })?;
    let plan = Plan {
        directory: args.path.clone(),
        choice: args.backend,
        file_bytes: args.size.0,
        sample,
        repetitions: args.samples,
        compare: !args.alone,
    };
    let mut progress = Progress::new();
    let report = measure(&plan, &CASES, &mut |what, done| progress.show(what, done))?;
    drop(progress);
    show(&report, args.json)
}
