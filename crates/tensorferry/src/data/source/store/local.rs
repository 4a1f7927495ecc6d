//! The file system, read by way of the engine in the thread that asks.
//!
//! A small file costs three calls of the kernel: open, read, close. A large one is opened and
//! measured, and read by the recipe straight to where it belongs. Lists are made without the engine: they move no
//! bytes of files.

use std::ffi::OsString;
use std::fs;
use std::io::IoSliceMut;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::io::Errno;

use super::gather::{self, Run};
use super::{Names, Object, Store, changed};
use crate::data::StoredFile;
use crate::data::sample::Raw;
use crate::error::{Error, Result};
use crate::io::Shared;

/// Samples of this many bytes stay in their file until a recipe reads them to their place.
pub const STORED_MIN: u64 = 1 << 20;

/// A gap of this many bytes costs less to read than a second call.
const GAP_MAX: u64 = 64 << 10;

/// More threads than this don't list a local disk any faster; one across a network gains from some.
const REQUESTS_MAX: usize = 8;

/// Deeper trees than this are a loop that links don't show.
const DEPTH_MAX: usize = 256;

/// The file system.
#[derive(Debug, Clone)]
pub struct Local(Shared);

impl Local {
    /// Read by way of the engine of whatever process reads.
    pub fn new(engine: Shared) -> Self {
        Self(engine)
    }

    fn whole(&self, path: &Path, bytes: u64) -> Result<Raw> {
        let file = StoredFile::open(self.0.engine()?, path)?;
        if bytes >= STORED_MIN {
            let now = file.bytes()?;
            let stored = || Raw::stored(Arc::new(file), 0, bytes);
            return if now == bytes { Ok(stored()) } else { Err(changed(bytes, now)) };
        }
        // A file of unknown size is measured first.
        let expected = if bytes == 0 { file.bytes()? } else { bytes };
        if expected >= STORED_MIN {
            return Ok(Raw::stored(Arc::new(file), 0, expected));
        }
        // One byte more is asked for: a file that has grown shows it without another call.
        let read = file.first(expected)?;
        if read.len() as u64 != expected {
            return Err(changed(expected, file.bytes()?));
        }
        Ok(Raw::single(read))
    }
}

impl Store for Local {
    fn directories(&self, under: &Path) -> Result<Vec<OsString>> {
        let mut names = Vec::new();
        for entry in entries(under)? {
            let entry = entry.map_err(|error| listing_failed(error, under))?;
            if is_directory(&entry) {
                names.push(entry.file_name());
            }
        }
        Ok(names)
    }

    fn files(
        &self,
        under: &Path,
        wanted: &dyn Fn(&[u8]) -> bool,
        found: &mut dyn FnMut(PathBuf, u64),
    ) -> Result<()> {
        Walk { wanted, found, above: Vec::new() }.directory(under)
    }

    fn matching(&self, pattern: &str) -> Result<Vec<(PathBuf, u64)>> {
        let paths = glob::glob_with(pattern, HOW).map_err(|error| {
            Error::invalid("the pattern can't be read").with("pattern", pattern).caused_by(error)
        })?;
        let mut matches = Vec::new();
        for path in paths {
            let path = path.map_err(|error| {
                let place = error.path().to_owned();
                listing_failed(error.into(), &place)
            })?;
            // A name that can't be followed is kept: whoever fetches it says why.
            let (is_file, bytes) =
                fs::metadata(&path).map_or((true, 0), |data| (!data.is_dir(), data.len()));
            if is_file {
                matches.push((path, bytes));
            }
        }
        matches.sort_unstable();
        Ok(matches)
    }

    fn sizes(&self, paths: &Names) -> Result<Vec<u64>> {
        let size = |at| fs::metadata(paths.path(at)).map_or(0, |data| data.len());
        Ok((0..paths.len()).map(size).collect())
    }

