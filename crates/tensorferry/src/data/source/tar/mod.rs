//! Tar files in the layout of `WebDataset`: the members of a sample lie next to each other and have
//! one name up to the first dot.
//!
//! ```text
//!   shards ─► headers only, several shards at once ─► Index for each ─► fetch: one positioned read
//!             members, window                         index, fields     over the wanted members
//! ```
//!
//! Opening reads every header once; then any sample can be had in any order. The numbers of samples
//! follow the order of the shards and of the members in them.
//!
//! A shard that is cut or damaged is an error when it is opened: with it gone, all later samples
//! would have other numbers, and that is not for a loader to pass over. Without `strict`, the whole
//! samples in front of the damage are there and the rest is told by [`Source::warnings`]. A sample
//! without one of the fields is an error when it is fetched. An end that has no end marker counts as
//! cut.

mod fields;
mod header;
mod index;
mod members;
mod window;

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use self::fields::Fields;
use self::index::{Index, first_sample, is_damage};
use super::names::common_ending;
use super::side::side_by_side;
use super::spec::Paths;
use super::store::{Located, Object, Options, Store, Stores};
use super::{Label, Source, pattern};
use crate::data::sample::Raw;
use crate::error::{Error, Kind, Result};
use crate::io::Shared;

/// Shards that are kept open; others are opened for each sample, and so are all in a forked child. A process may
/// have 1024 files open unless it is told otherwise.
const OPEN_MAX: usize = 256;

/// How shards are opened.
pub struct TarOptions<'a> {
    /// The fields of a sample, each by one or more names: `["jpg;png", "cls"]`. Without, what the
    /// first sample has decides: its image or array, and its class.
    pub fields: Option<&'a [String]>,
    /// Whether a shard that is cut or damaged is an error.
    pub strict: bool,
    /// Settings of a remote store.
    pub storage_options: &'a Options,
    /// Told after each shard, by the thread that read it.
    pub progress: &'a (dyn Fn(Progress) + Sync),
}

/// How far the index is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Shards that are indexed.
    pub done: usize,
    /// Shards that there are.
    pub shards: usize,
    /// Samples found so far.
    pub samples: usize,
}

/// Samples in tar files.
pub struct Tar {
    shards: Vec<Shard>,
    /// Where the samples of each shard end.
    ends: Vec<usize>,
    wanted: Fields,
    fields: Vec<String>,
    warnings: Vec<String>,
}

struct Shard {
    store: Arc<dyn Store>,
    path: PathBuf,
    bytes: u64,
    open: Option<Arc<dyn Object>>,
    index: Index,
}

impl Tar {
    /// Finds the shards and reads their headers.
    pub fn open(shards: &Paths, engine: &Shared, how: &TarOptions<'_>) -> Result<Self> {
        let found = find(shards, engine, how.storage_options)?;
        let first = look(&found, how.strict)?;
        let wanted = match how.fields {
            Some(selection) => Fields::parse(selection)?,
            None => Fields::usual(&first),
        };
        let (done, samples) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let threads = found.iter().map(|(store, _)| store.requests_max()).max().unwrap_or(1);
        let shards = side_by_side(threads, found.len(), |at| {
            let shard = Shard::read(&found[at], &wanted, how.strict, at < OPEN_MAX)?;
            let samples = samples.fetch_add(shard.index.len(), Ordering::Relaxed);
            let done = done.fetch_add(1, Ordering::Relaxed) + 1;
            let samples = samples + shard.index.len();
            (how.progress)(Progress { done, shards: found.len(), samples });
            Ok(shard)
        })?;
        let tar = Self::of(shards, wanted);
        tar.refuse_absent(&first)?;
        Ok(tar)
    }

