//! Object stores and web servers, through the crate `object_store`.
//!
//! The crate is asynchronous and this one is not: its sockets are served by one thread of the
//! process (`runtime`), and a call waits in the thread that makes it. Every wait is bounded: for a
//! connection, for the next bytes, for a whole request, and by a number of retries (`settings`).
//! What goes wrong is told as our kinds (`refusal`).
//!
//! A web server can read but not list: its files must be named one by one.

mod refusal;
mod runtime;
mod settings;

use std::ffi::OsString;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures_util::{StreamExt, TryStreamExt, stream};
use object_store::path::Path as Key;
use object_store::{GetOptions, ListResult, ObjectMeta, ObjectStore, ObjectStoreExt};

use self::settings::Scheme;
use super::local::HOW;
use super::{Names, Object, Options, Store, changed, gather};
use crate::data::sample::Raw;
use crate::error::{Error, Kind, Result};

/// Requests at once, when a list is made.
const REQUESTS_MAX: usize = 16;

/// A gap of this many bytes costs less to read than a request: at 100 MB/s, ten milliseconds.
const GAP_MAX: u64 = 1 << 20;

/// A bucket, or a web server.
#[derive(Clone)]
pub struct Remote {
    store: Arc<dyn ObjectStore>,
    /// `s3://bucket`.
    root: String,
    scheme: Scheme,
    /// Sockets belong to the process that opened them.
    process: u32,
}

impl Remote {
    /// Opens the store; nothing is asked of it yet.
    pub fn open(root: &str, options: &Options) -> Result<Self> {
        let scheme = Scheme::of(root)?;
        // Its client finds the thread that serves its sockets when it is made.
        let store = runtime::wait(async { settings::open(scheme, root, options) })?
            .map_err(|error| error.with("store", root))?;
        Ok(Self { store, root: root.to_owned(), scheme, process: std::process::id() })
    }

    fn key(&self, path: &Path) -> Result<Key> {
        let text = path.to_str().unwrap_or_default().trim_end_matches('/');
        if self.scheme == Scheme::Http && text.contains(['?', '#']) {
            let told = "an address with a query can't be read; give one that ends with its path";
            return Err(Error::new(Kind::Unsupported, told).with("object", self.name(path)));
        }
        // A web address is written with its odd letters as %20; the key of an object is not.
        let key = match self.scheme {
            Scheme::Http => Key::from_url_path(text),
            Scheme::S3 | Scheme::Google => Key::parse(text),
        };
        key.ok().filter(|_| path.to_str().is_some()).ok_or_else(|| {
            let told = "the name can't be used in a store: it has empty parts, dots or odd letters";
            Error::invalid(told).with("object", self.name(path))
        })
    }

    /// Waits for a request.
    fn wait<T>(
        &self,
        path: &Path,
        request: impl Future<Output = object_store::Result<T>>,
    ) -> Result<T> {
        if std::process::id() != self.process {
            let told =
                "the dataset was opened before this process was forked; open it in the child";
            return Err(Error::new(Kind::Unsupported, told).with("store", &self.root));
        }
        runtime::wait(request)?.map_err(|error| self.refused(path, &error))
    }

    #[cold]
    fn refused(&self, path: &Path, error: &object_store::Error) -> Error {
        refusal::told(self.scheme, error).with("object", self.name(path))
    }

    fn refuse_listing(&self) -> Result<()> {
        if self.scheme == Scheme::Http {
            let told =
                "a web server can't list its files; name them one by one, or with {000..999}";
            return Err(Error::new(Kind::Unsupported, told).with("store", &self.root));
        }
        Ok(())
    }

    /// What is right below a directory.
    fn level(&self, under: &Path) -> Result<ListResult> {
        self.refuse_listing()?;
        let key = self.key(under)?;
        self.wait(under, self.store.list_with_delimiter(Some(&key)))
    }

    /// Everything below a directory.
    fn list(&self, under: &Path) -> Result<Vec<ObjectMeta>> {
        self.refuse_listing()?;
        let key = self.key(under)?;
        self.wait(under, self.store.list(Some(&key)).try_collect())
    }

    /// The bytes of one object, or of a part of it, and how many it has.
    fn get(&self, path: &Path, range: Option<Range<u64>>) -> Result<(Vec<u8>, u64)> {
        let key = self.key(path)?;
        let options = GetOptions { range: range.map(Into::into), ..GetOptions::default() };
        self.wait(path, async {
            let result = self.store.get_opts(&key, options).await?;
            let bytes = result.meta.size;
            Ok((result.bytes().await?.into(), bytes))
        })
    }
}

impl Store for Remote {
    fn directories(&self, under: &Path) -> Result<Vec<OsString>> {
        let name = |prefix: &Key| prefix.filename().map(OsString::from);
        Ok(self.level(under)?.common_prefixes.iter().filter_map(name).collect())
    }

