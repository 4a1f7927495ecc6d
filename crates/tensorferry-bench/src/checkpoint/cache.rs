//! What of a file is in the page cache when the clock starts.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use rustix::fs::{Advice, fadvise};
use tensorferry::memory::residency;
use tensorferry::{Error, Result};

use super::contest::Cache;

/// Brings the file, or every file in the directory, into the page cache or out of it; gives the
/// share that is there afterwards, `None` where there is no file or none is needed.
pub(super) fn prepare(path: &Path, cache: Cache) -> Result<Option<f64>> {
    if cache == Cache::Any {
        return Ok(None);
    }
    let named = |file: &Path, error| {
        Error::from_io(error, "can't prepare the page cache").with("file", file.display())
    };
    let (mut resident, mut bytes) = (0.0, 0.0);
    for path in files(path).map_err(|error| named(path, error))? {
        let mut file = File::open(&path).map_err(|error| named(&path, error))?;
        let len = file.metadata().map_err(|error| named(&path, error))?.len();
        if cache == Cache::Warm {
            std::io::copy(&mut file, &mut std::io::sink()).map_err(|error| named(&path, error))?;
        } else {
            // Only clean pages can be dropped.
            file.sync_all().map_err(|error| named(&path, error))?;
            fadvise(&file, 0, None, Advice::DontNeed)
                .map_err(|errno| named(&path, errno.into()))?;
        }
        resident += residency(&file, len)? * len as f64;
        bytes += len as f64;
    }
    Ok((bytes > 0.0).then(|| resident / bytes))
}

fn files(path: &Path) -> std::io::Result<Vec<PathBuf>> {
    if !path.exists() {
        return Ok(Vec::new());
    }
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let entries: std::io::Result<Vec<_>> =
        fs::read_dir(path)?.map(|entry| entry.map(|entry| entry.path())).collect();
    Ok(entries?.into_iter().filter(|path| path.is_file()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_files_pages_come_and_go_as_asked_also_in_a_directory() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        fs::write(&file, vec![1; 1 << 20]).unwrap();
        for path in [file.as_path(), directory.path()] {
            assert!(prepare(path, Cache::Warm).unwrap().unwrap() > 0.99);
            // A file system in memory keeps its pages.
            let cold = prepare(path, Cache::Cold).unwrap().unwrap();
            assert!(cold < 0.1 || in_memory(path), "{cold}");
            assert_eq!(prepare(path, Cache::Any).unwrap(), None);
        }
        assert_eq!(prepare(&directory.path().join("none"), Cache::Cold).unwrap(), None);
    }

    fn in_memory(path: &Path) -> bool {
        rustix::fs::statfs(path).unwrap().f_type == 0x0102_1994
    }
}
