//! A bounded set of equal buffers that come back by themselves.
//!
//! A pool is one slab cut into slots. Taking a slot gives a [`Lease`]; dropping the lease returns
//! the slot and wakes one waiter. All slots lie in one mapping made at the start, so that the
//! steady state allocates nothing and the kernel can pin the slab once (registered buffers).
//!
//! ```text
//!   leased ──drop──► free, with pages ──idle, unless pinned──► free, bare
//!      ▲                    │ take                                 │ take
//!      └────────────────────┴──────────────────────────────────────┘
//! ```
//!
//! A slot is *free* (it is in `free`) or *leased* (its number is in exactly one `Lease`). It moves between
//! the two under the lock, which is what makes two leases of one slot impossible. A free one keeps its
//! pages for the next user until the caretaker gives them back to the system.
//!
//! Slots with pages count in the ledger. While that has no room for another one, a pool is as if it had no
//! more slots: its users wait for one another. So it is beyond a share of the limit, which leaves room for
//! others. The first [`least`](Pool::of) are set aside when the pool is made, so that somebody always goes on.

use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::buffer::{ALIGNMENT, Buffer};
#[cfg(not(loom))]
use super::caretaker;
use super::ledger::{self, Claim, Named, Priority};
use crate::error::{Error, Kind, Result};
use crate::interrupt;
use crate::size::Size;
use crate::sync::{Arc, Condvar, Mutex, lock, now, wait};

/// A bounded set of equal buffers; clones share it.
#[derive(Clone)]
pub struct Pool(Arc<Slab>);

struct Slab {
    memory: Buffer,
    slot_len: usize,
    slots: usize,
    free: Mutex<Idle>,
    returned: Condvar,
    /// The kernel or a driver knows where the pages are.
    pinned: AtomicBool,
}

/// Slots that nobody uses.
struct Idle {
    /// In the order in which they came back; the bare ones first.
    slots: Vec<Free>,
    /// For all slots with pages, leased ones too.
    claim: Claim,
}

/// A slot that nobody uses.
struct Free {
    slot: usize,
    /// `None`: it has no pages.
    since: Option<Instant>,
}

/// Of pools that say no other.
static BUFFERS: Named = Named::new("other buffers", Priority::Needed);

/// Where memory has a limit, a pool takes one in so many bytes of it, beside those that are set aside.
const LIMIT_SHARE: u64 = 8;

/// Slots whose pages are given back at once: somebody may wait for one of them.
#[cfg(not(loom))]
const GIVEN_AT_ONCE: usize = 16;

impl Pool {
    /// A pool of `slots` buffers of at least `slot_len` bytes each (rounded up to [`ALIGNMENT`]).
    pub fn new(slot_len: usize, slots: usize) -> Result<Self> {
        Self::of(&BUFFERS, 1, (slot_len, slots))
    }

    /// The same of an account, in which the bytes of the first `least` slots are set aside.
    pub fn of(account: &Named, least: usize, (slot_len, slots): (usize, usize)) -> Result<Self> {
        let aside = |slot_len: usize| account.reserve((slot_len * least.min(slots)) as u64);
        let pool = Self::over(Buffer::zeroed, aside, (slot_len, slots))?;
        #[cfg(not(loom))]
        {
            let keeper = Arc::downgrade(&pool.0);
            account.enlist(Priority::Kept, keeper);
        }
        Ok(pool)
    }

    /// A pool of memory that this process has used before, if there is some: for somebody who writes every
    /// byte before reading it, and not for long. It has fewer slots where the account has no room for
    /// all, at least one: that is waited for.
    pub(crate) fn recycled(
        account: &Named,
        patience: Duration,
        (slot_len, mut slots): (usize, usize),
    ) -> Result<Self> {
        let share = ledger::limit().map(|limit| limit / LIMIT_SHARE / slot_len.max(1) as u64);
        slots = slots.min(share.map_or(usize::MAX, |share| share.max(1) as usize));
        loop {
            let is_least = slots <= 1;
            let make = |len: usize| {
                if is_least {
                    Buffer::recycled_within(account, len, patience)
                } else {
                    Buffer::recycled_by(account, len)
                }
            };
            match Self::over(make, |_| Ok(Claim::default()), (slot_len, slots)) {
                Err(error) if error.kind() == Kind::OutOfMemory && !is_least => slots /= 2,
                pool => return pool,
            }
        }
    }

