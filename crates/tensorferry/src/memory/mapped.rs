//! A file in memory: read page by page as it is touched, written to in private.
//!
//! The mapping is private, as `torch.load(mmap=True)` has it: a page that is written to becomes
//! this process's own, and the file never changes. Nothing is reserved for such copies, so that a
//! checkpoint larger than memory can be mapped; who writes to more of it than fits meets the
//! kernel's out-of-memory killer, as with any memory.
//!
//! *Ownership*: a [`Mapped`] is read only. [`Mapped::into_block`] and [`Mapped::into_blocks`]
//! consume it and hand out writable blocks that never overlap; the last block to go unmaps the
//! file. So nobody reads what another may write.

use std::ffi::c_void;
use std::fmt;
use std::ops::{Deref, Range};
use std::os::fd::AsFd;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;

use rustix::fs::{FileType, Mode, OFlags, fstat, open};
use rustix::mm::{Advice as Madvice, MapFlags, ProtFlags, madvise, mmap, munmap};

use super::block::{Block, Foreign};
use super::buffer::ALIGNMENT;
use crate::error::{Error, Kind, Result};
use crate::size::Size;

/// A whole file, mapped for reading; turned into blocks, its pages can be written to in private.
///
/// The pages are the kernel's until they are written to. If another process truncates the file,
/// touching a lost page ends this process with `SIGBUS`; if it overwrites the file in place, its
/// bytes may show up here. A file that is replaced by renaming another over it, which is how
/// checkpoints are saved, keeps its pages for as long as it is mapped. Map files only that are
/// treated so.
pub struct Mapped(Mapping);

/// How a range is going to be used, for the kernel's reading ahead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Advice {
    /// Front to back: read far ahead, and let go of what is behind.
    Sequential,
    /// Soon: start reading now, in the background.
    WillNeed,
    /// Here and there: read nothing ahead.
    Random,
}

impl Mapped {
    /// Maps the file at `path`; an error if it has not `expected_len` bytes.
    pub fn open(path: impl AsRef<Path>, expected_len: Option<u64>) -> Result<Self> {
        let path = path.as_ref();
        let named = |error: Error| error.with("file", path.display());
        // A pipe without a writer would keep the open waiting; here it is refused further down.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = open(path, flags, Mode::empty())
            .map_err(|errno| named(Error::from_errno(errno, "can't open a file")))?;
        let len = length(&file).map_err(named)?;
        Self::of(&file, expected_len.unwrap_or(len)).map_err(named)
    }

    /// Maps an open file, which must have `len` bytes. The descriptor may be closed afterwards.
    pub fn of(file: impl AsFd, len: u64) -> Result<Self> {
        let file = file.as_fd();
        let found = length(file)?;
        if found != len {
            let kind = if found < len { Kind::Truncated } else { Kind::Corrupt };
            return Err(Error::new(kind, "the file's length is not the expected one")
                .with("expected", len)
                .with("found", found));
        }
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        Mapping::new(file, len, protection, MapFlags::PRIVATE).map(Self)
    }

    /// Tells the kernel how `range` is going to be used. That it does not care is no error.
    pub fn advise(&self, range: Range<usize>, advice: Advice) -> Result<()> {
        let advice = match advice {
            Advice::Sequential => Madvice::Sequential,
            Advice::WillNeed => Madvice::WillNeed,
            Advice::Random => Madvice::Random,
        };
        let (start, len) = self.0.pages(&range)?;
        // SAFETY: the pages belong to this mapping, and none of these changes what they contain.
        let _ = unsafe { madvise(start, len, advice) };
        Ok(())
    }

    /// Reads `range` in and maps its pages, so that touching them is no fault any more.
    ///
    /// A kernel before 5.14 can't: an error of the kind `Unsupported`, and nothing is lost but
    /// time.
    pub fn populate(&self, range: Range<usize>) -> Result<()> {
        let (start, len) = self.0.pages(&range)?;
        if len == 0 {
            return Ok(());
        }
        // SAFETY: the pages belong to this mapping, and reading them in changes nothing.
        unsafe { madvise(start, len, Madvice::LinuxPopulateRead) }.map_err(|errno| {
            let error = Error::from_errno(errno, "can't read a mapped file in");
            let unknown = errno == rustix::io::Errno::INVAL;
            if unknown { error.of_kind(Kind::Unsupported) } else { error }
        })
    }

    /// The whole file as a writable block.
    pub fn into_block(self) -> Block {
        let whole = 0..self.len();
        Arc::new(self.0).block(whole)
    }

    /// Ranges of the file as writable blocks, in the order asked for; an error if two overlap or
    /// one is not inside the file.
    pub fn into_blocks(self, ranges: &[Range<usize>]) -> Result<Vec<Block>> {
        disjoint(ranges, self.len())?;
        let mapping = Arc::new(self.0);
        Ok(ranges.iter().map(|range| mapping.block(range.clone())).collect())
    }
}

