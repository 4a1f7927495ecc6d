//! The `tensorferry` command, as a library.
//!
//! The stand-alone binary and the wheel's console script call the same [`run`]. Each subcommand
//! is one module with an `Args` and a `run`; this file only names them and decides how a command
//! ends: 0, 1 after `error: ...`, or 2 after a mistake in the arguments.

mod bench;
mod doctor;
mod input;
mod inspect;
mod output;
mod plan;
mod progress;
mod simulate;

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::{Parser, Subcommand};
use tensorferry::Result;

/// What the caller knows and the command can't find out by itself.
#[derive(Debug, Clone, Default)]
pub struct Env {
    /// The Python interpreter to ask about torch and to measure it with.
    pub python: Option<PathBuf>,
}

impl Env {
    /// The caller's interpreter, or the first `python3` on the search path.
    fn interpreter(&self) -> &Path {
        self.python.as_deref().unwrap_or(Path::new("python3"))
    }
}

/// Moves tensors between storage, host memory and accelerators while a model trains.
#[derive(Debug, Parser)]
#[command(name = "tensorferry", bin_name = "tensorferry", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Doctor(doctor::Args),
    Inspect(inspect::Args),
    Bench(bench::Args),
    Plan(plan::Args),
    Simulate(simulate::Args),
}

/// Runs the command line `args`, whose first item is the program's name, and gives the exit code.
pub fn run(args: impl IntoIterator<Item = OsString>, env: &Env) -> u8 {
    match Cli::try_parse_from(args) {
        Ok(cli) => exit_code(dispatch(cli.command, env)),
        Err(usage) => {
            // Also how `--help` and `--version` arrive. There is nobody left to tell when even
            // this can't be printed.
            let _ = usage.print();
            u8::try_from(usage.exit_code()).unwrap_or(2)
        }
    }
}

fn dispatch(command: Command, env: &Env) -> Result<()> {
    match command {
        Command::Doctor(args) => doctor::run(&args, env),
        Command::Inspect(args) => inspect::run(&args),
        Command::Bench(args) => bench::run(&args, env),
        Command::Plan(args) => plan::run(&args),
        Command::Simulate(args) => simulate::run(&args),
    }
}

fn exit_code(done: Result<()>) -> u8 {
    match done {
        Ok(()) => 0,
        // `tensorferry doctor | head` has seen what it wanted to see.
        Err(error) if output::reader_is_gone(&error) => 0,
        Err(error) => {
            // It may name what stands in somebody's file.
            let error = output::printable(&error.to_string());
            let _ = writeln!(std::io::stderr(), "error: {error}");
            1
        }
    }
}
