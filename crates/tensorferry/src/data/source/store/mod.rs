//! Where bytes lie under names: in the file system, in an object store, on a web server.
//!
//! A [`Store`] lists, measures and reads; sources make samples of that and never ask where they are.
//! Every call waits in the thread that makes it, for a bounded time where a network is between.
//!
//! | store | names | module |
//! |---|---|---|
//! | the file system, by way of the [engine](crate::io) | paths, `file://` | `local` |
//! | object stores, web servers | `s3://`, `gs://`, `http://`, `https://` | `remote` (feature `remote`) |

mod gather;
mod local;
#[cfg(all(feature = "remote", not(loom)))]
mod remote;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use local::{Local, STORED_MIN};

use super::names::Names;
use crate::data::sample::Raw;
use crate::error::{Error, Kind, Result};
use crate::io::Shared;

/// Settings of a remote store, by the names that its provider gives them.
pub type Options = BTreeMap<String, String>;

/// A place where bytes lie under paths.
pub trait Store: Send + Sync {
    /// The directories right below this one, in no order; links to directories are directories.
    fn directories(&self, under: &Path) -> Result<Vec<OsString>>;

    /// Finds every file below a directory whose name is `wanted`, however deep, with its bytes; zero
    /// for one that can't be measured. Links are followed.
    fn files(
        &self,
        under: &Path,
        wanted: &dyn Fn(&[u8]) -> bool,
        found: &mut dyn FnMut(PathBuf, u64),
    ) -> Result<()>;

    /// The files that match a pattern of `*`, `?`, `[...]` and `**`, in order, with their bytes. As
    /// in a shell, a leading dot is not matched by a `*`.
    fn matching(&self, pattern: &str) -> Result<Vec<(PathBuf, u64)>>;

    /// The bytes of each of these files; zero for one that is not there, because whoever fetches it
    /// will say so.
    fn sizes(&self, paths: &Names) -> Result<Vec<u64>>;

    /// A whole file as a sample of one field. If `bytes` is not zero, a file that has another size
    /// is an error: it was changed, or is being written.
    fn fetch(&self, path: &Path, bytes: u64) -> Result<Raw>;

    /// A file to read parts of.
    fn open(&self, path: &Path) -> Result<Arc<dyn Object>>;

    /// How a path is called by people.
    fn name(&self, path: &Path) -> String;

    /// How many requests at once are worth it.
    fn requests_max(&self) -> usize;

    /// Whether a network is between.
    fn is_remote(&self) -> bool;
}

/// An open file of a store.
pub trait Object: Send + Sync {
    /// How many bytes it has.
    fn bytes(&self) -> u64;

    /// Exactly these bytes; an object that ends earlier is [`Kind::Truncated`].
    fn read(&self, range: Range<u64>) -> Result<Vec<u8>>;

    /// These parts, in this order, as the fields of a sample.
    fn fetch(&self, parts: &[Range<u64>]) -> Result<Raw>;

    /// So many bytes are sooner read than passed over.
    fn skip_min(&self) -> u64;

    /// Whether it takes one of the few files that a process may have open.
    fn holds_descriptor(&self) -> bool;

    /// Whether this process may read from it, which may have been forked from the one that opened it.
    fn is_usable(&self) -> bool {
        true
    }
}

/// A name, split into its store and what the store calls it.
pub struct Located {
    /// What stands for the store: `s3://bucket`; empty for the file system.
    pub root: String,
    /// Where in the store.
    pub path: String,
}

impl Located {
    /// Splits a path or URL.
    pub fn of(name: &str) -> Result<Self> {
        let Some((scheme, rest)) = name.split_once("://") else {
            return Ok(Self { root: String::new(), path: at_home(name) });
        };
        match scheme.to_ascii_lowercase().as_str() {
            "file" => Ok(Self { root: String::new(), path: rest.to_owned() }),
            scheme @ ("s3" | "s3a" | "gs" | "http" | "https") => {
                let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
                if host.is_empty() {
                    let told = format!("{name:?} names no bucket or host");
                    return Err(Error::invalid(format!("{told}: write {scheme}://NAME/path")));
                }
                Ok(Self { root: format!("{scheme}://{host}"), path: path.to_owned() })
            }
            other => {
                let choices = "s3://, gs://, http://, https://, file:// or a plain path";
                let told = format!("{other}:// is not known here; use {choices}");
                Err(Error::new(Kind::Unsupported, told).with("name", name))
            }
        }
    }
}

