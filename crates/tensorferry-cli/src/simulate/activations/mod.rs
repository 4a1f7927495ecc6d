//! `tensorferry simulate activations`.

mod chart;
mod report;

use std::path::{Path, PathBuf};

use tensorferry::plan::activations::{Planner, Profile};
use tensorferry::{Error, Result, Size};
use tensorferry_simulate::activations::comparison;

use self::report::Report;
use crate::progress::Progress;
use crate::{input, output};

/// Plan which activations of a profiled step go to disk, and replay the step under the plan
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The profile: JSON with tensors, uses and speeds
    #[arg(required_unless_present = "random")]
    profile: Option<PathBuf>,
    /// Memory for activations
    #[arg(long, value_name = "SIZE", required_unless_present = "random")]
    budget: Option<Size>,
    /// timeline (the least waiting that is found) or paper (FlashNeuron's two phases)
    #[arg(long, default_value = "timeline")]
    planner: Planner,
    /// Draw compute, writes, reads and memory over time into this file, as SVG
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Compare both planners over so many made-up steps instead
    #[arg(long, value_name = "STEPS", conflicts_with_all = ["profile", "budget", "planner", "plot"])]
    random: Option<u64>,
    /// The seed of the first made-up step
    #[arg(long, default_value_t = 0, requires = "random")]
    seed: u64,
    /// Print a document for programs
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    match (args.random, &args.profile, args.budget) {
        (Some(cases), ..) => compare(args, cases),
        (None, Some(profile), Some(budget)) => replay(args, profile, budget),
        // clap has said so before.
        _ => Err(Error::invalid("which step? give a profile and --budget, or --random")),
    }
}

fn replay(args: &Args, file: &Path, budget: Size) -> Result<()> {
    let of_file = |error: Error| error.with("file", file.display());
    let profile = input::read(file, "profile", Profile::parse)?;
    let report = Report::new(&profile, budget.0, args.planner).map_err(of_file)?;
    if let Some(figure) = &args.plot {
        output::write_figure(figure, &chart::chart(&profile, &report).draw())?;
    }
    output::show(&report, args.json)
}

fn compare(args: &Args, cases: u64) -> Result<()> {
    let mut progress = Progress::new();
    let comparison = comparison::compare(cases, args.seed, |done| progress.show("planning", done))?;
    drop(progress);
    output::show(&comparison, args.json)
}
