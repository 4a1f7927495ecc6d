//! What can be told of a file without reading it.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::error::{Error, Result};
use crate::memory::residency;

/// From this share on, reading around the page cache would lose time.
const WARM_SHARE: f64 = 0.5;

/// A file as it is now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Probe {
    /// What changes when another file takes its place.
    pub stamp: Stamp,
    /// Whether most of it is in the page cache.
    pub is_warm: bool,
}

/// What changes when a file is written to, or another takes its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Stamp {
    /// The device that it lies on.
    pub device: u64,
    /// Its number there.
    pub inode: u64,
    /// When it was changed last, since 1970.
    pub modified_nanos: i64,
    /// Its length.
    pub bytes: u64,
}

impl Probe {
    /// Looks at a file; `None` if there is none, or something else.
    pub fn at(path: &Path) -> Result<Option<Self>> {
        let failed = |error| Error::from_io(error, "can't open file").with("file", path.display());
        // Opening a pipe would wait for somebody at its other end.
        match fs::metadata(path) {
            Ok(metadata) if metadata.is_file() => {}
            Ok(_) => return Ok(None),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error)),
        }
        let file = fs::File::open(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        let stamp = Stamp {
            device: metadata.dev(),
            inode: metadata.ino(),
            modified_nanos: metadata.mtime() * 1_000_000_000 + metadata.mtime_nsec(),
            bytes: metadata.len(),
        };
        // Where nobody can tell, as on file systems that map nothing, it is read from the disk.
        let is_warm = residency(&file, stamp.bytes).is_ok_and(|share| share >= WARM_SHARE);
        Ok(Some(Self { stamp, is_warm }))
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_was_replaced_has_another_stamp() {
        let directory = tempfile::tempdir().unwrap();
        let (path, draft) = (directory.path().join("a"), directory.path().join("b"));
        fs::write(&path, b"one").unwrap();
        let before = Probe::at(&path).unwrap().unwrap();
        assert!(before.is_warm, "it was written just now");
        assert_eq!(Probe::at(&path).unwrap().unwrap(), before);
        fs::write(&draft, b"two").unwrap();
        fs::rename(&draft, &path).unwrap();
        let after = Probe::at(&path).unwrap().unwrap();
        assert_eq!(after.stamp.bytes, 3);
        assert_ne!(after.stamp, before.stamp);
    }

    #[test]
    fn there_is_nothing_to_be_told_of_what_is_no_file() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(Probe::at(directory.path()).unwrap(), None);
        assert_eq!(Probe::at(&directory.path().join("nothing")).unwrap(), None);
        assert_eq!(Probe::at(Path::new("/dev/null")).unwrap(), None);
    }
}
