//! A checkpoint in several files: where each tensor is, and whether the files are what the index says.

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde::Serialize;
use tensorferry::checkpoint::{INDEX_BYTES_MAX, Index, Kept, Ranks};
use tensorferry::{Error, Kind, Result};

use super::listing::{Checksums, Damage, Listing, Object, Row};
use super::{Args, LIMIT, examine, text};
use crate::output;

/// All files, listed.
#[derive(Debug, Serialize)]
pub(super) struct Several {
    pub file: String,
    /// What the files of several ranks have in common.
    pub save: Option<Save>,
    /// Of all files.
    pub bytes: u64,
    pub tensor_count: usize,
    pub tensor_bytes: u64,
    pub tensors: Vec<Placed>,
    pub files: Vec<Part>,
    /// That of rank 0.
    pub object: Option<Object>,
    pub error: Option<Damage>,
}

#[derive(Debug, Serialize)]
pub(super) struct Save {
    pub token: String,
    pub ranks: usize,
}

/// One tensor.
#[derive(Debug, Serialize)]
pub(super) struct Placed {
    pub name: String,
    pub dtype: String,
    pub shape: Vec<u64>,
    /// Of the whole.
    pub bytes: u64,
    /// Which files have it, for people.
    pub place: String,
}

/// One file.
#[derive(Debug, Serialize)]
pub(super) struct Part {
    pub file: String,
    pub bytes: u64,
    pub checksums: Checksums,
    pub error: Option<Damage>,
}

pub(super) fn run(args: &Args) -> Result<()> {
    let named = |error: Error| error.with("file", args.file.display());
    let index = Index::parse(&read(&args.file)?).map_err(named)?;
    let mut held = Held::examine(&args.file, files(&index), args.no_verify);
    let tensors = match &index {
        Index::Ranks(ranks) => {
            ranks.tensors.iter().map(|(name, kept)| held.kept(name, kept, ranks)).collect()
        }
        Index::Shards(map) => {
            map.iter().map(|(name, file)| held.whole(name, file, file.clone())).collect()
        }
    };
    let (listing, damage) = held.listed(&args.file, &index, tensors);
    if args.json {
        output::print_json(&listing.cut(args.limit.unwrap_or(usize::MAX)))?;
    } else {
        output::print(&text::show_several(&listing, args.limit.unwrap_or(LIMIT)))?;
    }
    damage.map_or(Ok(()), Err)
}

/// The bytes of an index, or a few more than any has.
fn read(path: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let read =
        File::open(path).and_then(|file| file.take(INDEX_BYTES_MAX + 1).read_to_end(&mut bytes));
    let failed = |error| Error::from_io(error, "can't read the file").with("file", path.display());
    read.map_err(failed)?;
    Ok(bytes)
}

/// The files of an index, in its order; those of others by name.
fn files(index: &Index) -> Vec<&str> {
    match index {
        Index::Ranks(ranks) => ranks.files.iter().map(String::as_str).collect(),
        Index::Shards(map) => {
            map.iter().map(|(_, file)| file.as_str()).collect::<BTreeSet<_>>().into_iter().collect()
        }
    }
}

/// What the files hold, and the first thing that is wrong.
struct Held {
    parts: Vec<Part>,
    rows: HashMap<String, HashMap<String, Row>>,
    object: Option<Object>,
    damage: Option<Error>,
}

impl Held {
    fn examine(index: &Path, files: Vec<&str>, no_verify: bool) -> Self {
        let mut held = Self { parts: vec![], rows: HashMap::new(), object: None, damage: None };
        for file in files {
            match examine(&index.with_file_name(file), no_verify) {
                Ok((listing, damage)) => held.add(file, listing, damage),
                Err(damage) => {
                    let (checksums, error) = (Checksums::Unverified, Some(Damage::of(&damage)));
                    held.parts.push(Part { file: file.to_owned(), bytes: 0, checksums, error });
                    held.found(damage);
                }
            }
        }
        held
    }

    fn add(&mut self, file: &str, listing: Listing, damage: Option<Error>) {
        let Listing { bytes, checksums, error, .. } = listing;
        self.parts.push(Part { file: file.to_owned(), bytes, checksums, error });
        let rows = listing.tensors.into_iter().map(|row| (row.name.clone(), row));
        self.rows.insert(file.to_owned(), rows.collect());
        if self.parts.len() == 1 {
            self.object = listing.object;
        }
        if let Some(damage) = damage {
            self.found(damage);
        }
    }

