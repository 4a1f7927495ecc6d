//! Memory of torch's CPU tensors, used again.
//!
//! torch takes it from the C library's `posix_memalign`. glibc maps blocks of more than 32 MiB one by
//! one, so that each is made of new pages; smaller ones come from a heap in which a hole is not
//! filled by an aligned block of the size that left it. Training that offloads its activations frees
//! most of what it takes: it would either wait for pages or stay as large as without.
//!
//! So while an offload exists, large blocks come from the core's [`SpareBlocks`] and return to it. torch has
//! no call to say so from outside; what it calls are two imported functions of its `libc10.so`, and
//! those [imports] are redirected to [`take`] and [`give`] here. What is small goes on to the C
//! library.
//!
//! What offloading needs in any case is to see blocks being freed: torch frees the bytes of a storage that
//! is resized or swapped, also while they are on their way to disk. [`give`] leaves what is [lent](Loans)
//! alone until that is over. Where that can't be seen, bytes are copied before they are written.
//!
//! # Why this is on by default
//!
//! Whoever makes an offload wants a smaller process, and without this one does not get smaller: the C
//! library keeps what is freed. Who has to ask for it finds out after a run that was killed for its
//! memory. What speaks against it is that a process's allocator is not a library's to change. So as
//! little is changed as possible, and only as long as it is asked for:
//!
//! - two imports of one library; nobody but torch's CPU allocator calls others than before;
//! - only while there is an offload, or something that it has saved. Afterwards `libc10.so` calls what it
//!   called before ([`imports`] says when, and why a block that lives on is still freed rightly);
//! - only if both functions are the C library's. Who preloads an allocator, or a tool that watches one,
//!   has decided how memory is managed: both imports stay, tensors are copied before they are
//!   written, and the offload's `report()` says so. The same goes for a system whose tables are not known;
//! - `recycle_memory=False` leaves `posix_memalign` alone; `free` is then seen, and nothing but what is
//!   lent is freed otherwise than by the C library.
//!
//! | file | what it knows |
//! |---|---|
//! | [`imports`] | when the two functions are redirected, and who frees a block |
//! | [`slots`] | where a loaded library keeps the addresses of what it imports |
//! | [`provider`] | which library a function is from |

mod imports;
mod provider;
mod slots;

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::ptr::NonNull;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use tensorferry::memory::{ALIGNMENT, Loans, SpareBlocks, Watch};

pub use imports::Redirection;

/// Smaller blocks are left to the C library: what glibc calls large, too, as long as it has not learned
/// otherwise.
const LARGE_BYTES: usize = 128 << 10;

/// Blocks of torch's that are read here, and those that are watched.
// SAFETY: what `give` kept is freed as it would have been freed there.
pub static LOANS: Loans = unsafe { Loans::new(release) };

/// Tells whether a block of torch's was freed.
#[pyclass(frozen, module = "tensorferry._lib")]
pub struct BlockWatch {
    watch: Watch,
    /// Let go of after the watch.
    _redirection: Redirection,
}

#[pymethods]
impl BlockWatch {
    /// Watches the block at an address, which is not freed yet.
    #[new]
    fn new(address: usize) -> PyResult<Self> {
        let start = NonNull::new(std::ptr::with_exposed_provenance_mut(address));
        let start = start.ok_or_else(|| PyValueError::new_err("there is no block at 0"))?;
        let redirection = Redirection::begin(false);
        Ok(Self { watch: LOANS.watch(start), _redirection: redirection })
    }

    #[getter]
    fn freed(&self) -> bool {
        self.watch.is_freed()
    }
}

/// Bytes of freed blocks that are kept for the next tensors.
#[pyfunction]
pub fn spare_bytes() -> u64 {
    SpareBlocks::of_process().map_or(0, SpareBlocks::spare)
}

/// What `libc10.so` calls to take and to free memory: addresses by name.
#[pyfunction]
pub fn torch_imports() -> HashMap<&'static str, Vec<usize>> {
    imports::addresses()
}

/// `posix_memalign`, for torch.
unsafe extern "C" fn take(into: *mut *mut c_void, alignment: usize, size: usize) -> c_int {
    let is_ours = size >= LARGE_BYTES && alignment <= ALIGNMENT;
    if let Some(block) = is_ours.then(|| imports::take(size)).flatten() {
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
    // SAFETY: the promise of this function.
    if unsafe { !imports::give(start) } {
        // SAFETY: as above; it is no spare block, so the C library's.
        unsafe { libc::free(start.as_ptr().cast()) };
    }
}
