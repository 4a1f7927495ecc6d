//! Memory that crosses the border: Python's buffers in operations, our blocks as Python buffers.

use std::any::Any;
use std::ffi::{c_int, c_void};
use std::ptr::NonNull;

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use tensorferry::activations::Memory;
use tensorferry::memory::{Block, Foreign, Headroom, Ledger};
use tensorferry::{Error, Result};

use crate::errors::exception;
use crate::guard::guarded;
use crate::json::json;
use crate::release::Claim;
use crate::size::SizeArgument;

/// Memory of a Python object for an operation to read from.
///
/// Python can't promise that nobody writes to a buffer while it is exported; who does so while an
/// operation runs gets a mixture of old and new bytes on disk, as with any other way to write.
pub fn lend(buffer: PyBuffer<u8>) -> PyResult<Block> {
    let (start, len) = address(&buffer)?;
    // SAFETY: a C-contiguous buffer of bytes is valid for `len` bytes and stays so until it is
    // released, which the claim's drop sees to.
    Ok(unsafe { Foreign::shared(start, len, Box::new(Claim::new(buffer))) }.into())
}

/// Memory of a Python object for an operation to read into.
pub fn lend_for_writing(py: Python<'_>, buffer: PyBuffer<u8>) -> PyResult<Block> {
    if buffer.readonly() {
        let error = Error::invalid("can't read into memory that must not be written to");
        return Err(exception(py, &error));
    }
    let (start, len) = address(&buffer)?;
    // SAFETY: as in `lend`, for a buffer that was exported for writing. The same caution holds:
    // Python code that looks at it before the operation is done sees a mixture.
    Ok(unsafe { Foreign::exclusive(start, len, Box::new(Claim::new(buffer))) }.into())
}

fn address(buffer: &PyBuffer<u8>) -> PyResult<(NonNull<u8>, usize)> {
    if !buffer.is_c_contiguous() {
        return Err(PyBufferError::new_err("the bytes of a buffer must be contiguous"));
    }
    // An empty buffer may have no address.
    let start = NonNull::new(buffer.buf_ptr().cast()).unwrap_or(NonNull::dangling());
    Ok((start, buffer.len_bytes()))
}

/// Where `len` bytes of a tensor begin that the package gives the address of.
///
/// A tensor without elements may have no address. One with bytes and without an address has no
/// data: to take it for an empty one would be to do nothing in silence.
pub fn start_of(address: usize, len: usize) -> Result<NonNull<u8>> {
    match NonNull::new(std::ptr::with_exposed_provenance_mut(address)) {
        None if len > 0 => {
            Err(Error::invalid("a tensor has no memory at an address").with("bytes", len))
        }
        start => Ok(start.unwrap_or(NonNull::dangling())),
    }
}

/// Lets go of memory that was lent, without leaving it to another thread.
pub fn end_loan(py: Python<'_>, block: Block) {
    if let Ok(foreign) = block.into_foreign() {
        Claim::end(foreign.into_keeper(), py);
    }
}

/// Bytes that an operation has read: any buffer consumer can use them without a copy.
#[pyclass(frozen, module = "tensorferry._lib")]
pub struct Buffer {
    /// Where the keeper's bytes are: it never moves them.
    start: *mut u8,
    len: usize,
    _keeper: Box<dyn Any + Send + Sync>,
}

// SAFETY: `start` points into memory that `_keeper` owns, which is `Send` and `Sync`; Rust code never reads or writes
// through it, it only hands it to consumers of the buffer protocol, who hold the object.
unsafe impl Send for Buffer {}
// SAFETY: as above.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// Wraps a block; memory that must not be written to is shown as empty.
    pub fn new(mut block: Block) -> Self {
        let bytes = block.as_mut().unwrap_or_default();
        let (start, len) = (bytes.as_mut_ptr(), bytes.len());
        Self { start, len, _keeper: Box::new(block) }
    }

    /// Wraps the bytes of an activation. Whoever writes to them changes what others of the same
    /// storage see, as everywhere in torch.
    pub fn of_activation(memory: Memory) -> Self {
        let (start, len) = (memory.as_ptr().cast_mut(), memory.len());
        Self { start, len, _keeper: Box::new(memory) }
    }
}

#[pymethods]
impl Buffer {
    fn __len__(&self) -> usize {
        self.len
    }

    fn __repr__(&self) -> String {
        format!("Buffer({} bytes)", self.len)
    }

    /// # Safety
    /// Called by the interpreter with a valid or null `view`.
    unsafe fn __getbuffer__(
        slf: &Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let this = slf.get();
        // SAFETY: as the interpreter promises; the memory lives as long as `slf`.
        unsafe { fill(slf.as_any(), (this.start, this.len), view, flags) }
    }
}

/// How much memory this process may have, and how much of it can still be taken; `None` where the kernel
/// does not say.
#[pyfunction]
pub fn headroom() -> Option<(u64, u64)> {
    Headroom::now().map(|now| (now.usable(), now.available))
}

/// Who holds how much memory in this process, as JSON.
#[pyfunction]
pub fn memory_text(py: Python<'_>) -> PyResult<String> {
    guarded(py, || json(&Ledger::of_process().statement()))
}

/// Bytes that all of them stay within, if there is a limit.
#[pyfunction]
pub fn memory_limit() -> Option<u64> {
    Ledger::of_process().limit()
}

/// Sets the limit, or lifts it.
#[pyfunction]
pub fn limit_memory(py: Python<'_>, bytes: Option<SizeArgument>) -> PyResult<()> {
    let bytes = bytes.map(|SizeArgument(size)| size.0);
    guarded(py, move || Ledger::of_process().set_limit(bytes))
}

/// Makes `view` one of `owner`'s memory.
///
/// # Safety
/// `view` is valid or null; the memory is there, and may be written to, as long as `owner` is.
pub unsafe fn fill(
    owner: &Bound<'_, PyAny>,
    (start, len): (*mut u8, usize),
    view: *mut ffi::Py_buffer,
    flags: c_int,
) -> PyResult<()> {
    let (start, len) = (start.cast::<c_void>(), len as isize);
    // SAFETY: `view` is as the caller promises, and null is refused by the call; the memory lives as
    // long as `owner`, to which the view gets a reference.
    match unsafe { ffi::PyBuffer_FillInfo(view, owner.as_ptr(), start, len, 0, flags) } {
        0 => Ok(()),
        _ => Err(PyErr::fetch(owner.py())),
    }
}
