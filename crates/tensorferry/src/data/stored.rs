//! A local file that samples lie in, read by way of the engine.
//!
//! Reads happen on the thread that asks, straight to where the bytes belong and through the page cache: a
//! dataset is read again, and most of its samples are smaller than handing them to another thread is worth.
//! What fails says what became of a file that was listed before.

use std::io::IoSliceMut;
use std::path::Path;
use std::sync::Arc;

use rustix::io::Errno;

use crate::error::{Error, Kind, Result};
use crate::io::{self, Borrowed, Engine, Mode, Open, Priority};

/// An open file, and the engine that opened it.
#[derive(Clone)]
pub struct StoredFile {
    engine: Arc<dyn Engine>,
    file: io::File,
}

impl StoredFile {
    /// Opens a file to read samples from. A pipe is opened too, without waiting for somebody at its other
    /// end: what is read from it then is not what was listed.
    pub fn open(engine: Arc<dyn Engine>, path: &Path) -> Result<Self> {
        let file = engine.open(path, Open::buffered(Mode::Once));
        let file = file.map_err(|error| error.errno().map_or(error, opening_failed))?;
        Ok(Self { engine, file })
    }

    /// A new file in a directory, without a name and for reading and writing.
    pub fn unnamed(engine: Arc<dyn Engine>, directory: &Path) -> Result<Self> {
        let file = engine.open(directory, Open::buffered(Mode::Unnamed))?;
        Ok(Self { engine, file })
    }

    /// Whether it is open in this process, and not only in one that this was forked from.
    pub fn is_of(&self, engine: &Arc<dyn Engine>) -> bool {
        Arc::ptr_eq(&self.engine, engine)
    }

    /// How many bytes it has now.
    pub fn bytes(&self) -> Result<u64> {
        self.file.len().map_err(|error| match error.errno() {
            Some(Errno::ISDIR) => reading_failed(Errno::ISDIR),
            _ => error,
        })
    }

    /// Bytes that its file system has free; `None` where nobody knows.
    pub fn free_bytes(&self) -> Option<u64> {
        self.file.free_bytes()
    }

    /// Fills `into` with the bytes from `start` on.
    pub fn fill(&self, start: u64, into: &mut [u8]) -> Result<()> {
        let wanted = into.len();
        let moved = self.scatter(start, &mut [IoSliceMut::new(into)])?;
        if moved < wanted {
            let told = "the file ends too early: it was cut since it was listed";
            return Err(Error::new(Kind::Truncated, told).with("offset", start));
        }
        Ok(())
    }

    /// Fills one slice after the other; says how many bytes came before the file ended.
    pub fn scatter(&self, start: u64, into: &mut [IoSliceMut<'_>]) -> Result<usize> {
        self.read(start, Borrowed::Slices(into)).map_err(|error| error.with("offset", start))
    }

    /// The first bytes: so many and one more, if it has them.
    pub fn first(&self, bytes: u64) -> Result<Vec<u8>> {
        let mut behind = Vec::with_capacity(bytes as usize + 1);
        let least = bytes.max(1) as usize;
        self.read(0, Borrowed::Behind { bytes: &mut behind, least })?;
        Ok(behind)
    }

    /// Writes all of `from`. Whoever does so makes room by it, and nobody waits for the bytes.
    pub fn write(&self, start: u64, from: &[u8]) -> Result<()> {
        self.engine
            .move_inline(&self.file, start, Borrowed::Bytes(from), Priority::Offload)
            .map(drop)
    }

    /// One of these bytes, in memory.
    #[cfg(test)]
    #[cfg(not(loom))]
    pub(super) fn of(bytes: &[u8]) -> Arc<Self> {
        let engine = io::open(&io::Config::of(io::Choice::Memory)).unwrap();
        let file = engine.open(Path::new("samples"), Open::buffered(Mode::New)).unwrap();
        let file = Self { engine, file };
        file.write(0, bytes).unwrap();
        Arc::new(file)
    }

    /// Cuts it.
    #[cfg(test)]
    #[cfg(not(loom))]
    pub(super) fn cut(&self, bytes: u64) {
        self.file.set_len(bytes).unwrap();
    }

    fn read(&self, start: u64, into: Borrowed<'_, '_>) -> Result<usize> {
        let read = self.engine.move_inline(&self.file, start, into, Priority::Waiting);
        read.map_err(|error| error.errno().map_or(error, reading_failed))
    }
}

#[cold]
pub(super) fn opening_failed(errno: Errno) -> Error {
    let told = match errno {
        Errno::NOENT | Errno::NOTDIR => {
            let error = Error::from_errno(errno, "the file is not there, or not any more");
            return error.of_kind(Kind::NotFound);
        }
        Errno::ACCESS | Errno::PERM => "the file may not be read; give this user access to it",
        Errno::MFILE | Errno::NFILE => "too many open files; raise the limit (ulimit -n)",
        _ => "can't open the file",
    };
    Error::from_errno(errno, told)
}

#[cold]
fn reading_failed(errno: Errno) -> Error {
    let told = match errno {
        Errno::ISDIR => "a directory stands where a file should be",
        _ => "can't read the file",
    };
    Error::from_errno(errno, told)
}
