//! `tensorferry bench activations`.

use std::path::PathBuf;

use clap::ValueEnum;
use tensorferry::Result;
use tensorferry_bench::contests::ACTIVATIONS;

use super::contests::Contests;
use crate::Env;
use crate::output::write_figure;

/// Train with activations on disk, beside plain training and files written by hand; needs Python
/// with torch
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
    /// Draw the losses of `loss` into this file, as SVG
    #[arg(long, value_name = "FILE")]
    plot_loss: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Set {
    /// A few minutes
    Small,
    /// What published figures are from: half an hour and more
    Full,
    /// For tests: nothing is measured that means anything
    #[value(hide = true)]
    Tiny,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Workload {
    /// A deep residual perceptron with a quarter of its activations in memory
    Mlp,
    /// A residual network of convolutions, likewise
    Cnn,
    /// A transformer, likewise
    Transformer,
    /// The largest batch that trains in a fixed amount of memory
    Batch,
    /// Losses of 200 steps, with and without loss of bits
    Loss,
}

pub(crate) fn run(args: &Args, env: &Env) -> Result<()> {
    let report = args.contests.run(ACTIVATIONS, &args.set, &args.only, env)?;
    match args.plot_loss.as_ref().zip(report.curves_chart()) {
        Some((file, chart)) => write_figure(file, &chart.draw()),
        None => Ok(()),
    }
}
