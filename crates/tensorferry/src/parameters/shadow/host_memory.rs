//! Host memory that holds parameters or gradients, mapped for the device.

use std::ops::Range;
use std::sync::Arc;

use crate::device::{Device, Held, Mapped};
use crate::error::{Error, Result};
use crate::memory::{Claim, Named, Priority, Reading, Writing};
use crate::size::Size;

/// What all homes take.
static HOMES: Named = Named::new("shadow parameters", Priority::Needed);

/// Host memory that the device copies from and to fastest, and that its kernels can use in place.
///
/// Who may touch it when is said on top of the [module](super). [`read`](Self::read) and
/// [`write`](Self::write) see to it; tensors of others that lie in it, at its address, do not.
#[derive(Debug)]
pub struct HostMemory {
    // In this order: the memory goes first.
    mapped: Mapped,
    _claim: Claim,
}

impl HostMemory {
    pub(super) fn new(device: &dyn Device, bytes: usize) -> Result<Self> {
        let claim = HOMES.claim(bytes as u64)?;
        let mapped = device.map_host(device.allocate_host(bytes)?)?;
        Ok(Self { mapped, _claim: claim })
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.mapped.len()
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.mapped.is_empty()
    }

    /// Where host code sees the memory.
    pub fn address(&self) -> usize {
        self.mapped.host_address()
    }

    /// Borrows a range for host code to read; an error while a kernel or a copy writes to it.
    pub fn read(&self, range: Range<usize>) -> Result<Held<Reading>> {
        self.mapped.read(range)
    }

    /// Borrows a range for host code to write; an error while a kernel or a copy uses it.
    pub fn write(&self, range: Range<usize>) -> Result<Held<Writing>> {
        self.mapped.write(range)
    }

    pub(super) fn mapped(&self) -> &Mapped {
        &self.mapped
    }
}

/// The former name of [`HostMemory`].
pub type Home = HostMemory;

/// A part of host memory: a parameter, or its gradient.
#[derive(Debug, Clone)]
pub struct Slice {
    /// The memory that it lies in.
    pub home: Arc<HostMemory>,
    /// From here.
    pub offset: usize,
    /// So many bytes; none for the gradient of a frozen parameter.
    pub len: usize,
}

impl Slice {
    pub(super) fn range(&self) -> Range<usize> {
        self.offset..self.offset + self.len
    }

    pub(super) fn check(&self) -> Result<()> {
        if self.offset.checked_add(self.len).is_some_and(|end| end <= self.home.len()) {
            return Ok(());
        }
        let (Self { offset, len, .. }, memory) = (self, Size(self.home.len() as u64));
        Err(Error::invalid(format!(
            "{len} bytes at offset {offset} are not inside a home of {memory}"
        )))
    }

    /// Whether both have a byte in common.
    pub(super) fn meets(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.home, &other.home)
            && self.offset.max(other.offset)
                < (self.offset + self.len).min(other.offset + other.len)
    }
}
