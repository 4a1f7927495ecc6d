//! Which process this is, without a system call.
//!
//! What belongs to a thread of the parent must not be waited for in a forked child, and that is
//! asked on every operation. The number is kept in a page that the kernel wipes in a child
//! (`MADV_WIPEONFORK`), so that a copy can never be mistaken for the truth.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};

/// The number of this process; in a forked child another one than in its parent.
pub(crate) fn process_id() -> u32 {
    static KEPT: OnceLock<Option<&'static AtomicU32>> = OnceLock::new();
    let Some(kept) = KEPT.get_or_init(wiped_on_fork) else {
        return std::process::id();
    };
    match kept.load(Ordering::Relaxed) {
        0 => {
            let id = std::process::id();
            kept.store(id, Ordering::Relaxed);
            id
        }
        id => id,
    }
}

/// A number that is zero at first and in every child; `None` where the kernel has no such memory.
fn wiped_on_fork() -> Option<&'static AtomicU32> {
    let len = rustix::param::page_size();
    let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
    // SAFETY: a new anonymous mapping touches nothing that exists.
    let page = unsafe { mmap_anonymous(std::ptr::null_mut(), len, protection, flags) }.ok()?;
    // SAFETY: the page was mapped just above and nobody knows it yet. Where the advice is refused,
    // the page is leaked: once in a process.
    unsafe { madvise(page, len, Advice::LinuxWipeOnFork) }.ok()?;
    // SAFETY: aligned, zeroed, never unmapped, and only ever seen as this atomic.
    Some(unsafe { AtomicU32::from_ptr(page.cast()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kept_number_is_the_kernels() {
        for _ in 0..3 {
            assert_eq!(process_id(), std::process::id());
        }
        assert!(wiped_on_fork().is_none_or(|number| number.load(Ordering::Relaxed) == 0));
    }
}
