//! How much of a file is in the page cache.
//!
//! A loader decides by it between copying from memory and reading the disk directly. Asking about
//! every page of a large file would take longer than the decision is worth, so a bounded number of
//! samples, spread evenly, speaks for the whole: at most [`SAMPLES_MAX`] ranges of
//! [`SAMPLE_BYTES`], whatever the file's length. A small file is asked about as a whole.
//!
//! Kernels since 6.5 count a file's pages when asked (`cachestat`). For older ones, where that is
//! forbidden, and on stacked file systems, whose own files have no pages, the file is mapped and
//! `mincore` asked, which takes ten times as long: more than a load of a small file can spare.
//!
//! The kernel answers for files only that one owns or may write to. For any other `mincore` claims that
//! every page is there, so that nobody can watch what others read.

use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

use super::local::is_local;
use super::mapped::Mapping;
use crate::error::{Error, Result};

/// How many ranges of a file are asked about.
const SAMPLES_MAX: usize = 64;

/// How many bytes one range has: a multiple of every page size in use.
const SAMPLE_BYTES: usize = 64 << 10;

/// The number of `cachestat`, the same on every architecture that we run on.
const SYS_CACHESTAT: libc::c_long = 451;

/// Which bytes `cachestat` is asked about.
#[repr(C)]
struct CachestatRange {
    offset: u64,
    len: u64,
}

/// Numbers of pages; those behind the first are about writing and eviction.
#[repr(C)]
#[derive(Default)]
struct Cachestat {
    cached: u64,
    others: [u64; 4],
}

/// The share of a file's `len` bytes that is in the page cache, from 0 to 1; estimated from
/// samples. An empty file is all there.
pub fn residency(file: impl AsFd, len: u64) -> Result<f64> {
    match counted(file.as_fd(), len) {
        Some(share) => Ok(share),
        None => mapped(file, len),
    }
}

/// As the kernel counts; nothing where it does not, or counts something else.
fn counted(file: BorrowedFd<'_>, len: u64) -> Option<f64> {
    if !is_local(file) {
        return None;
    }
    share(len, |range| {
        let bytes = CachestatRange { offset: range.start as u64, len: range.len() as u64 };
        let mut found = Cachestat::default();
        // SAFETY: the descriptor is open, and both structures are those of the kernel's interface and
        // live until the call returns; it reads the one and writes the other.
        let failed = unsafe {
            libc::syscall(SYS_CACHESTAT, file.as_raw_fd(), &raw const bytes, &raw mut found, 0)
        };
        if failed == 0 { Ok(found.cached) } else { Err(()) }
    })
    .ok()
}

/// As a mapping of the file shows.
fn mapped(file: impl AsFd, len: u64) -> Result<f64> {
    // Pages that can't be touched can't fault: whatever happens to the file, this is safe.
    let mapping = Mapping::new(file, len, ProtFlags::empty(), MapFlags::SHARED)?;
    share(len, |range| {
        // Only the lowest bit is defined.
        let pages = pages_of(&mapping, range)?;
        Ok(pages.iter().filter(|page| **page & 1 == 1).count() as u64)
    })
}

/// The share of pages that are there, of those in the samples; `resident` counts those in a range.
fn share<E>(
    len: u64,
    mut resident: impl FnMut(&Range<usize>) -> std::result::Result<u64, E>,
) -> std::result::Result<f64, E> {
    let (mut found, mut asked) = (0, 0);
    for range in samples(len as usize) {
        found += resident(&range)?;
        asked += range.len().div_ceil(rustix::param::page_size()) as u64;
    }
    Ok(if asked == 0 { 1.0 } else { found as f64 / asked as f64 })
}

/// What the kernel says of each page that holds a part of `range`.
fn pages_of(mapping: &Mapping, range: &Range<usize>) -> Result<Vec<u8>> {
    let (start, len) = mapping.pages(range)?;
    let mut pages = vec![0; len.div_ceil(rustix::param::page_size())];
    // SAFETY: the pages are mapped, and there is a byte to write for each of them. The kernel looks
    // at its tables only, not at the file's bytes.
    if unsafe { libc::mincore(start, len, pages.as_mut_ptr()) } == 0 {
        return Ok(pages);
    }
    let errno = Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO);
    Err(Error::from_errno(errno, "can't ask which pages of a file are in memory"))
}

