//! The file of a store: which one in a directory, and whose it is.
//!
//! Files are numbered. A store locks its file, so several optimizers, of one process or of many, can
//! use one directory; the lock goes with the process. What an earlier process has left is continued
//! by whoever resumes, and overwritten by whoever does not: nothing piles up.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode as Permissions, OFlags, flock};
use rustix::io::Errno;

use crate::error::{Error, Kind, Result};

/// Optimizers that can use one directory at the same time.
const FILES_MAX: usize = 1024;

/// A file that is ours until this is dropped.
pub(super) struct StateFile {
    pub path: PathBuf,
    _lock: OwnedFd,
}

impl StateFile {
    /// The first file of `directory` that nobody uses; made if there is none.
    pub fn new_in(directory: &Path) -> Result<Self> {
        Self::find(directory, OFlags::CREATE)?.ok_or_else(|| {
            let why = format!("{FILES_MAX} optimizers use this directory already; give another");
            Error::new(Kind::Unsupported, why).with("directory", directory.display())
        })
    }

    /// The first file that an earlier process has left in `directory`.
    pub fn left_in(directory: &Path) -> Result<Self> {
        Self::find(directory, OFlags::empty())?.ok_or_else(|| {
            let why = "there is no state of an optimizer to resume; start without resuming";
            Error::new(Kind::NotFound, why).with("directory", directory.display())
        })
    }

    fn find(directory: &Path, flags: OFlags) -> Result<Option<Self>> {
        if !directory.is_dir() {
            let why = "the directory for the state of the optimizer does not exist; make it first";
            return Err(Error::new(Kind::NotFound, why).with("directory", directory.display()));
        }
        for number in 0..FILES_MAX {
            let path = directory.join(format!("optimizer-{number}.state"));
            match take(&path, flags) {
                Ok(lock) => return Ok(Some(Self { path, _lock: lock })),
                Err(Errno::WOULDBLOCK | Errno::NOENT) => {}
                Err(errno) => {
                    let why = "can't use a file for the state of the optimizer; give a directory \
                               that can be written to";
                    return Err(Error::from_errno(errno, why).with("file", path.display()));
                }
            }
        }
        Ok(None)
    }
}

fn take(path: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let flags = flags | OFlags::RDWR | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Permissions::from_raw_mode(0o600))?;
    flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    Ok(file)
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    fn name(file: &StateFile) -> &str {
        file.path.file_name().unwrap().to_str().unwrap()
    }

    #[test]
    fn everybody_gets_a_file_of_its_own_and_what_is_left_is_found_again() {
        let directory = tempfile::tempdir().unwrap();
        let nothing = StateFile::left_in(directory.path()).err().unwrap();
        assert_eq!(nothing.kind(), Kind::NotFound);
        let first = StateFile::new_in(directory.path()).unwrap();
        let second = StateFile::new_in(directory.path()).unwrap();
        assert_eq!((name(&first), name(&second)), ("optimizer-0.state", "optimizer-1.state"));
        assert!(StateFile::left_in(directory.path()).is_err(), "both are in use");
        drop(second);
        assert_eq!(name(&StateFile::left_in(directory.path()).unwrap()), "optimizer-1.state");
        drop(first);
        assert_eq!(name(&StateFile::new_in(directory.path()).unwrap()), "optimizer-0.state");
    }

    #[test]
    fn a_directory_that_is_not_there_is_named() {
        let error = StateFile::new_in(Path::new("/nowhere/at/all")).err().unwrap();
        assert_eq!(error.kind(), Kind::NotFound);
        assert!(error.to_string().contains("/nowhere/at/all"), "{error}");
    }
}
