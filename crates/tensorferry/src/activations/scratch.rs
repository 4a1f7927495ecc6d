//! Files that vanish with the process, and places in them.
//!
//! Each drive has one file without a name, in a directory of the user's: whatever ends the process
//! ends the file. Places are given out from the beginning of the file on, so that
//! activations, which are stored in the order of forward, lie in that order and are written
//! sequentially; what backward has used is free for the next step. Chunks take turns over the
//! drives.
//!
//! Room is reserved on the disk ahead of the writes, in steps: a full disk shows early, and direct
//! writes inside a file's length run side by side. That can take long (a file system in memory clears
//! all of it), so whoever writes asks the [`Drive`] for it, without the lock under which places are given
//! out.

use std::path::PathBuf;
use std::sync::Arc;

use crate::error::{Error, Kind, Result};
use crate::io::{Engine, File, Mode, Open};
use crate::memory::ALIGNMENT;
use crate::memory::arena::{Arena, End, Span};
use crate::size::Size;
use crate::sync::{Mutex, lock};

/// Offsets that a scratch file can have: no disk is as large.
const FILE_BYTES_MAX: Size = Size(1 << 50);

/// By how much a file grows at least, where the disk has room. In a model files are memory, made anew
/// for every interleaving.
const GROW_BYTES: u64 = if cfg!(loom) { 64 << 10 } else { 256 << 20 };

/// The scratch files of a store. Its owner guards it.
pub(super) struct Scratch {
    drives: Vec<(Arc<Drive>, Arena)>,
    next: usize,
}

/// A scratch file, which grows before it is written to.
pub(super) struct Drive {
    file: File,
    directory: PathBuf,
    /// Up to here there is room on the disk.
    reserved: Mutex<u64>,
    /// Who makes it grow. Whoever has room does not wait for them.
    growing: Mutex<()>,
}

/// A place in one of the files.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    drive: usize,
    span: Span,
}

impl Scratch {
    /// Makes a file in each of the directories.
    pub fn open(engine: &dyn Engine, directories: &[PathBuf]) -> Result<Self> {
        if directories.is_empty() {
            return Err(Error::invalid("activations need a directory to go to"));
        }
        let drive = |directory: &PathBuf| {
            let drive = Drive::open(engine, directory.clone())?;
            Ok((Arc::new(drive), Arena::new(FILE_BYTES_MAX, ALIGNMENT as u64)?))
        };
        Ok(Self { drives: directories.iter().map(drive).collect::<Result<_>>()?, next: 0 })
    }

    /// A place for `len` bytes, a multiple of [`ALIGNMENT`], on the drive whose turn it is.
    pub fn take(&mut self, len: u64) -> Result<Place> {
        let drive = self.next;
        self.next = (self.next + 1) % self.drives.len();
        let span = self.drives[drive].1.allocate(len, End::Low)?;
        Ok(Place { drive, span })
    }

    /// Gives a place back.
    pub fn free(&mut self, place: Place) {
        let freed = self.drives[place.drive].1.free(place.span);
        debug_assert!(freed.is_ok(), "a place is given back once");
    }

    /// The drive of a place, and where in its file.
    pub fn at(&self, place: Place) -> (Arc<Drive>, u64) {
        (Arc::clone(&self.drives[place.drive].0), place.span.offset())
    }

    /// Bytes in use.
    pub fn used(&self) -> u64 {
        self.drives.iter().map(|(_, arena)| arena.stats().used).sum()
    }
}

impl Drive {
    fn open(engine: &dyn Engine, directory: PathBuf) -> Result<Self> {
        let refused = |error: Error| {
            let kind = error.kind();
            Error::new(kind, "can't make a scratch file for activations; give a directory that exists and can be written to")
                .with("directory", directory.display())
                .caused_by(error)
        };
        let file = engine.open(&directory, Open::direct(Mode::Unnamed)).map_err(refused)?;
        Ok(Self { file, directory, reserved: Mutex::new(0), growing: Mutex::new(()) })
    }

