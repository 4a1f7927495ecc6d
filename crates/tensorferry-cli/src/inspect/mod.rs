//! `tensorferry inspect`: what is in a checkpoint, and whether it is still what was saved.
//!
//! ```text
//!   file ─► recognise: no checkpoint at all? ─► open ─► list ─► verify ─► text, or JSON
//!                └► an index ─► each of its files so ─► where each tensor is
//! ```
//!
//! A damaged file is listed as far as its header can be read. Then the command fails.

mod listing;
mod several;
mod text;

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use tensorferry::checkpoint::{Checkpoint, Format, Header, recognise};
use tensorferry::io::{Config, open};
use tensorferry::{Error, Result, Size};

use self::listing::{Checksums, Listing};
use crate::output;
use crate::progress::Progress;

/// Tensors, and lines of the object, that people are shown.
const LIMIT: usize = 200;

/// From this size on, verifying takes long enough to say how far it is.
const LARGE_BYTES: u64 = 256 << 20;

/// List what is in a checkpoint, any safetensors file or the index of several, and verify checksums
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The file
    file: PathBuf,
    /// Do not read the tensors
    #[arg(long)]
    no_verify: bool,
    /// List at most this many tensors; by default 200, and all of them with --json
    #[arg(long)]
    limit: Option<usize>,
    /// Print a document for programs
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let named = |error: Error| error.with("file", args.file.display());
    let format = recognise(&args.file)?;
    if format == Format::Index {
        return several::run(args);
    }
    format.refuse().map_err(named)?;
    let (listing, damage) = examine(&args.file, args.no_verify)?;
    if args.json {
        output::print_json(&listing.cut(args.limit.unwrap_or(usize::MAX)))?;
    } else {
        output::print(&text::show(&listing, args.limit.unwrap_or(LIMIT)))?;
    }
    damage.map_or(Ok(()), Err)
}

/// What is in a file, and what is wrong with it.
fn examine(file: &Path, no_verify: bool) -> Result<(Listing, Option<Error>)> {
    let engine = open(&Config::default())?;
    let checkpoint = match Checkpoint::open(&engine, file, None, true) {
        Ok(checkpoint) => checkpoint,
        Err(damage) => {
            let Ok((header, data_start)) = read_header(file) else { return Err(damage) };
            let checksums = Checksums::of(&header, Some(&damage), no_verify);
            let listing = Listing::new(file, &header, data_start, checksums);
            return Ok((listing.damaged(&damage), Some(damage)));
        }
    };
    let is_verified = checkpoint.has_checksums() && !no_verify;
    let damage = if is_verified { verify(&checkpoint).err() } else { None };
    let header = checkpoint.header();
    let checksums = Checksums::of(header, damage.as_ref(), no_verify);
    let listing = Listing::new(file, header, checkpoint.data_start(), checksums);
    Ok(match damage {
        None => (listing, None),
        Some(damage) => (listing.damaged(&damage), Some(damage)),
    })
}

fn verify(checkpoint: &Checkpoint) -> Result<()> {
    let all = checkpoint.header().data_len();
    let mut progress = (all >= LARGE_BYTES).then(Progress::new);
    checkpoint.verify(&mut |done| {
        if let Some(progress) = &mut progress {
            let what = format!("verified {} of {}", Size(done), Size(all));
            progress.show(&what, done as f64 / all as f64);
        }
    })
}

/// The header alone, of a file in which other things are wrong.
fn read_header(path: &Path) -> Result<(Header, u64)> {
    let failed = |error| Error::from_io(error, "can't read the file").with("file", path.display());
    let mut file = File::open(path).map_err(failed)?;
    let file_len = file.metadata().map_err(failed)?.len();
    let mut first = [0; 8];
    file.read_exact(&mut first).map_err(failed)?;
    let data_start = Header::data_start(first, file_len)?;
    let mut json = vec![0; data_start as usize - first.len()];
    file.read_exact(&mut json).map_err(failed)?;
    Ok((Header::decode(&json, file_len - data_start)?, data_start))
}
