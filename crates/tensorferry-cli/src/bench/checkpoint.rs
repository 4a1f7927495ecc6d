//! `tensorferry bench checkpoint`.

use std::path::PathBuf;

use tensorferry::{Result, Size};
use tensorferry_bench::checkpoint::{Plan, Workload, run as measure};

use crate::Env;
use crate::output::{show, write_figure};
use crate::progress::Progress;

/// Save and load a state, beside torch, safetensors and the disk itself; needs Python with torch
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A directory on the disk to measure; what is made there is removed again
    #[arg(long, value_name = "DIRECTORY", default_value = ".")]
    path: PathBuf,
    /// Bytes of all tensors together
    #[arg(long, default_value = "1GiB")]
    size: Size,
    /// How many tensors there are
    #[arg(long, default_value_t = 16)]
    tensors: u64,
    /// How often each case is timed; the median is shown
    #[arg(long, default_value_t = 5)]
    samples: usize,
    /// Which states to measure, instead of one of --size and --tensors
    #[arg(long, conflicts_with_all = ["size", "tensors"])]
    set: Option<Set>,
    /// Leave peak memory out, which takes a process for each contestant
    #[arg(long)]
    no_memory: bool,
    /// Draw the figures into this file, as SVG
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Print a document for programs, with all samples
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Set {
    /// 1 GiB in 16 tensors, 5 GiB in 20 without most rivals, and 5000 tensors of 4 KiB
    Full,
}

pub(crate) fn run(args: &Args, env: &Env) -> Result<()> {
    let (Size(bytes), tensors, rounds) = (args.size, args.tensors, args.samples);
    let memory = !args.no_memory;
    let plan = Plan {
        directory: args.path.clone(),
        python: env.interpreter().to_owned(),
        command: std::env::args_os().map(|arg| arg.to_string_lossy().into_owned()).collect(),
        workloads: match args.set {
            Some(Set::Full) => Workload::full(rounds, memory),
            None => vec![Workload { bytes, tensors, rounds, short: false, memory }],
        },
    };
    let mut progress = Progress::new();
    let report = measure(&plan, &mut |what, done| progress.show(what, done))?;
    drop(progress);
    if let Some(file) = &args.plot {
        write_figure(file, &report.chart().draw())?;
    }
    show(&report, args.json)
}
