//! `tensorferry simulate tools`.

use std::path::{Path, PathBuf};

use tensorferry::Result;
use tensorferry::plan::checkpoint::Goal;
use tensorferry_simulate::checkpoint::{PAPER_UPDATE_EVERY, Trace, compare_after};

use crate::{input, output};

/// Choose a transfer tool at each step of a trace of all tools, and compare with the best choice
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The trace: JSON with the recorded times of every tool
    trace: PathBuf,
    /// Which seconds count: those to write (w), to read (r), or both (w+r)
    #[arg(long, default_value = "w")]
    goal: Goal,
    /// Operations after which the paper's algorithm starts its dictionaries anew
    #[arg(long, default_value_t = PAPER_UPDATE_EVERY)]
    update_every: u64,
    /// Start with the dictionaries that these operations would have left: a trace recorded earlier
    #[arg(long, value_name = "TRACE")]
    after: Option<PathBuf>,
    /// Let every phase of the trace last so many times as long as it was recorded
    #[arg(long, value_name = "TIMES", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    longer: u16,
    /// Replay phases, and the steps within each, in another order, made from this number
    #[arg(long, value_name = "SEED")]
    order: Option<u64>,
    /// Print a document for programs
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let earlier = args.after.as_deref().map(read).transpose()?;
    let mut trace = read(&args.trace)?.longer(args.longer.into());
    if let Some(seed) = args.order {
        trace = trace.reordered(seed)?;
    }
    let comparison = compare_after(earlier.as_ref(), &trace, args.goal, args.update_every)
        .map_err(|error| error.with("file", args.trace.display()))?;
    output::show(&comparison, args.json)
}

fn read(path: &Path) -> Result<Trace> {
    input::read(path, "trace", Trace::parse)
}