    fn of(mut shards: Vec<Shard>, wanted: Fields) -> Self {
        let mut warnings = Vec::new();
        let mut ends = Vec::with_capacity(shards.len());
        let mut met = vec![0_u64; wanted.len()];
        for shard in &mut shards {
            ends.push(ends.last().unwrap_or(&0) + shard.index.len());
            met.iter_mut().zip(&shard.index.met).for_each(|(all, some)| *all |= some);
            warnings.extend(shard.index.damage.take().map(|error| error.to_string()));
        }
        let name = |(at, met): (usize, &u64)| {
            let places = (0..u64::BITS as usize).filter(|place| met >> place & 1 == 1);
            common_ending(places.map(|place| wanted.name(at, place)))
        };
        let fields = met.iter().enumerate().map(name).collect();
        Self { shards, ends, wanted, fields, warnings }
    }

    /// A field that no sample has was misspelt.
    fn refuse_absent(&self, first: &[String]) -> Result<()> {
        if self.is_empty() {
            let told = "the shards have no sample: members must be called NAME.ENDING";
            let shards = self.shards.len();
            return Err(Error::new(Kind::NotFound, told).with("shards", shards));
        }
        let met = |at: usize| self.shards.iter().any(|shard| shard.index.met[at] != 0);
        let Some(absent) = (0..self.wanted.len()).find(|at| !met(*at)) else { return Ok(()) };
        let told = format!("no sample has the field {:?}", self.wanted.shown(absent));
        Err(Error::invalid(format!("{told}; the first one has {}", first.join(", "))))
    }

    fn place(&self, index: usize) -> (&Shard, usize) {
        let shard = self.ends.partition_point(|end| *end <= index);
        let first = shard.checked_sub(1).map_or(0, |before| self.ends[before]);
        (&self.shards[shard], index - first)
    }

    /// The parts of a shard that a sample is made of.
    fn parts(&self, shard: &Shard, at: usize) -> Result<Vec<Range<u64>>> {
        let whole = |(field, part): (usize, Option<Range<u64>>)| {
            part.ok_or_else(|| {
                let told = format!("the sample has no field {:?}", self.wanted.shown(field));
                Error::new(Kind::Corrupt, told)
            })
        };
        shard.index.sample(at).enumerate().map(whole).collect()
    }
}

impl Source for Tar {
    fn len(&self) -> usize {
        self.ends.last().copied().unwrap_or(0)
    }

    fn name(&self, index: usize) -> String {
        let (shard, at) = self.place(index);
        let key = String::from_utf8_lossy(shard.index.keys.get(at));
        format!("{}: {key}", shard.store.name(&shard.path))
    }

    fn bytes(&self, index: usize) -> u64 {
        let (shard, at) = self.place(index);
        shard.index.sample(at).flatten().map(|part| part.end - part.start).sum()
    }

    fn fields(&self) -> &[String] {
        &self.fields
    }

    fn label(&self, _: usize) -> Label {
        Label::None
    }

    fn warnings(&self) -> &[String] {
        &self.warnings
    }

    fn is_remote(&self) -> bool {
        self.shards.iter().any(|shard| shard.store.is_remote())
    }

    fn fetch(&self, index: usize) -> Result<Raw> {
        let (shard, at) = self.place(index);
        let fetched = self.parts(shard, at).and_then(|parts| shard.object()?.fetch(&parts));
        fetched.map_err(|error| error.with("sample", self.name(index)))
    }
}

impl Shard {
    fn read(found: &Found, wanted: &Fields, strict: bool, keep: bool) -> Result<Self> {
        let (store, path) = found;
        let named = |error: Error| error.with("shard", store.name(path));
        let object = store.open(path)?;
        let mut index = Index::read(&*object, wanted).map_err(named)?;
        if let Some(error) = index.damage.take() {
            let whole = index.len();
            let error = named(error).with("whole samples before it", whole);
            if strict {
                return Err(advised(error));
            }
            index.damage = Some(error);
        }
        let bytes = object.bytes();
        let open = (keep || !object.holds_descriptor()).then_some(object);
        Ok(Self { store: Arc::clone(store), path: path.clone(), bytes, open, index })
    }

    fn object(&self) -> Result<Arc<dyn Object>> {
        if let Some(object) = self.open.as_ref().filter(|object| object.is_usable()) {
            return Ok(Arc::clone(object));
        }
        let object = self.store.open(&self.path)?;
        if object.bytes() != self.bytes {
            let told = "the shard was changed since it was indexed; open the dataset again";
            return Err(Error::new(Kind::Corrupt, told));
        }
        Ok(object)
    }
}

