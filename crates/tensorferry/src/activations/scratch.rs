//! Files that vanish with the process, and ranges of them.
//!
//! Each drive has one file without a name, in a directory of the user's: whatever ends the process
//! ends the file. Ranges are given out from the beginning of the file on, so that
//! activations, which are stored in the order of forward, lie in that order and are written
//! sequentially; what backward has used is free for the next step. A chunk goes to the drive that would be
//! done with it first, by the speed that it has shown; one that is full gets none that it has to grow for.
//!
//! Room is reserved on the disk ahead of the writes, in steps: a full disk shows early, and direct
//! writes inside a file's length run side by side. That can take long (a file system in memory clears
//! all of it), so whoever writes asks the [`Drive`] for it, without the lock under which ranges are given
//! out.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::{Error, Kind, Result};
use crate::io::{Engine, File, Mode, Open};
use crate::memory::ALIGNMENT;
use crate::memory::arena::{Arena, Span};
use crate::size::Size;
use crate::sync::{Mutex, lock, now, seconds_since};

/// Offsets that a scratch file can have: no disk is as large.
const FILE_BYTES_MAX: Size = Size(1 << 50);

/// By how much a file grows at least, where the disk has room. In a model files are memory, made anew
/// for every interleaving.
const GROW_BYTES: u64 = if cfg!(loom) { 64 << 10 } else { 256 << 20 };

/// For how long nothing is tried that a full drive would have to grow for.
const FULL_FOR: Duration = Duration::from_secs(10);

/// Seconds of transfers after which those before count half.
const PACE_SECONDS: f64 = 2.0;

/// A drive that was passed over so often counts for twice as fast: it may have become so.
const PASSED_OVER: f64 = 16.0;

/// The scratch files of a store. Its owner guards it.
pub(super) struct Scratch {
    volumes: Vec<Volume>,
}

/// A scratch file, and what is known of its drive.
struct Volume {
    drive: Arc<Drive>,
    ranges: Arena,
    pace: Pace,
    /// When it had no room.
    full: Option<Instant>,
    /// How often another was chosen since.
    passed: u32,
}

/// What a drive moves while it has something to move.
#[derive(Default)]
struct Pace {
    bytes: f64,
    seconds: f64,
    /// Bytes under way, and since when they are counted.
    under_way: u64,
    since: Option<Instant>,
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

/// A range of one of the files.
#[derive(Debug, Clone, Copy)]
pub(super) struct ScratchRange {
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
            Ok(Volume {
                drive: Arc::new(Drive::open(engine, directory.clone())?),
                ranges: Arena::new(FILE_BYTES_MAX, ALIGNMENT as u64)?,
                pace: Pace::default(),
                full: None,
                passed: 0,
            })
        };
        Ok(Self { volumes: directories.iter().map(drive).collect::<Result<_>>()? })
    }

    /// How many drives there are.
    pub fn drives(&self) -> usize {
        self.volumes.len()
    }

    /// A range for `len` bytes, a multiple of [`ALIGNMENT`], where they would be soonest. Drives that are full
    /// come last.
    pub fn take(&mut self, len: u64) -> Result<ScratchRange> {
        let fastest = self.volumes.iter().filter_map(|volume| volume.pace.speed());
        let fastest = fastest.reduce(f64::max).unwrap_or(1.0);
        let mut best: Option<(bool, f64, ScratchRange)> = None;
        for drive in 0..self.volumes.len() {
            let volume = &mut self.volumes[drive];
            let span = volume.ranges.allocate(len)?;
            let range = ScratchRange { drive, span };
            let (is_full, seconds) = (volume.is_full_for(span), volume.seconds(len, fastest));
            let worse = match best {
                Some((best_full, best_seconds, _))
                    if (best_full, best_seconds) <= (is_full, seconds) =>
                {
                    Some(range)
                }
                _ => best.replace((is_full, seconds, range)).map(|(.., range)| range),
            };
            if let Some(worse) = worse {
                self.free(worse);
                self.volumes[worse.drive].passed += 1;
            }
        }
        let (.., range) = best.ok_or_else(|| Error::invalid("there is no drive"))?;
        self.volumes[range.drive].passed = 0;
        Ok(range)
    }

    /// Gives a range back.
    pub fn free(&mut self, range: ScratchRange) {
        let freed = self.volumes[range.drive].ranges.free(range.span);
        debug_assert!(freed.is_ok(), "a range is given back once");
    }

    /// The drive of a range had no room for it.
    pub fn mark_full(&mut self, range: ScratchRange) {
        self.volumes[range.drive].full = Some(now());
        self.free(range);
    }

    /// So many bytes of a range are on their way.
    pub fn begin(&mut self, range: ScratchRange, bytes: u64) {
        self.volumes[range.drive].pace.begin(bytes);
    }

    /// They are there, or not, if it failed.
    pub fn end(&mut self, range: ScratchRange, bytes: u64, well: bool) {
        self.volumes[range.drive].pace.end(bytes, well);
    }

    /// The drive of a range, and where in its file.
    pub fn at(&self, range: ScratchRange) -> (Arc<Drive>, u64) {
        (Arc::clone(&self.volumes[range.drive].drive), range.span.offset())
    }

    /// Bytes in use.
    pub fn used(&self) -> u64 {
        self.volumes.iter().map(|volume| volume.ranges.stats().used).sum()
    }
}

