//! `tensorferry doctor`: what this machine offers, what that means, and how to get the rest.
//!
//! Probing and showing are apart. A probe is a small file that looks at one part of the machine
//! and returns [`Finding`]s; what it read is turned into a finding by a pure function, so that
//! machines we do not have (a kernel without `io_uring`, a locked-down container) are tested from
//! made-up readings. [`text`] and serde show a [`Report`] and never look at the machine.

mod accelerator;
mod cluster;
mod cpu;
mod finding;
mod library;
mod memory;
mod mount;
mod python;
mod ring;
mod storage;
mod text;

use std::path::{Path, PathBuf};

use tensorferry::{Error, Result};

use self::finding::{Report, Summary};
use self::ring::Verdict;
use crate::{Env, output};

/// Show what this machine offers, what it means for training, and how to get the rest
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The directory where checkpoints, caches or offloaded tensors will lie
    #[arg(long, value_name = "DIRECTORY", default_value = ".")]
    path: PathBuf,
    /// Print a document for programs
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args, env: &Env) -> Result<()> {
    let report = examine(&directory(&args.path)?, env);
    if args.json {
        return output::print_json(&report);
    }
    output::print(&text::show(&report, output::is_coloured()))
}

/// The directory itself, without links and dots; anything else is an error.
fn directory(path: &Path) -> Result<PathBuf> {
    let real = path.canonicalize().map_err(|error| {
        Error::from_io(error, "can't look at --path").with("path", path.display())
    })?;
    if real.is_dir() {
        return Ok(real);
    }
    let message = "--path is not a directory; name the one where checkpoints or data will lie";
    Err(Error::invalid(message).with("path", path.display()))
}

fn examine(path: &Path, env: &Env) -> Report {
    let engine = ring::open_engine();
    let verdict = Verdict::of(&engine);
    let (direct, files) = storage::probe_direct(path, &engine);
    let (features, codec) = cpu::probe_features();
    let answer = python::ask(env.interpreter());
    let mut findings = vec![ring::probe_kernel(), ring::probe(&verdict), direct];
    findings.push(storage::probe_file_system(path));
    findings.extend([memory::probe_size(), memory::probe_lock(), memory::probe_huge_pages()]);
    findings.extend([cpu::probe_cores(), features, python::describe(&answer)]);
    findings.extend(accelerator::probe(&answer));
    findings.extend(cluster::probe());
    Report::new(path, Summary { engine: verdict.choice(), files, codec }, findings)
}
