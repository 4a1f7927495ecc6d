//! `tensorferry bench tools`.

use std::path::PathBuf;
use std::process::Command;

use tensorferry::{Error, Kind, Result};

use crate::Env;

/// How well the dictionary of tools chooses, beside the best choice; needs Python with torch
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A directory on the disk to measure; what is made there is removed again
    #[arg(long, value_name = "DIRECTORY", default_value = ".")]
    path: PathBuf,
    /// Record every tool at every step into this file, for `simulate tools`
    #[arg(long, value_name = "FILE", required_unless_present = "live")]
    trace: Option<PathBuf>,
    /// Let the policies work, print their shares of the best, and write all numbers into this file
    #[arg(long, value_name = "FILE")]
    live: Option<PathBuf>,
    /// More or fewer steps than usual
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    /// Saves that need not survive a power cut, and are read while they are cached
    #[arg(long)]
    relaxed: bool,
}

pub(crate) fn run(args: &Args, env: &Env) -> Result<()> {
    if !(args.scale > 0.0 && args.scale <= 1000.0) {
        return Err(Error::invalid(format!("--scale is {}, it must be above 0", args.scale)));
    }
    let python = env.interpreter();
    let mut command = Command::new(python);
    command.args(["-m", "tensorferry_bench.tools", "--path"]).arg(&args.path);
    command.arg(format!("--scale={}", args.scale));
    for (name, file) in [("--trace", &args.trace), ("--live", &args.live)] {
        if let Some(file) = file {
            command.arg(name).arg(file);
        }
    }
    if args.relaxed {
        command.arg("--relaxed");
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