    fn fetch(&self, path: &Path, bytes: u64) -> Result<Raw> {
        self.whole(path, bytes).map_err(|error| error.with("file", path.display()))
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn Object>> {
        let named = |error: Error| error.with("file", path.display());
        let file = StoredFile::open(self.0.engine()?, path).map_err(named)?;
        let bytes = file.bytes().map_err(named)?;
        Ok(Arc::new(Opened { engine: self.0.clone(), file: Arc::new(file), bytes }))
    }

    fn name(&self, path: &Path) -> String {
        path.display().to_string()
    }

    fn requests_max(&self) -> usize {
        REQUESTS_MAX
    }

    fn is_remote(&self) -> bool {
        false
    }
}

/// How a pattern is matched here and in every other store.
pub(super) const HOW: glob::MatchOptions = glob::MatchOptions {
    case_sensitive: true,
    require_literal_separator: true,
    require_literal_leading_dot: true,
};

/// One way through a tree of directories.
struct Walk<'a> {
    wanted: &'a dyn Fn(&[u8]) -> bool,
    found: &'a mut dyn FnMut(PathBuf, u64),
    /// The directories that we are in, so that a link back to one of them is seen.
    above: Vec<(u64, u64)>,
}

impl Walk<'_> {
    fn directory(&mut self, path: &Path) -> Result<()> {
        let data = fs::metadata(path).map_err(|error| listing_failed(error, path))?;
        let identity = (data.dev(), data.ino());
        if self.above.contains(&identity) || self.above.len() >= DEPTH_MAX {
            let told = "the directory contains itself through a link; remove the link";
            return Err(Error::invalid(told).with("directory", path.display()));
        }
        self.above.push(identity);
        for entry in entries(path)? {
            let entry = entry.map_err(|error| listing_failed(error, path))?;
            if is_directory(&entry) {
                self.directory(&entry.path())?;
            } else if (self.wanted)(entry.file_name().as_bytes()) {
                (self.found)(entry.path(), size_of(&entry));
            }
        }
        self.above.pop();
        Ok(())
    }
}

fn entries(directory: &Path) -> Result<fs::ReadDir> {
    fs::read_dir(directory).map_err(|error| listing_failed(error, directory))
}

fn is_directory(entry: &fs::DirEntry) -> bool {
    match entry.file_type() {
        Ok(kind) if !kind.is_symlink() => kind.is_dir(),
        _ => fs::metadata(entry.path()).is_ok_and(|data| data.is_dir()),
    }
}

fn size_of(entry: &fs::DirEntry) -> u64 {
    let data = match entry.file_type() {
        Ok(kind) if kind.is_symlink() => fs::metadata(entry.path()),
        _ => entry.metadata(),
    };
    data.map_or(0, |data| data.len())
}

#[cold]
fn listing_failed(error: std::io::Error, directory: &Path) -> Error {
    let not_directory = error.raw_os_error() == Some(Errno::NOTDIR.raw_os_error());
    let told = if not_directory { "not a directory" } else { "can't list the directory" };
    Error::from_io(error, told).with("directory", directory.display())
}

/// An open local file.
struct Opened {
    engine: Shared,
    file: Arc<StoredFile>,
    bytes: u64,
}

impl Object for Opened {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn read(&self, range: Range<u64>) -> Result<Vec<u8>> {
        let mut bytes = vec![0; (range.end - range.start) as usize];
        self.fill(range.start, &mut bytes)?;
        Ok(bytes)
    }

    fn fetch(&self, parts: &[Range<u64>]) -> Result<Raw> {
        let ends = gather::ends(parts);
        let total = ends.last().copied().unwrap_or(0);
        if total >= STORED_MIN {
            let fields: Vec<_> =
                parts.iter().map(|part| (part.start, part.end - part.start)).collect();
            return Ok(Raw::scattered(Arc::clone(&self.file), &fields));
        }
        let mut bytes = vec![0; total as usize];
        let mut slices = gather::slices(parts, &mut bytes);
        for run in gather::runs(parts, GAP_MAX) {
            self.scatter(&run, parts, &mut slices)?;
        }
        Raw::fields(bytes, ends)
    }

    fn skip_min(&self) -> u64 {
        GAP_MAX
    }

    fn holds_descriptor(&self) -> bool {
        true
    }