/// An error unless the ranges lie inside `len` bytes and share none of them.
fn disjoint(ranges: &[Range<usize>], len: usize) -> Result<()> {
    if let Some(range) = ranges.iter().find(|range| range.start > range.end || range.end > len) {
        return Err(Error::invalid(format!("{range:?} is not inside a file of {len} bytes")));
    }
    let mut sorted: Vec<_> = ranges.iter().filter(|range| !range.is_empty()).collect();
    sorted.sort_unstable_by_key(|range| range.start);
    match sorted.windows(2).find(|pair| pair[0].end > pair[1].start) {
        Some(pair) => {
            let (one, other) = (pair[0], pair[1]);
            Err(Error::invalid(format!("{one:?} and {other:?} overlap: blocks can't share bytes")))
        }
        None => Ok(()),
    }
}

/// The bytes in a regular file.
fn length(file: impl AsFd) -> Result<u64> {
    let stat = fstat(file).map_err(|errno| Error::from_errno(errno, "can't look at a file"))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(Error::invalid("only a regular file can be mapped"));
    }
    Ok(stat.st_size as u64)
}

impl Deref for Mapped {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let Mapping { start, len } = self.0;
        // SAFETY: mapped for reading, `len` bytes (none need a mapping), until `self` is dropped;
        // file pages are always initialised. Nobody in this process writes to them: blocks exist
        // only once `self` is gone. What other processes must not do, the type's prose says.
        unsafe { std::slice::from_raw_parts(start.as_ptr(), len) }
    }
}

impl fmt::Debug for Mapped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mapped({})", Size(self.len() as u64))
    }
}