    fn over(
        make: impl FnOnce(usize) -> Result<Buffer>,
        claim: impl FnOnce(usize) -> Result<Claim>,
        (slot_len, slots): (usize, usize),
    ) -> Result<Self> {
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
        let free = (0..slots).rev().map(|slot| Free { slot, since: None }).collect();
        let (free, returned) = (Idle { slots: free, claim: claim(slot_len)? }, Condvar::new());
        let (free, pinned) = (Mutex::new(free), AtomicBool::new(false));
        Ok(Self(Arc::new(Slab { memory, slot_len, slots, free, returned, pinned })))
    }

    /// A buffer, once one is free; an error if the caller is [interrupted](crate::interrupt) before.
    pub fn take(&self) -> Result<Lease> {
        self.take_of(self.0.slots)
    }

    /// A buffer, or [`Kind::Timeout`] when none came back within `limit`.
    pub fn take_within(&self, limit: Duration) -> Result<Lease> {
        let deadline = Instant::now().checked_add(limit);
        let mut free = lock(&self.0.free);
        loop {
            if let Some(free) = free.pop(self.0.slot_len) {
                return Ok(self.lease(&free));
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
        lock(&self.0.free).pop(self.0.slot_len).map(|free| self.lease(&free))
    }

    /// A buffer if one is free now and fewer than `most` are in use.
    pub(crate) fn try_take_of(&self, most: usize) -> Option<Lease> {
        let mut free = lock(&self.0.free);
        let in_use = self.0.slots - free.slots.len();
        let free = if in_use < most { free.pop(self.0.slot_len) } else { None };
        free.map(|free| self.lease(&free))
    }

    /// The same, once it is so: somebody else has the others, and gives them back.
    pub(crate) fn take_of(&self, most: usize) -> Result<Lease> {
        let mut free = lock(&self.0.free);
        loop {
            if self.0.slots - free.slots.len() < most.max(1)
                && let Some(free) = free.pop(self.0.slot_len)
            {
                return Ok(self.lease(&free));
            }
            free = interrupt::wait(&self.0.free, &self.0.returned, free)?;
        }
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
        lock(&self.0.free).slots.len()
    }

    /// Addresses of the whole slab, for a kernel or a driver that pins it: from now on the pages stay.
    /// `None` if the ledger has no room for all of them.
    pub(crate) fn pin(&self) -> Option<Range<usize>> {
        // Whoever is giving pages back has the lock; the next one sees that they are pinned.
        let mut free = lock(&self.0.free);
        let bare = free.slots.iter().filter(|free| free.since.is_none()).count();
        if !free.claim.try_grow((bare * self.0.slot_len) as u64) {
            return None;
        }
        self.0.pinned.store(true, Ordering::SeqCst);
        let since = Some(now());
        free.slots
            .iter_mut()
            .filter(|free| free.since.is_none())
            .for_each(|free| free.since = since);
        let start = self.0.memory.start().as_ptr() as usize;
        Some(start..start + self.0.slot_len * self.0.slots)
    }

    fn lease(&self, &Free { slot, .. }: &Free) -> Lease {
        Lease { pool: self.clone(), slot, start: self.0.start(slot), len: self.0.slot_len }
    }
}

impl Idle {
    /// Takes a slot out: one with pages, or a bare one if the ledger has room for it.
    fn pop(&mut self, slot_len: usize) -> Option<Free> {
        let is_bare = self.slots.last()?.since.is_none();
        if is_bare && !self.claim.try_grow_to_share(slot_len as u64, LIMIT_SHARE) {
            return None;
        }
        self.slots.pop()
    }
}

impl Slab {
    fn start(&self, slot: usize) -> NonNull<u8> {
        // SAFETY: `slot < slots`, so the offset lies inside the slab.
        unsafe { self.memory.start().add(slot * self.slot_len) }
    }
}

#[cfg(not(loom))]
impl caretaker::Keeper for Slab {
    fn give_back(&self, idle_since: Option<Instant>) -> bool {
        loop {
            // Under the lock, so that nobody finds the pool empty for it; who uses it keeps its pages.
            let Ok(mut free) = self.free.try_lock() else { return true };
            if self.pinned.load(Ordering::SeqCst) {
                return false;
            }
            if self.make_bare(&mut free, GIVEN_AT_ONCE, idle_since) == 0 {
                return free.slots.last().is_some_and(|free| free.since.is_some());
            }
        }
    }

    fn give_up(&self, bytes: u64) {
        let mut left = bytes.div_ceil(self.slot_len as u64) as usize;
        while left > 0 {
            let Ok(mut free) = self.free.try_lock() else { return };
            let most = left.min(GIVEN_AT_ONCE).min(self.idle_slots(&free));
            if most == 0 {
                return;
            }
            left -= self.make_bare(&mut free, most, None);
        }
    }

    fn idle(&self) -> u64 {
        self.free.try_lock().map_or(0, |free| (self.idle_slots(&free) * self.slot_len) as u64)
    }
}

#[cfg(not(loom))]
impl Slab {
    /// Slots whose pages others could have: those that are set aside count whether they have some or not.
    fn idle_slots(&self, free: &Idle) -> usize {
        if self.pinned.load(Ordering::SeqCst) {
            return 0;
        }
        let idle = free.slots.iter().filter(|free| free.since.is_some()).count();
        idle.min(free.claim.above_floor() as usize / self.slot_len)
    }

    /// Gives back the pages of at most so many slots, those that are idle for longest; how many there were.
    fn make_bare(&self, free: &mut Idle, most: usize, idle_since: Option<Instant>) -> usize {
        let bare = free.slots.partition_point(|free| free.since.is_none());
        let is_due = |free: &&mut Free| idle_since.is_none_or(|idle| free.since < Some(idle));
        let due = free.slots[bare..].iter_mut().take(most).take_while(is_due);
        let mut slots: Vec<_> = due.map(|free| (free.since.take(), free.slot).1).collect();
        slots.sort_unstable();
        for run in slots.chunk_by(|one, next| one + 1 == *next) {
            // SAFETY: the slots of the run lie side by side in the slab; they are free, and nobody takes
            // them while the lock is held. Whoever does so later expects no content.
            unsafe { self.memory.give_back(self.start(run[0]), run.len() * self.slot_len) };
        }
        free.claim.shrink((slots.len() * self.slot_len) as u64);
        slots.len()
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pool({} x {})", self.0.slots, Size(self.0.slot_len as u64))
    }
}

/// A buffer of a [`Pool`], returned when it is dropped.
///
/// It starts as long as a slot and can be made shorter; its bytes are what the last user left, or zeros.
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
        let since = Some(now());
        lock(&self.pool.0.free).slots.push(Free { slot: self.slot, since });
        self.pool.0.returned.notify_one();
        #[cfg(not(loom))]
        caretaker::look_after();
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
    use crate::memory::caretaker::Keeper;

    #[test]
    fn a_dropped_lease_comes_back_and_wakes_a_waiter() {
        let pool = Pool::new(1, 1).unwrap();
        let lease = pool.take().unwrap();
        assert_eq!(lease.len(), ALIGNMENT);
        assert!(pool.try_take().is_none());
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| pool.take().unwrap().len());
            drop(lease);
            assert_eq!(waiter.join().unwrap(), ALIGNMENT);
        });
        assert_eq!(pool.free(), 1);
    }

    #[test]
    fn waiting_for_a_buffer_ends_with_a_timeout_that_says_why() {
        let pool = Pool::new(4096, 2).unwrap();
        let _all = (pool.take().unwrap(), pool.take().unwrap());
        let error = pool.take_within(Duration::from_millis(5)).unwrap_err();
        assert_eq!(error.kind(), Kind::Timeout);
        assert_eq!(error.to_string(), "all 2 buffers of the pool stayed in use for 5ms");
    }

    #[test]
    fn leases_are_disjoint_aligned_and_full_length_again_after_truncation() {
        let pool = Pool::new(5000, 8).unwrap();
        let mut leases: Vec<_> = (0..8).map(|_| pool.take().unwrap()).collect();
        for (value, lease) in leases.iter_mut().enumerate() {
            assert_eq!(lease.as_ptr() as usize % ALIGNMENT, 0);
            lease.fill(value as u8);
            lease.truncate(10);
        }
        for (value, lease) in leases.iter().enumerate() {
            assert!(lease.len() == 10 && lease.iter().all(|byte| *byte == value as u8));
        }
        drop(leases);
        assert_eq!(pool.take().unwrap().len(), 8192);
    }

    #[test]
    fn impossible_pools_are_errors() {
        assert_eq!(Pool::new(0, 4).unwrap_err().kind(), Kind::InvalidInput);
        assert_eq!(Pool::new(4096, 0).unwrap_err().kind(), Kind::InvalidInput);
        assert_eq!(Pool::new(usize::MAX, 2).unwrap_err().kind(), Kind::OutOfMemory);
        assert_eq!(Pool::new(1 << 40, 1 << 20).unwrap_err().kind(), Kind::OutOfMemory);
    }

    /// How many pages of a slot are there.
    fn pages(pool: &Pool, slot: usize) -> usize {
        let (start, pages) = (pool.0.start(slot), pool.slot_len() / ALIGNMENT);
        (0..pages)
            .filter(|page| {
                // SAFETY: a page of the slab.
                let page = unsafe { start.add(page * ALIGNMENT) };
                let mut found = 0;
                // SAFETY: the kernel is asked only whether the page is there, and writes one byte.
                let failed =
                    unsafe { libc::mincore(page.as_ptr().cast(), ALIGNMENT, &raw mut found) };
                failed == 0 && found & 1 == 1
            })
            .count()
    }

    const SLOT_PAGES: usize = 16;

    /// A pool of which every slot was used, and three are still.
    fn used_pool() -> (Pool, Vec<Lease>) {
        let pool = Pool::new(SLOT_PAGES * ALIGNMENT, 40).unwrap();
        let mut leases: Vec<_> = (0..40).map(|_| pool.take().unwrap()).collect();
        for lease in &mut leases {
            lease.fill(5);
        }
        leases.retain(|lease| [3, 4, 39].contains(&lease.slot));
        (pool, leases)
    }

    #[test]
    fn idle_buffers_give_their_pages_back_and_those_in_use_keep_every_byte() {
        let before = Instant::now();
        let (pool, leases) = used_pool();
        assert!(pool.0.give_back(Some(before)), "all were used since");
        assert!((0..40).all(|slot| pages(&pool, slot) == SLOT_PAGES));
        assert!(!pool.0.give_back(None), "nothing is left to give back");
        for slot in 0..40 {
            let in_use = leases.iter().any(|lease| lease.slot == slot);
            assert_eq!(pages(&pool, slot), if in_use { SLOT_PAGES } else { 0 }, "slot {slot}");
        }
        assert!(leases.iter().all(|lease| lease.iter().all(|byte| *byte == 5)));
        assert_eq!(pool.free(), 37);
        drop(leases);
        assert!(pool.0.give_back(Some(before)));
        let mut leases: Vec<_> = (0..40).map(|_| pool.take().unwrap()).collect();
        for lease in &mut leases {
            lease.fill(6);
        }
        assert!(leases.iter().all(|lease| lease.iter().all(|byte| *byte == 6)));
    }

    #[test]
    fn a_pinned_pool_keeps_its_pages() {
        let (pool, _leases) = used_pool();
        assert_eq!(pool.pin().unwrap().len(), 40 * SLOT_PAGES * ALIGNMENT);
        assert!(!pool.0.give_back(None));
        assert!((0..40).all(|slot| pages(&pool, slot) == SLOT_PAGES));
    }

    #[test]
    fn whoever_wants_few_in_use_waits_until_there_are_few() {
        let pool = Pool::new(ALIGNMENT, 4).unwrap();
        let mut leases: Vec<_> = (0..3).map(|_| pool.try_take_of(3).unwrap()).collect();
        assert!(pool.try_take_of(3).is_none());
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| drop(pool.take_of(2).unwrap()));
            leases.truncate(1);
            waiter.join().unwrap();
        });
        assert_eq!(pool.free(), 3);
        drop(leases);
        drop(pool.take_of(0).unwrap());
    }

    #[test]
    fn a_pool_outlives_its_handle_while_leases_exist() {
        let mut lease = Pool::new(4096, 1).unwrap().take().unwrap();
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
                other.take().unwrap()[0] += 1;
            });
            pool.take().unwrap()[0] += 1;
            thread.join().unwrap();
            assert_eq!(pool.take().unwrap()[0], 2);
            assert_eq!(pool.free(), 1);
        });
    }
}