    pub fn file(&self) -> &File {
        &self.file
    }

    /// Makes sure that there is room up to `end`.
    pub fn reserve(&self, end: u64) -> Result<()> {
        if end <= *lock(&self.reserved) {
            return Ok(());
        }
        let _growing = lock(&self.growing);
        let before = *lock(&self.reserved);
        if end <= before {
            return Ok(());
        }
        let generous = end.max(before + GROW_BYTES);
        let reserved = match self.file.reserve(generous) {
            Ok(_) => generous,
            Err(_) => self.file.reserve(end).map(|_| end).map_err(|error| self.full(error))?,
        };
        *lock(&self.reserved) = reserved;
        Ok(())
    }

    fn full(&self, error: Error) -> Error {
        let kind = error.kind();
        let message = match kind {
            Kind::OutOfSpace => "the disk is full; free some space or give another directory",
            _ => "the scratch file for activations can't grow",
        };
        Error::new(kind, message).with("directory", self.directory.display()).caused_by(error)
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use crate::io::{self, Choice, Config};

    fn engine() -> Arc<dyn Engine> {
        io::open(&Config::of(Choice::Threads)).unwrap()
    }

    #[test]
    fn the_file_has_no_name_and_places_follow_one_another() {
        let (engine, directory) = (engine(), tempfile::tempdir().unwrap());
        let mut scratch = Scratch::open(&*engine, &[directory.path().into()]).unwrap();
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
        let places: Vec<_> = (0..3).map(|_| scratch.take(8192).unwrap()).collect();
        let offsets: Vec<_> = places.iter().map(|place| scratch.at(*place).1).collect();
        assert_eq!(offsets, [0, 8192, 16384]);
        scratch.free(places[1]);
        assert_eq!(scratch.used(), 16384);
        let again = scratch.take(4096).unwrap();
        assert_eq!(scratch.at(again).1, 8192);
    }

    #[test]
    fn a_file_grows_when_it_is_asked_to_and_only_who_needs_that_waits() {
        let (engine, directory) = (engine(), tempfile::tempdir().unwrap());
        let mut scratch = Scratch::open(&*engine, &[directory.path().into()]).unwrap();
        let place = scratch.take(8192).unwrap();
        let (drive, offset) = scratch.at(place);
        assert_eq!(drive.file().len().unwrap(), 0, "who gives out places makes nothing grow");
        drive.reserve(offset + 8192).unwrap();
        assert_eq!(drive.file().len().unwrap(), GROW_BYTES);

        let growing = lock(&drive.growing);
        drive.reserve(GROW_BYTES).unwrap();
        let more = {
            let drive = Arc::clone(&drive);
            std::thread::spawn(move || drive.reserve(GROW_BYTES + 1))
        };
        assert_eq!(drive.file().len().unwrap(), GROW_BYTES);
        drop(growing);
        more.join().unwrap().unwrap();
        assert_eq!(drive.file().len().unwrap(), 2 * GROW_BYTES);
    }

    #[test]
    fn drives_take_turns() {
        let (engine, a, b) = (engine(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let directories = [a.path().to_owned(), b.path().to_owned()];
        let mut scratch = Scratch::open(&*engine, &directories).unwrap();
        let turns: Vec<_> = (0..4).map(|_| scratch.take(4096).unwrap().drive).collect();
        assert_eq!(turns, [0, 1, 0, 1]);
    }

    #[test]
    fn a_directory_that_is_not_there_is_named() {
        let engine = engine();
        let error = Scratch::open(&*engine, &["/nowhere/at/all".into()]).err().unwrap();
        assert_eq!(error.kind(), Kind::NotFound);
        assert!(error.to_string().contains("/nowhere/at/all"), "{error}");
        assert!(Scratch::open(&*engine, &[]).is_err());
    }
}