#[cold]
fn advised(error: Error) -> Error {
    if !is_damage(&error) {
        return error;
    }
    let advice = "make the shard anew, or pass strict=False to take the samples before the damage";
    error.with("what to do", advice)
}

type Found = (Arc<dyn Store>, PathBuf);

/// The shards behind names and patterns, in order.
fn find(shards: &Paths, engine: &Shared, options: &Options) -> Result<Vec<Found>> {
    let patterns = match shards {
        Paths::Pattern(pattern) => std::slice::from_ref(pattern),
        Paths::List(list) => list.as_slice(),
    };
    let mut stores = Stores::new(engine, options);
    let mut found = Vec::new();
    for pattern in patterns {
        let before = found.len();
        for name in pattern::expand(pattern)? {
            let located = Located::of(&name)?;
            let store = stores.at(&located.root)?;
            let store = stores.get(store);
            if pattern::is_glob(&located.path) {
                let paths = store.matching(&located.path)?.into_iter();
                found.extend(paths.map(|(path, _)| (Arc::clone(store), path)));
            } else {
                found.push((Arc::clone(store), PathBuf::from(located.path)));
            }
        }
        if found.len() == before {
            let error = Error::new(Kind::NotFound, "no shard matches the pattern");
            return Err(error.with("pattern", pattern));
        }
    }
    if found.is_empty() {
        return Err(Error::invalid("the list of shards is empty"));
    }
    Ok(found)
}

/// The fields of the first sample that there is.
fn look(found: &[Found], strict: bool) -> Result<Vec<String>> {
    for (store, path) in found {
        let first = first_sample(&*store.open(path)?);
        match first.map_err(|error| error.with("shard", store.name(path))) {
            Ok(names) if names.is_empty() => {}
            Ok(names) => return Ok(names),
            Err(error) if !strict && is_damage(&error) => {}
            Err(error) => return Err(advised(error)),
        }
    }
    Ok(Vec::new())
}

/// The samples in the bytes of a tar: for each its name and where its fields are; and what is wrong
/// behind them. For tests and fuzzing of what reads foreign bytes.
#[doc(hidden)]
pub fn scan_tar(tar: &[u8], fields: &[String]) -> Result<(Vec<Scanned>, Option<Error>)> {
    let object = Bytes(tar.to_vec());
    let mut index = Index::read(&object, &Fields::parse(fields)?)?;
    let damage = index.damage.take();
    let samples = (0..index.len()).map(|at| Scanned {
        name: index.keys.get(at).to_vec(),
        fields: index.sample(at).collect(),
    });
    Ok((samples.collect(), damage))
}

/// A sample that [`scan_tar`] found.
#[doc(hidden)]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scanned {
    /// Its name.
    pub name: Vec<u8>,
    /// Where its fields are.
    pub fields: Vec<Option<Range<u64>>>,
}

/// An object in memory.
struct Bytes(Vec<u8>);

impl Object for Bytes {
    fn bytes(&self) -> u64 {
        self.0.len() as u64
    }

    fn read(&self, range: Range<u64>) -> Result<Vec<u8>> {
        let bytes = self.0.get(range.start as usize..range.end as usize);
        bytes.map(<[u8]>::to_vec).ok_or_else(|| Error::new(Kind::Internal, "beyond the object"))
    }

    fn fetch(&self, parts: &[Range<u64>]) -> Result<Raw> {
        let parts = parts.iter().map(|part| self.read(part.clone())).collect::<Result<Vec<_>>>()?;
        let ends = parts.iter().scan(0, |end, part| {
            *end += part.len() as u64;
            Some(*end)
        });
        Raw::fields(parts.concat(), ends.collect())
    }

    // Small, so that windows are passed over and met again in small files too.
    fn skip_min(&self) -> u64 {
        2048
    }

    fn holds_descriptor(&self) -> bool {
        false
    }
}
