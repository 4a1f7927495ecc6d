//! `tensorferry bench codec`.

use tensorferry::{Error, Result, Size};
use tensorferry_bench::codec::{Options, run as measure};

use crate::output::show;
use crate::progress::Progress;

/// What is measured takes about six times this much memory.
const SIZES: std::ops::RangeInclusive<u64> = 4096..=4 << 30;

/// Encode, decode, convert and checksum on one core, beside a plain copy
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Bytes of input; by default 64 MiB, which no cache holds, and 256 KiB, which most do
    #[arg(long)]
    size: Option<Size>,
    /// How often each case is timed; the median is shown
    #[arg(long, default_value_t = 11)]
    samples: usize,
    /// Print a document for programs, with all samples
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let options = options(args)?;
    let mut progress = Progress::new();
    progress.show("every codec at every level of this processor", 0.0);
    let report = measure(&options)?;
    drop(progress);
    show(&report, args.json)
}

fn options(args: &Args) -> Result<Options> {
    let standard = Options { rounds: args.samples, ..Options::default() };
    let Some(Size(bytes)) = args.size else { return Ok(standard) };
    if !SIZES.contains(&bytes) {
        let (least, most) = (Size(*SIZES.start()), Size(*SIZES.end()));
        let message = format!("--size is {}, it must be from {least} to {most}", Size(bytes));
        return Err(Error::invalid(message));
    }
    Ok(Options { working_sets: vec![bytes as usize], sample_bytes: bytes as usize, ..standard })
}