/// As torchvision does: a path that starts with `~/` starts at home.
fn at_home(path: &str) -> String {
    match (path.strip_prefix("~/"), std::env::var("HOME")) {
        (Some(rest), Ok(home)) => format!("{home}/{rest}"),
        _ => path.to_owned(),
    }
}

/// The stores that the names of one source lead to, each opened once.
pub struct Stores<'a> {
    engine: &'a Shared,
    options: &'a Options,
    open: Vec<(String, Arc<dyn Store>)>,
}

impl<'a> Stores<'a> {
    /// None so far; what is local will be read by way of this engine.
    pub fn new(engine: &'a Shared, options: &'a Options) -> Self {
        Self { engine, options, open: Vec::new() }
    }

    /// The number of the store behind a root.
    pub fn at(&mut self, root: &str) -> Result<usize> {
        if let Some(known) = self.open.iter().position(|(name, _)| name == root) {
            return Ok(known);
        }
        let store = open(root, self.engine, self.options)?;
        self.open.push((root.to_owned(), store));
        Ok(self.open.len() - 1)
    }

    /// Store number `at`.
    pub fn get(&self, at: usize) -> &Arc<dyn Store> {
        &self.open[at].1
    }

    /// All of them, by number.
    pub fn all(self) -> Vec<Arc<dyn Store>> {
        self.open.into_iter().map(|(_, store)| store).collect()
    }
}

fn open(root: &str, engine: &Shared, options: &Options) -> Result<Arc<dyn Store>> {
    if root.is_empty() {
        // Options are for what is remote; a list of both must not be refused for them.
        return Ok(Arc::new(Local::new(engine.clone())));
    }
    open_remote(root, options)
}

#[cfg(all(feature = "remote", not(loom)))]
fn open_remote(root: &str, options: &Options) -> Result<Arc<dyn Store>> {
    Ok(Arc::new(remote::Remote::open(root, options)?))
}

#[cfg(not(all(feature = "remote", not(loom))))]
fn open_remote(root: &str, _: &Options) -> Result<Arc<dyn Store>> {
    let told = "this build reads local files only; build tensorferry with its feature `remote`";
    Err(Error::new(Kind::Unsupported, told).with("store", root))
}

/// A sample that is not what was listed. A shorter one may still be in the making.
#[cold]
fn changed(listed: u64, now: u64) -> Error {
    let kind = if now < listed { Kind::Truncated } else { Kind::Corrupt };
    let told = format!("the file has {now} bytes, and had {listed} when it was listed");
    Error::new(kind, format!("{told}; open the dataset again once nobody writes to it"))
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_split_into_store_and_path() {
        for (name, root, path) in [
            ("/data/a", "", "/data/a"),
            ("data/a", "", "data/a"),
            ("file:///data/a", "", "/data/a"),
            ("s3://bucket/a/b.tar", "s3://bucket", "a/b.tar"),
            ("S3://Bucket", "s3://Bucket", ""),
            ("http://host:80/a", "http://host:80", "a"),
        ] {
            let located = Located::of(name).unwrap();
            assert_eq!((located.root.as_str(), located.path.as_str()), (root, path), "{name}");
        }
    }

    #[test]
    fn a_name_that_leads_nowhere_says_what_to_write() {
        let said = |name| Located::of(name).err().unwrap();
        assert_eq!(
            said("s3:///key").to_string(),
            "\"s3:///key\" names no bucket or host: write s3://NAME/path"
        );
        assert_eq!(said("hdfs://a/b").kind(), Kind::Unsupported);
        assert_eq!(
            said("hdfs://a/b").to_string(),
            "hdfs:// is not known here; use s3://, gs://, http://, https://, file:// or a plain \
             path (name: hdfs://a/b)"
        );
    }
}