impl Volume {
    /// Whether the file would have to grow for a range, and could not lately.
    fn is_full_for(&self, span: Span) -> bool {
        self.full.is_some_and(|since| now() - since < FULL_FOR)
            && span.offset() + span.len() > *lock(&self.drive.reserved)
    }

    /// Seconds until so many bytes more would be moved; a drive that was not tried is as fast as the fastest.
    fn seconds(&self, bytes: u64, fastest: f64) -> f64 {
        let speed = self.pace.speed().unwrap_or(fastest);
        let patience = 1.0 + f64::from(self.passed) / PASSED_OVER;
        (self.pace.under_way + bytes) as f64 / speed / patience
    }
}

impl Pace {
    fn begin(&mut self, bytes: u64) {
        self.tick();
        self.under_way += bytes;
        self.since.get_or_insert_with(now);
    }

    fn end(&mut self, bytes: u64, well: bool) {
        self.tick();
        self.under_way -= bytes;
        if self.under_way == 0 {
            self.since = None;
        }
        if well {
            self.bytes += bytes as f64;
        }
        if self.seconds > PACE_SECONDS {
            (self.bytes, self.seconds) = (self.bytes / 2.0, self.seconds / 2.0);
        }
    }

    fn tick(&mut self) {
        if let Some(since) = self.since.take() {
            self.seconds += seconds_since(since);
            self.since = Some(now());
        }
    }

    /// Bytes a second.
    fn speed(&self) -> Option<f64> {
        (self.bytes > 0.0 && self.seconds > 0.0).then(|| self.bytes / self.seconds)
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
    fn the_file_has_no_name_and_ranges_follow_one_another() {
        let (engine, directory) = (engine(), tempfile::tempdir().unwrap());
        let mut scratch = Scratch::open(&*engine, &[directory.path().into()]).unwrap();
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
        let ranges: Vec<_> = (0..3).map(|_| scratch.take(8192).unwrap()).collect();
        let offsets: Vec<_> = ranges.iter().map(|range| scratch.at(*range).1).collect();
        assert_eq!(offsets, [0, 8192, 16384]);
        scratch.free(ranges[1]);
        assert_eq!(scratch.used(), 16384);
        let again = scratch.take(4096).unwrap();
        assert_eq!(scratch.at(again).1, 8192);
    }

    #[test]
    fn a_file_grows_when_it_is_asked_to_and_only_who_needs_that_waits() {
        let (engine, directory) = (engine(), tempfile::tempdir().unwrap());
        let mut scratch = Scratch::open(&*engine, &[directory.path().into()]).unwrap();
        let range = scratch.take(8192).unwrap();
        let (drive, offset) = scratch.at(range);
        assert_eq!(drive.file().len().unwrap(), 0, "who gives out ranges makes nothing grow");
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

    fn two() -> (Scratch, [tempfile::TempDir; 2]) {
        let ranges = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let directories = ranges.each_ref().map(|range| range.path().to_owned());
        (Scratch::open(&*engine(), &directories).unwrap(), ranges)
    }

    /// How many of so many chunks each drive gets while all of them are on their way.
    fn shares(scratch: &mut Scratch, chunks: usize) -> [usize; 2] {
        let mut shares = [0; 2];
        for _ in 0..chunks {
            let range = scratch.take(4096).unwrap();
            scratch.begin(range, 4096);
            shares[range.drive] += 1;
        }
        shares
    }

    #[test]
    fn drives_that_are_alike_share() {
        let (mut scratch, _places) = two();
        assert_eq!(shares(&mut scratch, 6), [3, 3]);
    }

    #[test]
    fn a_faster_drive_gets_more_and_a_slow_one_is_tried_again() {
        let (mut scratch, _places) = two();
        for (drive, speed) in [(0, 1e9), (1, 1e8)] {
            scratch.volumes[drive].pace = Pace { bytes: speed, seconds: 1.0, ..Pace::default() };
        }
        let [fast, slow] = shares(&mut scratch, 22);
        assert!(fast > 4 * slow && slow > 0, "{fast} {slow}");
        // Now one at a time.
        scratch.volumes.iter_mut().for_each(|volume| volume.pace.under_way = 0);
        let slow = (0..1000).filter(|_| scratch.take(4096).unwrap().drive == 1).count();
        assert!((1..100).contains(&slow), "{slow}");
    }

    #[test]
    fn a_full_drive_gets_only_what_it_has_room_for_until_it_is_tried_again() {
        let (mut scratch, _places) = two();
        let reserved = scratch.take(4096).unwrap();
        assert_eq!(reserved.drive, 0);
        scratch.at(reserved).0.reserve(4096).unwrap();
        *lock(&scratch.volumes[0].drive.reserved) = 4096;
        let more = scratch.volumes[0].ranges.allocate(4096).unwrap();
        scratch.mark_full(ScratchRange { drive: 0, span: more });
        assert!((0..20).all(|_| scratch.take(4096).unwrap().drive == 1));
        scratch.free(reserved);
        assert_eq!(scratch.take(4096).unwrap().drive, 0, "there it has room");
        scratch.volumes[0].full = now().checked_sub(FULL_FOR);
        assert!((0..20).any(|_| scratch.take(4096).unwrap().drive == 0));
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