    fn is_usable(&self) -> bool {
        self.engine.engine().is_ok_and(|engine| self.file.is_of(&engine))
    }
}

impl Opened {
    fn fill(&self, start: u64, into: &mut [u8]) -> Result<()> {
        self.file.fill(start, into)
    }

    /// Reads a run with one call that puts every part to its place and the gaps aside.
    fn scatter(&self, run: &Run, parts: &[Range<u64>], into: &mut [&mut [u8]]) -> Result<()> {
        if let [only] = run.parts[..] {
            return self.fill(run.range.start, into[only]);
        }
        let gaps: Vec<u64> =
            run.parts.windows(2).map(|pair| parts[pair[1]].start - parts[pair[0]].end).collect();
        let mut aside: Vec<Vec<u8>> = gaps.iter().map(|gap| vec![0; *gap as usize]).collect();
        let mut memory: Vec<(usize, &mut [u8])> = Vec::with_capacity(into.len());
        for (at, slice) in into.iter_mut().enumerate() {
            memory.extend(
                run.parts.iter().position(|part| *part == at).map(|turn| (turn, &mut **slice)),
            );
        }
        memory.sort_by_key(|(turn, _)| *turn);
        let mut gaps = aside.iter_mut();
        let mut vectors = Vec::with_capacity(memory.len() * 2);
        for (_, slice) in memory {
            vectors.push(IoSliceMut::new(slice));
            vectors.extend(gaps.next().map(|gap| IoSliceMut::new(gap)));
        }
        let wanted = (run.range.end - run.range.start) as usize;
        if self.file.scatter(run.range.start, &mut vectors)? == wanted {
            return Ok(());
        }
        // It ends in one of the parts, which tells so.
        run.parts.iter().try_for_each(|at| self.fill(parts[*at].start, into[*at]))
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use std::sync::LazyLock;

    use super::*;
    use crate::data::stored::opening_failed;
    use crate::error::Kind;
    use crate::io;

    fn local() -> Local {
        static ENGINE: LazyLock<Shared> =
            LazyLock::new(|| Shared::only(io::open(&io::Config::default()).unwrap()));
        Local::new(ENGINE.clone())
    }

    fn tree() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("a/b")).unwrap();
        for (name, bytes) in [("a/1.bin", 10), ("a/b/2.bin", 20), ("a/.hidden", 3)] {
            fs::write(folder.path().join(name), vec![7; bytes]).unwrap();
        }
        folder
    }

    fn said(result: Result<Raw>) -> (Kind, String) {
        let error = result.unwrap_err();
        (error.kind(), error.to_string())
    }

    #[test]
    fn files_are_found_however_deep_with_their_bytes() {
        let folder = tree();
        let mut found = Vec::new();
        local()
            .files(folder.path(), &|name| name.ends_with(b"bin"), &mut |path, bytes| {
                found.push((path.strip_prefix(folder.path()).unwrap().to_owned(), bytes));
            })
            .unwrap();
        found.sort();
        assert_eq!(found, [("a/1.bin".into(), 10), ("a/b/2.bin".into(), 20)]);
    }

    #[test]
    fn a_link_back_into_the_tree_is_told_instead_of_followed_for_ever() {
        let folder = tree();
        std::os::unix::fs::symlink("../..", folder.path().join("a/b/up")).unwrap();
        let error = local().files(folder.path(), &|_| true, &mut |_, _| ()).unwrap_err();
        assert!(error.to_string().starts_with("the directory contains itself"), "{error}");
    }

    #[test]
    fn a_file_that_is_not_what_was_listed_is_told() {
        let folder = tree();
        let path = folder.path().join("a/1.bin");
        let (kind, told) = said(local().fetch(&path, 12));
        assert_eq!(kind, Kind::Truncated);
        let told = told.split(" (file").next().unwrap();
        assert_eq!(
            told,
            "the file has 10 bytes, and had 12 when it was listed; open the dataset again once \
             nobody writes to it"
        );
        assert_eq!(said(local().fetch(&path, 9)).0, Kind::Corrupt, "it grew");
        assert_eq!(said(local().fetch(&path, STORED_MIN)).0, Kind::Truncated);
        assert_eq!(local().fetch(&path, 10).unwrap().bytes(), 10);
        assert_eq!(local().fetch(&path, 0).unwrap().bytes(), 10, "of unknown size");
    }

    #[test]
    fn a_file_that_can_not_be_read_says_what_is_wrong() {
        let folder = tree();
        for (name, bytes, kind, told) in [
            ("gone", 1, Kind::NotFound, "the file is not there, or not any more"),
            ("a/1.bin/x", 1, Kind::NotFound, "the file is not there, or not any more"),
            ("a/b", 1, Kind::InvalidInput, "a directory stands where a file should be"),
            ("a/b", 0, Kind::InvalidInput, "a directory stands where a file should be"),
            ("a/b", STORED_MIN, Kind::InvalidInput, "a directory stands where a file should be"),
        ] {
            let (actual, text) = said(local().fetch(&folder.path().join(name), bytes));
            assert_eq!(actual, kind, "{name}: {text}");
            assert!(text.starts_with(told) && text.contains(name), "{text}");
        }
        let (kind, told) = (Errno::ACCESS, opening_failed(Errno::ACCESS).to_string());
        assert_eq!(opening_failed(kind).kind(), Kind::PermissionDenied);
        assert!(told.contains("give this user access"), "{told}");
    }

    #[test]
    fn a_pipe_is_an_error_or_empty_and_never_waited_for() {
        let folder = tree();
        let path = folder.path().join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RWXU).unwrap();
        assert_eq!(said(local().fetch(&path, 5)).0, Kind::Truncated);
        assert_eq!(local().fetch(&path, 0).unwrap().bytes(), 0);
    }

    #[test]
    fn a_large_file_stays_where_it_is() {
        let folder = tree();
        let path = folder.path().join("large");
        fs::write(&path, vec![3; STORED_MIN as usize]).unwrap();
        let raw = local().fetch(&path, STORED_MIN).unwrap();
        assert!(raw.as_memory().is_none());
        assert_eq!(raw.in_memory().unwrap().as_memory().unwrap(), vec![3; STORED_MIN as usize]);
    }

    #[test]
    fn parts_come_in_the_order_asked_for_whatever_their_order_in_the_file() {
        let folder = tree();
        let path = folder.path().join("parts");
        let content: Vec<u8> = (0..200_000_u32).map(|at| (at % 251) as u8).collect();
        fs::write(&path, &content).unwrap();
        let object = local().open(&path).unwrap();
        let cases: [&[Range<u64>]; 5] = [
            &[1000..1200, 0..10, 500..700],
            &[150_000..150_100, 3..9],
            &[0..10, 0..10, 5..20],
            &[7..7, 9..10],
            &[],
        ];
        for parts in cases {
            let raw = object.fetch(parts).unwrap();
            for (at, part) in parts.iter().enumerate() {
                let expected = &content[part.start as usize..part.end as usize];
                assert_eq!(&*raw.field(at).all().unwrap(), expected, "{parts:?}");
            }
        }
        let error = object.fetch(&[199_990..200_001, 5..6]).unwrap_err();
        assert_eq!(error.kind(), Kind::Truncated);
    }

    #[test]
    fn patterns_match_as_in_a_shell() {
        let folder = tree();
        let root = folder.path().to_str().unwrap();
        let matches = |pattern: &str| -> Vec<String> {
            let found = local().matching(&format!("{root}/{pattern}")).unwrap();
            let name = |path: PathBuf| path.strip_prefix(root).unwrap().display().to_string();
            found.into_iter().map(|(path, _)| name(path)).collect()
        };
        assert_eq!(matches("a/*"), ["a/1.bin"], "neither the directory nor what is hidden");
        assert_eq!(matches("**/*.bin"), ["a/1.bin", "a/b/2.bin"]);
        assert_eq!(matches("*.bin"), [""; 0]);
        let error = local().matching("a[").unwrap_err();
        assert!(
            error.to_string().starts_with("the pattern can't be read (pattern: a[)"),
            "{error}"
        );
    }
}
