//! `tensorferry bench tools`.

use std::path::PathBuf;
use std::process::Command;

use tensorferry::plan::checkpoint::Goal;
use tensorferry::{Error, Kind, Result, Size};

use crate::Env;

/// Whether choosing a tool for each situation beats every single tool; needs Python with torch
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A directory on the disk to measure; what is made there is removed again
    #[arg(long, value_name = "DIRECTORY", default_value = ".")]
    path: PathBuf,
    /// A directory on a second file system, such as one in memory
    #[arg(long, value_name = "DIRECTORY", default_value = "/dev/shm")]
    second: PathBuf,
    /// Which seconds count: those to write (w), to read (r), or both (w+r)
    #[arg(long, default_value = "w+r")]
    goal: Goal,
    /// The largest object
    #[arg(long, value_name = "SIZE", default_value = "128MiB")]
    largest: Size,
    /// Keep what each tool took in this file, for `simulate tools`
    #[arg(long, value_name = "FILE", required_unless_present = "live")]
    trace: Option<PathBuf>,
    /// Let the policies work beside the tools, and keep all numbers in this file
    #[arg(long, value_name = "FILE")]
    live: Option<PathBuf>,
    /// More or fewer rounds than usual
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
}

pub(crate) fn run(args: &Args, env: &Env) -> Result<()> {
    if !(args.scale > 0.0 && args.scale <= 1000.0) {
        return Err(Error::invalid(format!("--scale is {}, it must be above 0", args.scale)));
    }
    let python = env.interpreter();
    let mut command = Command::new(python);
    command.args(["-m", "tensorferry_bench.tools", "--path"]).arg(&args.path);
    command.arg("--second").arg(&args.second).args(["--goal", args.goal.name()]);
    command.arg(format!("--largest={}", args.largest.0));
    command.arg(format!("--scale={}", args.scale));
    for (name, file) in [("--trace", &args.trace), ("--live", &args.live)] {
        if let Some(file) = file {
            command.arg(name).arg(file);
        }
    }
    let status = command.status().map_err(|error| {
        Error::from_io(error, "can't start Python").with("python", python.display())
    })?;
    if status.success() {
        return Ok(());
    }
    let why = "measuring failed, Python says why above; where tensorferry_bench is missing, from a \
        clone: pip install ./benches";
    Err(Error::new(Kind::Io, why).with("python", python.display()))
}
