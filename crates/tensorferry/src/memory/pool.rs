//! A bounded set of equal buffers that come back by themselves.
//!
//! A pool is one slab cut into slots. Taking a slot gives a [`Lease`]; dropping the lease returns
//! the slot and wakes one waiter. All slots lie in one mapping made at the start, so that the
//! steady state allocates nothing and the kernel can pin the slab once (registered buffers).
//!
//! A slot is in one of two states: *free* (its index is in `free`) or *leased* (its index is in
//! exactly one `Lease`). Indices move between the two under the lock, which is what makes two
//! leases of one slot impossible.

use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::time::{Duration, Instant};

use super::buffer::{ALIGNMENT, Buffer};
use crate::error::{Error, Kind, Result};
use crate::size::Size;
use crate::sync::{Arc, Condvar, Mutex, lock, wait};

/// A bounded set of equal buffers; clones share it.
#[derive(Clone)]
pub struct Pool(Arc<Slab>);

struct Slab {
    memory: Buffer,
    slot_len: usize,
    slots: usize,
    free: Mutex<Vec<usize>>,
    returned: Condvar,
}

impl Pool {
    /// A pool of `slots` buffers of at least `slot_len` bytes each (rounded up to [`ALIGNMENT`]).
    pub fn new(slot_len: usize, slots: usize) -> Result<Self> {
        Self::over(Buffer::zeroed, slot_len, slots)
    }

    /// The same in memory that this process has used before, if there is some: for somebody who writes
    /// every byte before reading it.
    pub(crate) fn recycled(slot_len: usize, slots: usize) -> Result<Self> {
        Self::over(Buffer::recycled, slot_len, slots)
    }

    fn over(make: fn(usize) -> Result<Buffer>, slot_len: usize, slots: usize) -> Result<Self> {
        if slot_len == 0 || slots == 0 {
            return Err(Error::invalid("a pool needs at least one slot of at least one byte"));
        }
        let too_large = || {
            let asked = format!("{slots} buffers of {}", Size(slot_len as u64));
            Error::new(Kind::OutOfMemory, format!("can't make a pool of {asked}"))
        };
        let slot_len = slot_len.checked_next_multiple_of(ALIGNMENT).ok_or_else(too_large)?;
        let total = slot_len.checked_mul(slots).ok_or_else(too_large)?;
        let memory = make(total).map_err(|error| too_large().caused_by(error))?;
        let free = Mutex::new((0..slots).rev().collect());
        Ok(Self(Arc::new(Slab { memory, slot_len, slots, free, returned: Condvar::new() })))
    }

    /// A buffer, once one is free.
    pub fn take(&self) -> Lease {
        let mut free = lock(&self.0.free);
        loop {
            if let Some(slot) = free.pop() {
                return self.lease(slot);
            }
            free = wait(&self.0.returned, free, None).0;
        }
    }

    /// A buffer, or [`Kind::Timeout`] when none came back within `limit`.
    pub fn take_within(&self, limit: Duration) -> Result<Lease> {
        let deadline = Instant::now().checked_add(limit);
        let mut free = lock(&self.0.free);
        loop {
            if let Some(slot) = free.pop() {
                return Ok(self.lease(slot));
            }
            let in_time;
            (free, in_time) = wait(&self.0.returned, free, deadline);
            if !in_time {
                let all = format!("all {} buffers of the pool stayed in use", self.0.slots);
                return Err(Error::new(Kind::Timeout, format!("{all} for {limit:?}")));
            }
        }
    }

    /// A buffer if one is free now.
    pub fn try_take(&self) -> Option<Lease> {
        lock(&self.0.free).pop().map(|slot| self.lease(slot))
    }

    /// Bytes in one buffer.
    pub fn slot_len(&self) -> usize {
        self.0.slot_len
    }

    /// How many buffers there are.
    pub fn slots(&self) -> usize {
        self.0.slots
    }

    /// How many buffers are free now.
    pub fn free(&self) -> usize {
        lock(&self.0.free).len()
    }

    /// Addresses of the whole slab: what a kernel or a driver pins.
    pub(crate) fn addresses(&self) -> Range<usize> {
        let start = self.0.memory.start().as_ptr() as usize;
        start..start + self.0.slot_len * self.0.slots
    }

    fn lease(&self, slot: usize) -> Lease {
        // SAFETY: `slot < slots`, so the offset lies inside the slab.
        let start = unsafe { self.0.memory.start().add(slot * self.0.slot_len) };
        Lease { pool: self.clone(), slot, start, len: self.0.slot_len }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pool({} x {})", self.0.slots, Size(self.0.slot_len as u64))
    }
}

