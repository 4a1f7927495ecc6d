//! One aligned allocation.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::fmt;
use std::mem;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::time::Duration;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use super::caretaker::make_room;
use super::ledger::{Claim, Named};
use super::mapping_cache;
use super::populate::{Advised, complete, populate};
use crate::error::{Error, Kind, Result};
use crate::size::Size;

/// Every buffer starts at a multiple of this many bytes: what direct I/O asks for.
pub const ALIGNMENT: usize = 4096;

/// From this size on, memory is mapped rather than allocated, and huge pages are advised: one
/// fault and one TLB entry per 2 MiB instead of 512.
const MAPPED_MIN: usize = 2 << 20;

/// From this size on, memory that is used again is worth its place in the mapping cache.
const RECYCLED_MIN: usize = 1 << 20;

/// Aligned, zeroed, owned bytes.
///
/// Allocation failure is an error, never an abort.
pub struct Buffer {
    start: NonNull<u8>,
    len: usize,
    origin: Origin,
    advised: Advised,
    /// None for memory that is counted elsewhere, or becomes the user's.
    claim: Claim,
}

/// Where the bytes came from, and so how they go back.
enum Origin {
    Nothing,
    Heap(Layout),
    Mapping(usize),
    /// Goes to the mapping cache rather than back to the kernel.
    Recycled(usize),
}

// SAFETY: a `Buffer` is the only owner of its memory, which is ordinary memory without affinity to
// a thread; shared references only read it.
unsafe impl Send for Buffer {}
// SAFETY: as above.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// `len` zeroed bytes at an address that is a multiple of [`ALIGNMENT`].
    pub fn zeroed(len: usize) -> Result<Self> {
        if len >= MAPPED_MIN {
            return Self::mapped(len, Origin::Mapping);
        }
        let rounded = len.next_multiple_of(ALIGNMENT);
        let layout = Layout::from_size_align(rounded, ALIGNMENT).map_err(|_| refused(len))?;
        let (start, origin) = if rounded == 0 {
            (std::ptr::without_provenance_mut(ALIGNMENT), Origin::Nothing)
        } else {
            // SAFETY: the layout has a size above zero.
            (unsafe { alloc_zeroed(layout) }, Origin::Heap(layout))
        };
        let start = NonNull::new(start).ok_or_else(|| refused(len))?;
        Ok(Self { start, len, origin, advised: Advised::default(), claim: Claim::default() })
    }

    /// Zeroed bytes, counted by an account for as long as they exist.
    pub(crate) fn zeroed_by(account: &Named, len: usize) -> Result<Self> {
        let claim = account.claim(taken(len))?;
        let mut buffer = Self::zeroed(len)?;
        buffer.claim = claim;
        Ok(buffer)
    }

    /// `len` bytes for somebody who writes every one of them before reading it: memory that this
    /// process has used before if there is some.
    pub(crate) fn recycled(len: usize) -> Result<Self> {
        if len < RECYCLED_MIN {
            return Self::zeroed(len);
        }
        if let Some((start, mapped, _)) = mapping_cache::take(len) {
            return Ok(Self::again(start, len, mapped, Claim::default()));
        }
        Self::mapped(len, Origin::Recycled)
    }

    /// The same, counted by an account for as long as it exists.
    pub(crate) fn recycled_by(account: &Named, len: usize) -> Result<Self> {
        if len >= RECYCLED_MIN
            && let Some((start, mapped, mut claim)) = mapping_cache::take(len)
        {
            claim.move_to(account);
            return Ok(Self::again(start, len, mapped, claim));
        }
        Self::claimed(account.claim(taken(len))?, len)
    }

    /// The same, for who holds nothing and so may wait for its turn.
    pub(crate) fn recycled_within(account: &Named, len: usize, patience: Duration) -> Result<Self> {
        match Self::recycled_by(account, len) {
            Err(error) if error.kind() == Kind::OutOfMemory => {
                Self::claimed(account.claim_within(taken(len), patience)?, len)
            }
            made => made,
        }
    }

    /// New memory, for which there is room.
    fn claimed(claim: Claim, len: usize) -> Result<Self> {
        let made = if len < RECYCLED_MIN {
            Self::zeroed(len)
        } else {
            Self::mapped(len, Origin::Recycled)
        };
        made.map(|mut buffer| {
            buffer.claim = claim;
            buffer
        })
    }

    /// What the mapping cache had.
    fn again(start: NonNull<u8>, len: usize, mapped: usize, claim: Claim) -> Self {
        Self { start, len, origin: Origin::Recycled(mapped), advised: Advised::default(), claim }
    }

    /// A mapping of its own.
    fn mapped(len: usize, origin: fn(usize) -> Origin) -> Result<Self> {
        let rounded = len.checked_next_multiple_of(ALIGNMENT).ok_or_else(|| refused(len))?;
        make_room(len);
        let start = map(rounded).map_err(|error| refused(len).caused_by(error))?;
        let start = NonNull::new(start).ok_or_else(|| refused(len))?;
        let (origin, claim) = (origin(rounded), Claim::default());
        Ok(Self { start, len, origin, advised: Advised::default(), claim })
    }

    /// A copy of `bytes`.
    pub fn copy_of(bytes: &[u8]) -> Result<Self> {
        let mut buffer = Self::zeroed(bytes.len())?;
        buffer.copy_from_slice(bytes);
        Ok(buffer)
    }

    /// Makes the pages of `part`, here and not in the middle of a transfer. The content stays.
    ///
    /// # Safety
    /// `part` is one of this buffer's.
    pub(super) unsafe fn populate(&self, part: &mut [u8]) {
        match self.origin {
            Origin::Mapping(len) | Origin::Recycled(len) => {
                // SAFETY: a mapping of this length, and the caller's promise.
                unsafe { populate(part, (self.start, len), &self.advised) };
            }
            Origin::Nothing | Origin::Heap(_) => complete(part),
        }
    }

    /// Gives the whole pages of a part of a mapping back to the system: they are zeros from now on, and
    /// take no memory until they are written to.
    ///
    /// # Safety
    /// `start` and `len` are a part of this buffer, which nobody uses.
    pub(super) unsafe fn give_back(&self, start: NonNull<u8>, len: usize) {
        if !matches!(self.origin, Origin::Mapping(_) | Origin::Recycled(_)) {
            return;
        }
        let page = rustix::param::page_size();
        let front = start.addr().get().next_multiple_of(page) - start.addr().get();
        let len = len.saturating_sub(front) / page * page;
        // SAFETY: at most the part's length from its start.
        let start = unsafe { start.add(if len == 0 { 0 } else { front }) };
        // SAFETY: the caller's promise, and a private anonymous mapping. If the advice is refused, the pages
        // stay.
        let _ = unsafe { madvise(start.as_ptr().cast(), len, Advice::LinuxDontNeed) };
    }

    /// Where the bytes are, without borrowing them: for owners that hand out disjoint parts.
    pub(super) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Forgets all bytes from `len` on; the memory stays allocated.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }
}