/// Mapped pages, unmapped on drop.
pub(super) struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping belongs to the process, not to a thread; its owner decides who uses the bytes.
unsafe impl Send for Mapping {}
// SAFETY: as above; a shared mapping hands out no bytes by itself.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `len` bytes of `file`. Nothing is reserved for private copies of them.
    pub(super) fn new(
        file: impl AsFd,
        len: u64,
        protection: ProtFlags,
        flags: MapFlags,
    ) -> Result<Self> {
        let too_large = || Error::new(Kind::OutOfMemory, "the file exceeds the address space");
        let len = usize::try_from(len).ok().filter(|len| isize::try_from(*len).is_ok());
        let len = len.ok_or_else(too_large)?;
        // The kernel maps no empty range, and an empty slice needs only an address.
        let nowhere = std::ptr::without_provenance_mut(ALIGNMENT);
        let flags = flags | MapFlags::NORESERVE;
        let start = match len {
            0 => nowhere,
            // SAFETY: a new mapping at an address of the kernel's choice touches nothing that
            // exists.
            _ => unsafe { mmap(std::ptr::null_mut(), len, protection, flags, file, 0) }
                .map_err(|errno| Error::from_errno(errno, "can't map a file").with("bytes", len))?,
        };
        let start = NonNull::new(start.cast()).ok_or_else(too_large)?;
        Ok(Self { start, len })
    }

    /// The whole pages that hold `range`: an address and a length for the kernel.
    pub(super) fn pages(&self, range: &Range<usize>) -> Result<(*mut c_void, usize)> {
        disjoint(std::slice::from_ref(range), self.len)?;
        if range.is_empty() {
            return Ok((self.start.as_ptr().cast(), 0));
        }
        let first = range.start - range.start % rustix::param::page_size();
        // SAFETY: `first` is at most the range's start, which lies inside the mapping.
        let start = unsafe { self.start.add(first) };
        Ok((start.as_ptr().cast(), range.end - first))
    }

    /// `range`, which lies inside and which no other block has, as a block.
    fn block(self: &Arc<Self>, range: Range<usize>) -> Block {
        // SAFETY: the caller promises that the range lies inside the mapping.
        let start = unsafe { self.start.add(range.start) };
        // SAFETY: the pages are mapped for reading and writing until the last `Arc` is dropped,
        // and file pages are always initialised. Only blocks reach them (a `Mapped` was consumed
        // to get here), and the caller promises that no two blocks overlap.
        unsafe { Foreign::exclusive(start, range.len(), Box::new(Arc::clone(self))) }.into()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if self.len > 0 {
            // SAFETY: mapped in `new` with this length, and unmapped only here, when nobody can
            // reach the bytes any more. Unmapping a whole mapping can't fail.
            let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
        }
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use std::fs;

    fn file_of(bytes: &[u8]) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        fs::write(file.path(), bytes).expect("written");
        file
    }

    fn patterned(len: usize) -> Vec<u8> {
        (0..len).map(|position| (position % 251) as u8).collect()
    }

    #[test]
    fn a_mapped_file_reads_as_the_file_does() {
        for len in [0, 1, 4096, 100_001] {
            let bytes = patterned(len);
            let file = file_of(&bytes);
            let mapped = Mapped::open(file.path(), Some(len as u64)).unwrap();
            assert_eq!(&*mapped, bytes);
            assert_eq!(&*Mapped::of(file.as_file(), len as u64).unwrap(), bytes);
            assert_eq!(&*mapped.into_block(), bytes);
        }
    }

    #[test]
    fn what_is_written_to_a_block_stays_out_of_the_file() {
        let bytes = patterned(10_000);
        let file = file_of(&bytes);
        let mut block = Mapped::open(file.path(), None).unwrap().into_block();
        block.as_mut().unwrap().fill(7);
        assert!(block.iter().all(|byte| *byte == 7));
        drop(block);
        assert_eq!(fs::read(file.path()).unwrap(), bytes);
    }

    #[test]
    fn each_block_keeps_the_mapping_alive_also_when_the_file_is_gone() {
        let bytes = patterned(20_000);
        let file = file_of(&bytes);
        let mapped = Mapped::open(file.path(), None).unwrap();
        drop(file);
        let ranges = [5_000..20_000, 0..4_999, 7..7, 4_999..5_000];
        let mut blocks = mapped.into_blocks(&ranges).unwrap();
        blocks[1].as_mut().unwrap().fill(0);
        drop(blocks.remove(1));
        assert!(blocks.iter().all(Block::is_writable));
        assert_eq!(&*blocks[0], &bytes[5_000..]);
        assert!(blocks[1].is_empty());
        assert_eq!(&*blocks[2], &bytes[4_999..5_000]);
    }

    #[test]
    fn blocks_that_would_share_bytes_or_leave_the_file_are_refused() {
        let file = file_of(&patterned(100));
        let said = |ranges: &[Range<usize>]| {
            let mapped = Mapped::open(file.path(), None).unwrap();
            mapped.into_blocks(ranges).unwrap_err().to_string()
        };
        let shared = "10..20 and 19..30 overlap: blocks can't share bytes";
        assert_eq!(said(&[19..30, 10..20]), shared);
        assert_eq!(said(&[0..5, 90..101]), "90..101 is not inside a file of 100 bytes");
        #[expect(clippy::reversed_empty_ranges)]
        let backwards = said(&[1..2, 4..3]);
        assert_eq!(backwards, "4..3 is not inside a file of 100 bytes");
    }

    #[test]
    fn a_file_of_another_length_is_refused() {
        let file = file_of(b"twelve bytes");
        let longer = Mapped::open(file.path(), Some(13)).unwrap_err();
        assert_eq!(longer.kind(), Kind::Truncated);
        let name = file.path().display();
        let said = "the file's length is not the expected one";
        assert_eq!(longer.to_string(), format!("{said} (expected: 13, found: 12, file: {name})"));
        assert_eq!(Mapped::of(file.as_file(), 11).unwrap_err().kind(), Kind::Corrupt);
    }

    #[test]
    fn what_is_no_file_is_named_in_the_error() {
        let missing = Mapped::open("/nowhere/at/all", None).unwrap_err();
        assert_eq!(missing.kind(), Kind::NotFound);
        let device = Mapped::open("/dev/null", None).unwrap_err();
        let said = "only a regular file can be mapped (file: /dev/null)";
        assert_eq!(device.to_string(), said);
        let directory = tempfile::tempdir().unwrap();
        let pipe = directory.path().join("pipe");
        let mode = Mode::RUSR | Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, FileType::Fifo, mode, 0).unwrap();
        assert_eq!(Mapped::open(&pipe, None).unwrap_err().kind(), Kind::InvalidInput);
    }

    #[test]
    fn a_file_larger_than_memory_can_be_mapped() {
        let strict = fs::read_to_string("/proc/sys/vm/overcommit_memory");
        if strict.is_ok_and(|mode| mode.trim() == "2") {
            return;
        }
        let file = file_of(b"");
        let len = 1 << 40;
        file.as_file().set_len(len).unwrap();
        let mapped = Mapped::open(file.path(), Some(len)).unwrap();
        assert_eq!(mapped.last(), Some(&0));
    }

    #[test]
    fn advice_changes_no_byte_and_is_checked_against_the_file() {
        let bytes = patterned(50_000);
        let file = file_of(&bytes);
        let mapped = Mapped::open(file.path(), None).unwrap();
        for advice in [Advice::Sequential, Advice::WillNeed, Advice::Random] {
            mapped.advise(4_097..50_000, advice).unwrap();
            mapped.advise(9..9, advice).unwrap();
            assert!(mapped.advise(0..50_001, advice).is_err());
        }
        match mapped.populate(1..50_000) {
            Err(error) => assert_eq!(error.kind(), Kind::Unsupported),
            Ok(()) => assert!(mapped.populate(0..50_001).is_err()),
        }
        assert_eq!(&*mapped, bytes);
    }
}