    fn found(&mut self, damage: Error) {
        self.damage.get_or_insert(damage);
    }

    /// A tensor that is whole in one file.
    fn whole(&mut self, name: &str, file: &str, place: String) -> Placed {
        let row =
            self.row(name, file).map(|row| (row.dtype.to_owned(), row.shape.clone(), row.bytes));
        let (dtype, shape, bytes) = row.unwrap_or_else(|| ("?".into(), vec![], 0));
        Placed { name: name.to_owned(), dtype, shape, bytes, place }
    }

    /// A tensor as the ranks keep it.
    fn kept(&mut self, name: &str, kept: &Kept, index: &Ranks) -> Placed {
        match kept {
            Kept::Private { ranks, equal, .. } => {
                let place = if *equal { "the same on all ranks".into() } else { on(ranks) };
                self.whole(name, &index.files[ranks[0]], place)
            }
            Kept::Replicated { dtype, shape, rank } => {
                let placed =
                    self.whole(name, &index.files[*rank], format!("in the file of rank {rank}"));
                if (&placed.dtype, &placed.shape) != (dtype, shape) {
                    self.contradicted(name, &index.files[*rank]);
                }
                placed
            }
            Kept::Sharded { dtype, shape, dim } => {
                let bytes = self.sharded(name, dtype, shape, *dim, index);
                let place = format!("cut along {dim}");
                Placed {
                    name: name.to_owned(),
                    dtype: dtype.clone(),
                    shape: shape.clone(),
                    bytes,
                    place,
                }
            }
        }
    }

    /// The bytes of all parts of a tensor, which have to make up its shape.
    fn sharded(
        &mut self,
        name: &str,
        dtype: &str,
        shape: &[u64],
        dim: usize,
        index: &Ranks,
    ) -> u64 {
        let (mut bytes, mut length) = (0, 0);
        for file in &index.files {
            let Some(row) = self.row(name, file) else { continue };
            bytes += row.bytes;
            length += row.shape.get(dim).copied().unwrap_or(0);
            let fits = |(at, size): (usize, &u64)| at == dim || shape.get(at) == Some(size);
            let is_part = row.dtype == dtype && row.shape.len() == shape.len();
            if !is_part || !row.shape.iter().enumerate().all(fits) {
                self.contradicted(name, file);
            }
        }
        if self.damage.is_none() && length != shape[dim] {
            self.contradicted(name, &index.files[0]);
        }
        bytes
    }

    /// What a file says of a tensor that the index says it has.
    fn row(&mut self, name: &str, file: &str) -> Option<&Row> {
        // Of a file that could not be read, that is what is wrong.
        let is_missing = self.rows.get(file).is_some_and(|rows| !rows.contains_key(name));
        if is_missing {
            self.contradicted(name, file);
        }
        self.rows.get(file)?.get(name)
    }

    fn contradicted(&mut self, name: &str, file: &str) {
        let why = "a file does not have a tensor as the index says";
        self.found(Error::new(Kind::Corrupt, why).with("tensor", name).with("file", file));
    }

    fn listed(self, file: &Path, index: &Index, tensors: Vec<Placed>) -> (Several, Option<Error>) {
        let listing = Several {
            file: file.display().to_string(),
            save: match index {
                Index::Ranks(ranks) => {
                    Some(Save { token: ranks.token.clone(), ranks: ranks.files.len() })
                }
                Index::Shards(_) => None,
            },
            bytes: self.parts.iter().map(|part| part.bytes).sum(),
            tensor_count: tensors.len(),
            tensor_bytes: tensors.iter().map(|tensor| tensor.bytes).sum(),
            tensors,
            files: self.parts,
            object: self.object,
            error: self.damage.as_ref().map(Damage::of),
        };
        (listing, self.damage)
    }
}

impl Several {
    /// With the first of its tensors only.
    fn cut(mut self, limit: usize) -> Self {
        self.tensors.truncate(limit);
        self
    }
}

fn on(ranks: &[usize]) -> String {
    match ranks {
        [rank] => format!("on rank {rank}"),
        ranks => format!("each of {} ranks its own", ranks.len()),
    }
}