/// A buffer of a [`Pool`], returned when it is dropped.
///
/// It starts as long as a slot and can be made shorter; its bytes are whatever the last user left.
pub struct Lease {
    pool: Pool,
    slot: usize,
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: a lease is the only one of its slot, and slots are disjoint: it owns its bytes as a
// `Buffer` does. The slab outlives it through `pool`.
unsafe impl Send for Lease {}
// SAFETY: as above; shared references only read.
unsafe impl Sync for Lease {}

impl Lease {
    /// Where the bytes are, without borrowing them.
    pub(super) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// What it is a part of.
    pub(super) fn buffer(&self) -> &Buffer {
        &self.pool.0.memory
    }

    /// Makes the pages of the bytes, here and not in the middle of a transfer. The content stays.
    pub(crate) fn populate(&mut self) {
        let pool = self.pool.clone();
        // SAFETY: the lease is a part of the pool's buffer.
        unsafe { pool.0.memory.populate(self) };
    }

    /// Forgets all bytes from `len` on, until the buffer goes back.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        lock(&self.pool.0.free).push(self.slot);
        self.pool.0.returned.notify_one();
    }
}

impl Deref for Lease {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the slot is initialised memory of at least `len` bytes that only this lease can
        // reach, alive as long as `pool`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for Lease {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `&mut self` excludes everybody else. The slab as a
        // whole is never borrowed, so no other reference covers these bytes.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lease({} of {:?})", Size(self.len as u64), self.pool)
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_lease_comes_back_and_wakes_a_waiter() {
        let pool = Pool::new(1, 1).unwrap();
        let lease = pool.take();
        assert_eq!(lease.len(), ALIGNMENT);
        assert!(pool.try_take().is_none());
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| pool.take().len());
            drop(lease);
            assert_eq!(waiter.join().unwrap(), ALIGNMENT);
        });
        assert_eq!(pool.free(), 1);
    }

    #[test]
    fn waiting_for_a_buffer_ends_with_a_timeout_that_says_why() {
        let pool = Pool::new(4096, 2).unwrap();
        let _all = (pool.take(), pool.take());
        let error = pool.take_within(Duration::from_millis(5)).unwrap_err();
        assert_eq!(error.kind(), Kind::Timeout);
        assert_eq!(error.to_string(), "all 2 buffers of the pool stayed in use for 5ms");
    }

    #[test]
    fn leases_are_disjoint_aligned_and_full_length_again_after_truncation() {
        let pool = Pool::new(5000, 8).unwrap();
        let mut leases: Vec<_> = (0..8).map(|_| pool.take()).collect();
        for (value, lease) in leases.iter_mut().enumerate() {
            assert_eq!(lease.as_ptr() as usize % ALIGNMENT, 0);
            lease.fill(value as u8);
            lease.truncate(10);
        }
        for (value, lease) in leases.iter().enumerate() {
            assert!(lease.len() == 10 && lease.iter().all(|byte| *byte == value as u8));
        }
        drop(leases);
        assert_eq!(pool.take().len(), 8192);
    }

    #[test]
    fn impossible_pools_are_errors() {
        assert_eq!(Pool::new(0, 4).unwrap_err().kind(), Kind::InvalidInput);
        assert_eq!(Pool::new(4096, 0).unwrap_err().kind(), Kind::InvalidInput);
        assert_eq!(Pool::new(usize::MAX, 2).unwrap_err().kind(), Kind::OutOfMemory);
        assert_eq!(Pool::new(1 << 40, 1 << 20).unwrap_err().kind(), Kind::OutOfMemory);
    }

    #[test]
    fn a_pool_outlives_its_handle_while_leases_exist() {
        let mut lease = Pool::new(4096, 1).unwrap().take();
        lease.fill(7);
        assert!(lease.iter().all(|byte| *byte == 7));
    }
}

#[cfg(test)]
#[cfg(loom)]
mod loom_tests {
    use super::*;

    #[test]
    fn loom_no_slot_is_lost_or_shared_when_threads_take_and_return() {
        loom::model(|| {
            let pool = Pool::new(1, 1).unwrap();
            let other = pool.clone();
            let thread = loom::thread::spawn(move || {
                other.take()[0] += 1;
            });
            pool.take()[0] += 1;
            thread.join().unwrap();
            assert_eq!(pool.take()[0], 2);
            assert_eq!(pool.free(), 1);
        });
    }
}
