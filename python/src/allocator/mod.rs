//! Memory of torch's CPU tensors, used again.
//!
//! torch takes it from the C library's `posix_memalign`. glibc maps blocks of more than 32 MiB one by
//! one, so that each is made of new pages; smaller ones come from a heap in which a hole is not
//! filled by an aligned block of the size that left it. Training that offloads its activations frees
//! most of what it takes: it would either wait for pages or stay as large as without.
//!
//! So while an offload exists, large blocks come from the core's [`Shelf`] and return to it. torch has
//! no call to say so from outside; what it calls are two imported functions of its `libc10.so`, and
//! those [slots](slots) are set to [`take`] and [`give`] here. What is small, and everything while
//! nobody offloads, goes on to the C library. Where there are no such slots, glibc is told to map all
//! large blocks one by one: that keeps the process small, at the cost of making pages.
//!
//! What offloading needs in any case is to see blocks being freed: torch frees the bytes of a storage that
//! is resized or swapped, also while they are on their way to disk. [`give`] leaves what is [lent](Loans)
//! alone until that is over.

#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
mod slots;

use std::ffi::{c_int, c_void};
use std::ptr::NonNull;
use std::sync::OnceLock;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use tensorferry::memory::{ALIGNMENT, Loans, Shelf, Watch};

/// What glibc calls large, too, as long as it has not learned otherwise.
const LARGE_BYTES: usize = 128 << 10;

/// Blocks of torch's that are read here, and those that are watched.
// SAFETY: what `give` kept is freed as it would have been freed there.
pub static LOANS: Loans = unsafe { Loans::new(release) };

/// Tells whether a block of torch's was freed.
#[pyclass(frozen, module = "tensorferry._lib")]
pub struct BlockWatch(Watch);

#[pymethods]
impl BlockWatch {
    /// Watches the block at an address, which is not freed yet.
    #[new]
    fn new(address: usize) -> PyResult<Self> {
        let start = NonNull::new(std::ptr::with_exposed_provenance_mut(address));
        let start = start.ok_or_else(|| PyValueError::new_err("there is no block at 0"))?;
        Ok(Self(LOANS.watch(start)))
    }

    #[getter]
    fn freed(&self) -> bool {
        self.0.is_freed()
    }
}

/// Has torch's blocks stay as long as they are lent, in this process and for good; whether that could be
/// done.
#[pyfunction]
pub fn watch_blocks() -> bool {
    static DONE: OnceLock<bool> = OnceLock::new();
    *DONE.get_or_init(see_frees)
}

/// Has large blocks of torch's used again, or else given back to the system, in this process and for
/// good; whether either could be done.
#[pyfunction]
pub fn recycle_blocks() -> bool {
    static DONE: OnceLock<bool> = OnceLock::new();
    *DONE.get_or_init(|| redirect() || return_large_blocks())
}

/// Bytes of freed blocks that are kept for the next tensors.
#[pyfunction]
pub fn spare_bytes() -> u64 {
    Shelf::of_process().map_or(0, Shelf::spare)
}

#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
fn see_frees() -> bool {
    let slots = slots::of("libc10.so", c"free");
    if slots.is_empty() {
        return false;
    }
    // SAFETY: the three functions take and return nothing, and are there as long as the process.
    if unsafe { libc::pthread_atfork(Some(freeze), Some(thaw), Some(thaw)) } != 0 {
        return false;
    }
    slots.iter().all(|slot| slot.set(give as *const ()))
}

/// What gives back knows blocks of both kinds before there are any of ours.
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
fn redirect() -> bool {
    if Shelf::of_process().is_none() || !watch_blocks() {
        return false;
    }
    let slots = slots::of("libc10.so", c"posix_memalign");
    !slots.is_empty() && slots.iter().all(|slot| slot.set(take as *const ()))
}

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
fn see_frees() -> bool {
    false
}

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
fn redirect() -> bool {
    false
}

/// `posix_memalign`, for torch.
unsafe extern "C" fn take(into: *mut *mut c_void, alignment: usize, size: usize) -> c_int {
    let shelf = Shelf::of_process()
        .filter(|shelf| size >= LARGE_BYTES && alignment <= ALIGNMENT && shelf.keeps());
    if let Some(block) = shelf.and_then(|shelf| shelf.take(size)) {
        // SAFETY: the caller of `posix_memalign` gives a place for the address.
        unsafe { into.write(block.as_ptr().cast()) };
        return 0;
    }
    // SAFETY: passed on as it came.
    unsafe { libc::posix_memalign(into, alignment, size) }
}

/// `free`, for torch.
unsafe extern "C" fn give(block: *mut c_void) {
    if let Some(start) = NonNull::new(block.cast::<u8>())
        && !LOANS.keep(start)
    {
        // SAFETY: who frees a block does not use it any more.
        unsafe { release(start) };
    }
}

/// Frees a block that [`take`] or the C library gave.
unsafe fn release(start: NonNull<u8>) {
    if let Some(shelf) = Shelf::of_process()
        && shelf.owns(start.addr().get())
    {
        // SAFETY: the promise of this function.
        unsafe { shelf.give(start) };
        return;
    }
    // SAFETY: as above; it is none of the shelf's, so the C library's.
    unsafe { libc::free(start.as_ptr().cast()) }
}

unsafe extern "C" fn freeze() {
    LOANS.freeze();
    if let Some(shelf) = Shelf::of_process() {
        shelf.freeze();
    }
}

unsafe extern "C" fn thaw() {
    if let Some(shelf) = Shelf::of_process() {
        // SAFETY: called after `freeze`, by the thread that called it, in the parent and in the
        // child.
        unsafe { shelf.thaw() };
    }
    // SAFETY: as above.
    unsafe { LOANS.thaw() };
}

/// Has glibc map large blocks one by one, and unmap them when they are freed.
fn return_large_blocks() -> bool {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: sets two numbers of the allocator, under its own lock; blocks that exist stay as they
    // are.
    let done = unsafe {
        let bytes = LARGE_BYTES as c_int;
        libc::mallopt(libc::M_MMAP_THRESHOLD, bytes) == 1
            && libc::mallopt(libc::M_TRIM_THRESHOLD, bytes) == 1
    };
    #[cfg(not(all(target_os = "linux", target_env = "gnu")))]
    let done = false;
    done
}