    fn files(
        &self,
        under: &Path,
        wanted: &dyn Fn(&[u8]) -> bool,
        found: &mut dyn FnMut(PathBuf, u64),
    ) -> Result<()> {
        for object in self.list(under)? {
            if object.location.filename().is_some_and(|name| wanted(name.as_bytes())) {
                found(PathBuf::from(object.location.as_ref()), object.size);
            }
        }
        Ok(())
    }

    fn matching(&self, pattern: &str) -> Result<Vec<(PathBuf, u64)>> {
        let matcher = glob::Pattern::new(pattern).map_err(|error| {
            Error::invalid("the pattern can't be read").with("pattern", pattern).caused_by(error)
        })?;
        let directory = directory(pattern);
        // A bucket may be large: what lies deeper is not asked for unless the pattern goes there.
        let listed = if pattern[directory.len()..].contains('/') {
            self.list(Path::new(directory))?
        } else {
            self.level(Path::new(directory))?.objects
        };
        let found = listed
            .into_iter()
            .filter(|object| matcher.matches_with(object.location.as_ref(), HOW))
            .map(|object| (PathBuf::from(object.location.as_ref()), object.size));
        let mut found: Vec<_> = found.collect();
        found.sort_unstable();
        Ok(found)
    }

    fn sizes(&self, paths: &Names) -> Result<Vec<u64>> {
        let keys: Vec<Key> =
            (0..paths.len()).map(|at| self.key(paths.path(at))).collect::<Result<_>>()?;
        let size = |key| async move {
            match self.store.head(&key).await {
                Err(object_store::Error::NotFound { .. }) => Ok(0),
                head => head.map(|head| head.size),
            }
        };
        let sizes = stream::iter(keys).map(size).buffered(REQUESTS_MAX).try_collect();
        self.wait(Path::new(""), sizes)
    }

    fn fetch(&self, path: &Path, bytes: u64) -> Result<Raw> {
        let (read, now) = self.get(path, None)?;
        if bytes != 0 && now != bytes {
            return Err(changed(bytes, now).with("object", self.name(path)));
        }
        Ok(Raw::single(read))
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn Object>> {
        let key = self.key(path)?;
        let bytes = self.wait(path, self.store.head(&key))?.size;
        Ok(Arc::new(Opened { store: self.clone(), path: path.to_owned(), bytes }))
    }

    fn name(&self, path: &Path) -> String {
        format!("{}/{}", self.root, path.display())
    }

    fn requests_max(&self) -> usize {
        REQUESTS_MAX
    }

    fn is_remote(&self) -> bool {
        true
    }
}

/// An object whose size is known.
struct Opened {
    store: Remote,
    path: PathBuf,
    bytes: u64,
}

impl Object for Opened {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn read(&self, range: Range<u64>) -> Result<Vec<u8>> {
        // Stores answer an empty range in different ways, and one beyond the end with an error.
        if range.is_empty() {
            return Ok(Vec::new());
        }
        if range.end > self.bytes {
            let told = format!("the object has {} bytes, and {} are needed", self.bytes, range.end);
            return Err(
                Error::new(Kind::Truncated, told).with("object", self.store.name(&self.path))
            );
        }
        let wanted = range.end - range.start;
        let (read, now) = self.store.get(&self.path, Some(range))?;
        if now != self.bytes || read.len() as u64 != wanted {
            return Err(changed(self.bytes, now).with("object", self.store.name(&self.path)));
        }
        Ok(read)
    }

    fn fetch(&self, parts: &[Range<u64>]) -> Result<Raw> {
        let ends = gather::ends(parts);
        let mut bytes = vec![0; ends.last().map_or(0, |end| *end as usize)];
        let mut slices = gather::slices(parts, &mut bytes);
        for run in gather::runs(parts, GAP_MAX) {
            let read = self.read(run.range.clone())?;
            for at in run.parts {
                let within = |offset: u64| (offset - run.range.start) as usize;
                let (start, end) = (within(parts[at].start), within(parts[at].end));
                slices[at].copy_from_slice(&read[start..end]);
            }
        }
        Raw::fields(bytes, ends)
    }

    fn skip_min(&self) -> u64 {
        GAP_MAX
    }

    fn holds_descriptor(&self) -> bool {
        false
    }
}

/// The directory that all matches of a pattern lie in: what is before the first `*`, `?` or `[`, up
/// to the last slash.
fn directory(pattern: &str) -> &str {
    let fixed = pattern.find(['*', '?', '[']).map_or(pattern, |at| &pattern[..at]);
    fixed.rfind('/').map_or("", |slash| &fixed[..=slash])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directory_of_a_pattern_ends_before_what_is_to_be_matched() {
        for (pattern, expected) in
            [("a/b/*.jpg", "a/b/"), ("*.jpg", ""), ("/x?/y", "/"), ("a/b[0]", "a/"), ("a/b", "a/")]
        {
            assert_eq!(directory(pattern), expected, "{pattern}");
        }
    }
}
