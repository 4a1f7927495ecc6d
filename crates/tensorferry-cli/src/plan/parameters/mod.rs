//! `tensorferry plan parameters`.

mod chart;
mod figures;
mod report;
mod timing;

use std::path::PathBuf;
use std::str::FromStr;

use tensorferry::plan::parameters::{Planner, Profile};
use tensorferry::{Error, Result, Size};
use tensorferry_simulate::parameters::comparison;
use tensorferry_simulate::parameters::modelled::{self, Hardware, Shape};

use self::report::Report;
use self::timing::Timing;
use crate::progress::Progress;
use crate::{input, output};

/// Plan which layers are copied to the device and which are used in host memory
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("what").required(true).args(["profile", "model", "random", "figures"]))]
pub(crate) struct Args {
    /// The profile: JSON with layers and the link
    profile: Option<PathBuf>,
    /// A modelled profile instead: bert-base, roberta, bert-large, gpt2-medium, transformer-0.7b to -6.7b
    #[arg(long, value_name = "NETWORK", requires = "on")]
    model: Option<String>,
    /// The machine of the modelled profile: v100-pcie3, a100-pcie3 or a100-pcie4
    #[arg(long, value_name = "MACHINE", requires = "model")]
    on: Option<String>,
    /// Sequences in an iteration of the modelled profile
    #[arg(long, default_value_t = modelled::BATCH, requires = "model")]
    batch: u64,
    /// Write the modelled profile into this file, as JSON
    #[arg(long, value_name = "FILE", requires = "model")]
    save_profile: Option<PathBuf>,
    /// Device memory; a modelled machine has its own
    #[arg(long, value_name = "SIZE", required_unless_present_any = ["model", "random", "figures"])]
    budget: Option<Size>,
    /// The share of all gradients that may be on the device, or bytes: 0.5, 512MiB
    #[arg(long, value_name = "SHARE", default_value = "1.0")]
    gradient_reserve: Reserve,
    /// exact (the shortest iteration found, and how far it may be from the best), paper (MemFerry's algorithm) or copy (ZeRO-Offload's schedule)
    #[arg(long, default_value = "exact")]
    planner: Planner,
    /// Draw compute, link and updates over time into this file, as SVG
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Compare the planners over so many made-up iterations instead
    #[arg(long, value_name = "ITERATIONS")]
    random: Option<u64>,
    /// The seed of the first made-up iteration
    #[arg(long, default_value_t = 0, requires = "random")]
    seed: u64,
    /// Layers of made-up iterations, at most; up to 8, all plans are tried too
    #[arg(long, default_value_t = 8, requires = "random")]
    layers: usize,
    /// All made-up iterations have that many
    #[arg(long, requires = "random")]
    fixed: bool,
    /// Draw the shapes of the paper's figures 9 to 14 into this folder, from modelled profiles
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["plot", "budget"])]
    figures: Option<PathBuf>,
    /// Say how long planning takes with exactly that many layers, instead of comparing
    #[arg(long, requires = "random")]
    time: bool,
    /// Print a document for programs
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    if let Some(cases) = args.random {
        return compare(args, cases);
    }
    if let Some(folder) = &args.figures {
        return figures::draw(folder, args.json);
    }
    let (profile, budget) = match (&args.profile, &args.model, &args.on) {
        (Some(file), ..) => (input::read(file, "profile", Profile::parse)?, args.budget),
        (None, Some(model), Some(on)) => model_one(args, model, on)?,
        // clap has said so before.
        _ => return Err(Error::invalid("which iteration? give a profile, or --model and --on")),
    };
    let budget = budget.ok_or_else(|| Error::invalid("how much memory? give --budget"))?;
    let of_file = |error: Error| match &args.profile {
        Some(file) => error.with("file", file.display()),
        None => error,
    };
    let reserve = match args.gradient_reserve {
        Reserve::Share(share) => profile.reserve(share)?,
        Reserve::Bytes(Size(bytes)) => bytes,
    };
    let report = Report::new(&profile, budget.0, reserve, args.planner).map_err(of_file)?;
    if let Some(figure) = &args.plot {
        output::write_figure(figure, &chart::chart(&profile, &report).draw())?;
    }
    output::show(&report, args.json)
}

/// Room for gradients on the device. A number is a share, a number with a unit is bytes.
#[derive(Debug, Clone, Copy)]
enum Reserve {
    Share(f64),
    Bytes(Size),
}

impl FromStr for Reserve {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        text.parse().map(Self::Share).or_else(|_| text.parse().map(Self::Bytes))
    }
}

fn model_one(args: &Args, model: &str, on: &str) -> Result<(Profile, Option<Size>)> {
    let hardware = Hardware::named(on)?;
    let profile = modelled::profile(&Shape::named(model)?, &hardware, args.batch)?;
    if let Some(file) = &args.save_profile {
        output::write_json(file, "profile", &profile)?;
    }
    Ok((profile, args.budget.or(Some(Size(hardware.capacity_bytes)))))
}

fn compare(args: &Args, cases: u64) -> Result<()> {
    if args.time {
        return output::show(&Timing::new(cases, args.seed, args.layers)?, args.json);
    }
    let mut progress = Progress::new();
    let layers = (args.layers, args.fixed);
    let comparison =
        comparison::compare(cases, args.seed, layers, |done| progress.show("planning", done))?;
    drop(progress);
    output::show(&comparison, args.json)
}
