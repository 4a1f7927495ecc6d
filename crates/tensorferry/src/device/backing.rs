//! Device memory that is host memory underneath: an exact count of bytes, and the bytes.

use std::ops::Range;
use std::sync::Arc;

use super::handles::{DeviceMemory, Refused};
use crate::error::{Error, Kind, Result};
use crate::memory::{Block, Buffer, Region};
use crate::size::Size;
use crate::sync::{Mutex, lock};

/// Allocations start at, and count as, multiples of this many bytes, as CUDA's do.
pub const ALLOCATION_ALIGNMENT: usize = 256;

/// How much of a capacity is used. One per device, so it also tells devices apart.
#[derive(Debug)]
pub(super) struct Account {
    capacity: u64,
    used: Mutex<u64>,
}

/// Bytes counted as used until this is dropped.
#[derive(Debug)]
struct Charge {
    account: Arc<Account>,
    bytes: u64,
}

impl Account {
    pub(super) fn new(capacity: u64) -> Arc<Self> {
        Arc::new(Self { capacity, used: Mutex::new(0) })
    }

    pub(super) fn capacity(&self) -> u64 {
        self.capacity
    }

    pub(super) fn used(&self) -> u64 {
        *lock(&self.used)
    }

    fn charge(self: &Arc<Self>, len: usize) -> Result<Charge> {
        let mut used = lock(&self.used);
        let bytes = (len as u64).checked_next_multiple_of(ALLOCATION_ALIGNMENT as u64);
        let total = bytes.and_then(|bytes| used.checked_add(bytes));
        match (bytes, total.filter(|total| *total <= self.capacity)) {
            (Some(bytes), Some(total)) => {
                *used = total;
                Ok(Charge { account: Arc::clone(self), bytes })
            }
            _ => Err(Error::new(Kind::OutOfMemory, "the device has no room for this allocation")
                .with("requested", Size(len as u64))
                .with("used", Size(*used))
                .with("capacity", Size(self.capacity))),
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        *lock(&self.account.used) -= self.bytes;
    }
}

/// The device's part of a [`DeviceMemory`]. Fields go in this order: bytes stop to count when they are
/// gone.
#[derive(Debug)]
pub(super) struct Allocation {
    pub(super) region: Arc<Region>,
    charge: Charge,
}

impl Allocation {
    pub(super) fn new(account: &Arc<Account>, len: usize) -> Result<Arc<Self>> {
        if len == 0 {
            return Err(Error::invalid("an allocation needs at least one byte"));
        }
        let charge = account.charge(len)?;
        let region = Arc::new(Region::new(Buffer::zeroed(len)?.into()));
        Ok(Arc::new(Self { region, charge }))
    }

    /// The allocation behind `memory`, if it is one of this account's device.
    pub(super) fn of<'a>(memory: &'a DeviceMemory, account: &Arc<Account>) -> Result<&'a Self> {
        memory
            .native::<Self>()
            .filter(|allocation| Arc::ptr_eq(&allocation.charge.account, account))
            .ok_or_else(|| Error::invalid("the memory belongs to another device"))
    }
}

/// A range of `memory` for a copy of `block`, or the refusal.
pub(super) fn target(
    memory: &DeviceMemory,
    account: &Arc<Account>,
    offset: usize,
    block: Block,
) -> Result<(Range<usize>, Block), Refused> {
    let checked = Allocation::of(memory, account).and_then(|_| memory.range(offset, block.len()));
    match checked {
        Ok(range) => Ok((range, block)),
        Err(error) => Err(Refused { error, block }),
    }
}

/// The refusal of a copy into memory that is only read.
pub(super) fn read_only(block: Block) -> Refused {
    let error = Error::invalid("a copy out needs a block that can be written to");
    Refused { error, block }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn capacity_is_counted_exactly_and_comes_back() {
        let account = Account::new(1024);
        let first = Allocation::new(&account, 1).unwrap();
        let rest = Allocation::new(&account, 768).unwrap();
        assert_eq!(account.used(), 1024);
        let error = Allocation::new(&account, 1).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the device has no room for this allocation \
             (requested: 1 B, used: 1 KiB, capacity: 1 KiB)"
        );
        drop(first);
        assert_eq!(account.used(), 768);
        drop(rest);
        assert_eq!(account.used(), 0);
    }

    #[test]
    fn impossible_allocations_are_errors_and_cost_nothing() {
        let account = Account::new(u64::MAX);
        assert_eq!(Allocation::new(&account, 0).unwrap_err().kind(), Kind::InvalidInput);
        for len in [usize::MAX, 1 << 50] {
            assert_eq!(Allocation::new(&account, len).unwrap_err().kind(), Kind::OutOfMemory);
        }
        assert_eq!(account.used(), 0);
    }
}