/// The ranges of `len` bytes to ask about: all of them, or a sample at even distances which
/// includes both ends.
fn samples(len: usize) -> impl Iterator<Item = Range<usize>> {
    let whole = (len > 0 && len <= SAMPLES_MAX * SAMPLE_BYTES).then_some(0..len);
    let spread = if len > SAMPLES_MAX * SAMPLE_BYTES { SAMPLES_MAX } else { 0 };
    let step = (len.saturating_sub(SAMPLE_BYTES)) / (SAMPLES_MAX - 1);
    let sample = move |index: usize| {
        // On a page's border, so that a sample has as many pages as it has room for.
        let start = index * step / SAMPLE_BYTES * SAMPLE_BYTES;
        start..(start + SAMPLE_BYTES).min(len)
    };
    whole.into_iter().chain((0..spread).map(sample))
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rustix::fs::{Advice, fadvise, fstatfs};
    use std::io::Write;

    const TMPFS: i64 = 0x0102_1994;

    /// A synced file on a file system that can drop its pages; `None` if there is no such here.
    fn synced(len: usize) -> Option<std::fs::File> {
        let mut file = tempfile::tempfile().expect("a temporary file");
        file.write_all(&vec![1; len]).expect("written");
        file.sync_all().expect("synced");
        (fstatfs(&file).expect("a file system").f_type != TMPFS).then_some(file)
    }

    fn dropped(file: &std::fs::File) -> f64 {
        fadvise(file, 0, None, Advice::DontNeed).expect("advised");
        let len = file.metadata().expect("metadata").len();
        residency(file, len).expect("an answer")
    }

    #[test]
    fn a_written_file_is_resident_and_a_dropped_one_is_not() {
        for len in [1, 100_000, SAMPLES_MAX * SAMPLE_BYTES + 5] {
            let Some(file) = synced(len) else { return };
            assert!((residency(&file, len as u64).unwrap() - 1.0).abs() < 1e-9);
            let left = dropped(&file);
            assert!(left < 0.1, "{left} of {len} bytes left");
        }
    }

    #[test]
    fn both_ways_to_ask_give_the_same_answer() {
        let len = 3 * SAMPLES_MAX * SAMPLE_BYTES + 7;
        let Some(file) = synced(len) else { return };
        for kept in [len, len / 2, len / 3, 1] {
            fadvise(&file, kept as u64, None, Advice::DontNeed).unwrap();
            // An old kernel does not count.
            let Some(counted) = counted(file.as_fd(), len as u64) else { return };
            let mapped = mapped(&file, len as u64).unwrap();
            assert!((counted - mapped).abs() < 1e-9, "{counted} counted, {mapped} mapped");
        }
    }

    #[test]
    fn half_a_file_counts_as_half() {
        let len = 4 * SAMPLES_MAX * SAMPLE_BYTES;
        let Some(file) = synced(len) else { return };
        let half = std::num::NonZeroU64::new(len as u64 / 2);
        fadvise(&file, 0, half, Advice::DontNeed).unwrap();
        let share = residency(&file, len as u64).unwrap();
        assert!((0.4..0.6).contains(&share), "{share}");
    }

    #[test]
    fn an_empty_file_is_all_there() {
        let file = tempfile::tempfile().unwrap();
        assert!((residency(&file, 0).unwrap() - 1.0).abs() < 1e-9);
    }

    #[test]
    fn what_cannot_be_mapped_is_an_error_that_says_so() {
        let (reader, _writer) = std::io::pipe().unwrap();
        let error = mapped(&reader, 10).unwrap_err();
        assert!(error.to_string().starts_with("can't map a file"), "{error}");
    }

    proptest! {
        #[test]
        fn samples_are_bounded_disjoint_and_reach_both_ends(len in 0_usize..1 << 45) {
            let ranges: Vec<_> = samples(len).collect();
            prop_assert!(ranges.len() <= SAMPLES_MAX);
            prop_assert_eq!(ranges.is_empty(), len == 0);
            let total: usize = ranges.iter().map(ExactSizeIterator::len).sum();
            prop_assert!(total <= SAMPLES_MAX * SAMPLE_BYTES);
            prop_assert!(ranges.windows(2).all(|pair| pair[0].end <= pair[1].start));
            if let (Some(first), Some(last)) = (ranges.first(), ranges.last()) {
                prop_assert!(first.start == 0 && last.end <= len);
                prop_assert!(len - last.end <= SAMPLE_BYTES + SAMPLES_MAX);
            }
        }
    }
}
