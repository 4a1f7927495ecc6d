//! What benchmarks have in common whose contestants live in Python.

use std::path::PathBuf;

use clap::ValueEnum;
use tensorferry::Result;
use tensorferry_bench::contests::{Plan, Report, Suite, run as measure};

use crate::Env;
use crate::output::{show, write_figure};
use crate::progress::Progress;

#[derive(Debug, clap::Args)]
pub(crate) struct Contests {
    /// A directory for files; what is made there is removed again
    #[arg(long, value_name = "DIRECTORY", default_value = ".")]
    path: PathBuf,
    /// Draw the figures into this file, as SVG
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Print a document for programs, with all samples
    #[arg(long)]
    json: bool,
}

impl Contests {
    /// Measures, draws and shows.
    pub(crate) fn run(
        &self,
        suite: Suite,
        set: &impl ValueEnum,
        only: &[impl ValueEnum],
        env: &Env,
    ) -> Result<Report> {
        let plan = Plan {
            suite,
            directory: self.path.clone(),
            python: env.interpreter().to_owned(),
            command: std::env::args_os().map(|arg| arg.to_string_lossy().into_owned()).collect(),
            set: name(set),
            only: only.iter().map(name).collect(),
        };
        let mut progress = Progress::new();
        let report = measure(&plan, &mut |what, done| progress.show(what, done))?;
        drop(progress);
        if let Some(file) = &self.plot {
            write_figure(file, &report.chart().draw())?;
        }
        show(&report, self.json)?;
        Ok(report)
    }
}

/// As it is written on the command line, and read by Python.
fn name(value: &impl ValueEnum) -> String {
    value.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}