/// Bytes that so many take.
fn taken(len: usize) -> u64 {
    len.checked_next_multiple_of(ALIGNMENT).unwrap_or(len) as u64
}

fn refused(len: usize) -> Error {
    Error::new(Kind::OutOfMemory, format!("can't allocate {}", Size(len as u64)))
}

fn map(len: usize) -> rustix::io::Result<*mut u8> {
    let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
    // SAFETY: a new anonymous mapping at an address of the kernel's choice touches nothing that
    // exists. Page alignment is at least `ALIGNMENT` on every platform this crate builds for.
    let start = unsafe { mmap_anonymous(std::ptr::null_mut(), len, protection, flags)? };
    // SAFETY: the range was mapped just above; the advice does not change what it contains. That
    // the kernel may know no huge pages costs speed only, so the result does not matter.
    let _ = unsafe { madvise(start, len, Advice::LinuxHugepage) };
    Ok(start.cast())
}

impl Drop for Buffer {
    fn drop(&mut self) {
        match self.origin {
            Origin::Nothing => {}
            // SAFETY: allocated in `zeroed` with this very layout, and freed only here.
            Origin::Heap(layout) => unsafe { dealloc(self.start.as_ptr(), layout) },
            Origin::Mapping(len) => {
                // SAFETY: mapped in `zeroed` with this length, and unmapped only here. Unmapping
                // such a range can't fail, and nothing could be done here if it did.
                let _ = unsafe { munmap(self.start.as_ptr().cast(), len) };
            }
            // SAFETY: mapped in `zeroed` with this length, and given up only here.
            Origin::Recycled(len) => unsafe {
                mapping_cache::keep(self.start, len, mem::take(&mut self.claim));
            },
        }
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `start` is valid for `len` initialised bytes as long as `self` lives (dangling
        // but aligned when `len` is zero), and `&self` excludes writers.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `&mut self` excludes everybody else.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({})", Size(self.len as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recycled_buffer_comes_back_to_whoever_needs_about_as_much() {
        // Lengths that no other test uses.
        for len in [(77 << 20) + 12345, RECYCLED_MIN + 77 * 4096] {
            let start = Buffer::recycled(len).unwrap().start();
            let again = Buffer::recycled(len - 4096).unwrap();
            assert_eq!((again.start(), again.len()), (start, len - 4096));
            drop(again);
            assert_ne!(Buffer::recycled(len / 2).unwrap().start(), start);
        }
    }

    #[test]
    fn buffers_are_aligned_zeroed_and_as_long_as_asked() {
        for len in [0, 1, 511, 4096, 4097, MAPPED_MIN - 1, MAPPED_MIN, MAPPED_MIN + 12345] {
            let mut buffer = Buffer::zeroed(len).unwrap();
            assert_eq!(buffer.len(), len);
            assert_eq!(buffer.as_ptr() as usize % ALIGNMENT, 0);
            assert!(buffer.iter().all(|byte| *byte == 0));
            buffer.fill(0xA5);
            assert!(buffer.iter().all(|byte| *byte == 0xA5));
        }
    }

    #[test]
    fn memory_that_does_not_exist_is_an_error_and_not_an_abort() {
        for len in [usize::MAX, isize::MAX as usize, 1 << 46] {
            let error = Buffer::zeroed(len).unwrap_err();
            assert_eq!(error.kind(), Kind::OutOfMemory);
            assert!(error.to_string().starts_with("can't allocate"), "{error}");
        }
    }

    #[test]
    fn truncating_never_lengthens() {
        let mut buffer = Buffer::copy_of(b"ferry").unwrap();
        buffer.truncate(9);
        assert_eq!(&*buffer, b"ferry");
        buffer.truncate(2);
        assert_eq!(&*buffer, b"fe");
    }
}
