//! `tensorferry bench data`.

use std::path::PathBuf;

use clap::ValueEnum;
use tensorferry::Result;
use tensorferry_bench::data::{Plan, run as measure};

use crate::Env;
use crate::output::{show, write_figure};
use crate::progress::Progress;

/// Load pictures and arrays, beside torch, DALI, SPDL and `WebDataset`; needs Python with torch
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A directory for the files that are loaded; what is made there is removed again
    #[arg(long, value_name = "DIRECTORY", default_value = ".")]
    path: PathBuf,
    /// How much of everything
    #[arg(long, default_value = "quick")]
    set: Set,
    /// Only this workload; may be given several times
    #[arg(long, value_name = "WORKLOAD")]
    only: Vec<Workload>,
    /// Draw the figures into this file, as SVG
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Print a document for programs, with all samples
    #[arg(long)]
    json: bool,
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
}

pub(crate) fn run(args: &Args, env: &Env) -> Result<()> {
    let plan = Plan {
        directory: args.path.clone(),
        python: env.interpreter().to_owned(),
        command: std::env::args_os().map(|arg| arg.to_string_lossy().into_owned()).collect(),
        set: name(&args.set),
        only: args.only.iter().map(name).collect(),
    };
    let mut progress = Progress::new();
    let report = measure(&plan, &mut |what, done| progress.show(what, done))?;
    drop(progress);
    if let Some(file) = &args.plot {
        write_figure(file, &report.chart().draw())?;
    }
    show(&report, args.json)
}

/// As it is written on the command line, and read by Python.
fn name(value: &impl ValueEnum) -> String {
    value.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}
