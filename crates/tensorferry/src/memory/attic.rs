//! Mappings that are not in use, kept for the next user.
//!
//! Fresh memory is expensive: the kernel clears every page, and a virtual machine may first have to
//! get it back from its host, which has been measured at a tenth of the speed of the disk that was
//! to fill it. So large buffers that nobody uses any more are kept here, still mapped.
//!
//! What is kept is told to the kernel as free (`MADV_FREE`): under pressure it takes the pages back
//! without a word, as if they had been unmapped, and nobody else runs short on our account. They
//! are counted as resident until then. At most [`KEPT_SHARE`] of the machine's memory is kept, and
//! the oldest goes first.

use std::ptr::NonNull;
use std::sync::{LazyLock, Mutex, MutexGuard, TryLockError};

use rustix::mm::{Advice, madvise, munmap};

/// One in so many bytes of the machine's memory may be kept.
const KEPT_SHARE: usize = 4;

/// How much longer than needed a mapping may be: a quarter of what is needed.
const SLACK_SHARE: usize = 4;

static ATTIC: LazyLock<Mutex<Attic>> = LazyLock::new(Mutex::default);

#[derive(Default)]
struct Attic {
    /// Oldest first.
    kept: Vec<Mapping>,
    bytes: usize,
}

/// A mapping that nobody uses.
struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping in the attic is reached by nobody else, and has no affinity to a thread.
unsafe impl Send for Mapping {}

/// The attic, unless somebody is in it: who finds it locked does without, and a child that was forked
/// while its parent was in it is not kept waiting for ever.
fn attic() -> Option<MutexGuard<'static, Attic>> {
    match ATTIC.try_lock() {
        Ok(attic) => Some(attic),
        Err(TryLockError::Poisoned(attic)) => Some(attic.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// A kept mapping of at least `len` bytes and not much more, with its length. What is in it may
/// change to zeros until it is written to.
pub(super) fn take(len: usize) -> Option<(NonNull<u8>, usize)> {
    let mut attic = attic()?;
    let fits = |mapping: &Mapping| mapping.len >= len && mapping.len - len <= len / SLACK_SHARE;
    // The newest is the most likely to have its pages still.
    let found = attic.kept.iter().rposition(fits)?;
    let mapping = attic.kept.remove(found);
    attic.bytes -= mapping.len;
    Some((mapping.start, mapping.len))
}

/// Keeps a mapping, and unmaps the oldest ones when there are too many.
///
/// # Safety
/// `start` is a private anonymous mapping of `len` bytes, whose owner gives it up.
pub(super) unsafe fn keep(start: NonNull<u8>, len: usize) {
    // SAFETY: the mapping is the caller's to give; its content is of no use to anybody. A kernel
    // that does not know the advice keeps the pages, which is safe too.
    let _ = unsafe { madvise(start.as_ptr().cast(), len, Advice::LinuxFree) };
    let mut leaving = vec![Mapping { start, len }];
    if let Some(mut attic) = attic() {
        attic.bytes += len;
        attic.kept.append(&mut leaving);
        while attic.bytes > *KEPT_BYTES_MAX {
            let oldest = attic.kept.remove(0);
            attic.bytes -= oldest.len;
            leaving.push(oldest);
        }
    }
    for Mapping { start, len } in leaving {
        // SAFETY: nobody uses it, and it is forgotten with this. Unmapping a whole mapping can't
        // fail.
        let _ = unsafe { munmap(start.as_ptr().cast(), len) };
    }
}

/// Bytes that may be kept.
static KEPT_BYTES_MAX: LazyLock<usize> = LazyLock::new(|| {
    let info = rustix::system::sysinfo();
    info.totalram as usize * (info.mem_unit as usize).max(1) / KEPT_SHARE
});
