//! The C library's allocator, which torch's CPU tensors come from.

use pyo3::prelude::*;

/// Blocks of this size are mapped one by one, and unmapped when they are freed.
const MAPPED_BYTES: i32 = 1 << 20;

/// Has large blocks go back to the system when they are freed; whether the allocator can do that.
///
/// glibc raises the size from which it maps blocks to that of the largest that was ever freed, up to
/// 32 MiB. Blocks below share its heap, where one that lives keeps all free ones before it: a process
/// that frees most of its activations stays as large as it was. For the whole process, and for good.
#[pyfunction]
pub fn return_large_blocks() -> bool {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: sets two numbers of the allocator, under its own lock; blocks that exist stay as they
    // are.
    let done = unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_BYTES) == 1
            && libc::mallopt(libc::M_TRIM_THRESHOLD, MAPPED_BYTES) == 1
    };
    #[cfg(not(all(target_os = "linux", target_env = "gnu")))]
    let done = false;
    done
}
