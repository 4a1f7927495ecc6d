//! Gives memory that is kept for speed back to the system.
//!
//! ```text
//!   mapping cache: mappings that nobody uses         ┐   idle for 5 s,
//!   spare blocks: blocks that nobody uses           ┼─► or memory gets short ───────────────► the system
//!   pools: buffers that nobody uses just now ┤   or the ledger has no room
//!   caches                                   ┴─► the ledger has no room otherwise
//! ```
//!
//! Fresh memory is expensive: the kernel clears every page, and a virtual machine may first have to
//! get it back from its host. So memory that was used is kept for the next user. But a process that
//! keeps what it does not use is killed where it runs with little, a container or a small machine. So
//! nothing is kept for long, and nothing as soon as memory gets short.
//!
//! A thread, the *caretaker*, looks as long as something is kept. It can't see what other libraries are
//! about to take: so memory counts as short while there is still more than can be taken between two
//! looks. Whoever takes much of it here looks first ([`make_room`]).

use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

use super::headroom::Headroom;
use super::ledger::give_back;
use super::process::process_id;

/// How long memory is kept that nobody uses.
const WARM: Duration = Duration::from_secs(5);

/// How often the caretaker looks.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Memory is short when less is available than can be taken between two looks: this much, or one in
/// so many bytes of a large machine.
const AMPLE_BYTES: u64 = 1 << 30;
const AMPLE_SHARE: u64 = 8;

/// Who takes less need not look first: it takes as long as to make so many bytes.
const LOOKED_BYTES_MIN: usize = 4 << 20;

/// How long to wait for a lock that somebody has. Nobody has one for long, unless the machine has more
/// threads than processors; a child that was forked meanwhile finds it taken for ever.
const PATIENCE: Duration = Duration::from_millis(1);

/// Somebody who keeps memory that others may need more.
pub(crate) trait Keeper: Send + Sync {
    /// Gives back what nobody has used since then, or all that nobody uses; whether some is still kept.
    fn give_back(&self, idle_since: Option<Instant>) -> bool;

    /// Gives back at least so many bytes, or all it can. Whoever asks may hold locks of its own, so one
    /// that somebody has is not waited for.
    fn give_up(&self, bytes: u64);

    /// Bytes that it would give back.
    fn idle(&self) -> u64;
}

/// The process whose caretaker is there; 0 without one. A forked child has its parent's number here, but
/// no thread.
static CARETAKER: AtomicU32 = AtomicU32::new(0);

/// Called by a keeper after it has kept something; `false` if nobody will look after it.
pub(super) fn look_after() -> bool {
    let here = process_id();
    let there = CARETAKER.load(SeqCst);
    if there == here || CARETAKER.compare_exchange(there, here, SeqCst, SeqCst).is_err() {
        // Or another thread is just starting it.
        return true;
    }
    let started = thread::Builder::new().name("ferry-caretaker".into()).spawn(look);
    if started.is_err() {
        CARETAKER.store(0, SeqCst);
    }
    started.is_ok()
}

/// What the caretaker does, as long as something is kept.
fn look() {
    loop {
        thread::sleep(LOOK_EVERY);
        let short = Headroom::now().is_none_or(|now| is_short(&now, 0));
        let idle_since = if short { None } else { Instant::now().checked_sub(WARM) };
        if give_back(idle_since) {
            continue;
        }
        // Who keeps something from now on starts another one; who did so just before is seen here.
        CARETAKER.store(0, SeqCst);
        let starts = || CARETAKER.compare_exchange(0, process_id(), SeqCst, SeqCst).is_ok();
        if !(give_back(Instant::now().checked_sub(WARM)) && starts()) {
            return;
        }
    }
}

/// Before so much fresh memory is made: nothing is kept if memory could get short by it.
pub(super) fn make_room(bytes: usize) {
    let may_keep = CARETAKER.load(SeqCst) == process_id();
    if may_keep && bytes >= LOOKED_BYTES_MIN && is_short_of(bytes as u64) {
        give_back(None);
    }
}

/// Whether memory would be short if so much more were taken.
pub(crate) fn is_short_of(bytes: u64) -> bool {
    Headroom::now().is_none_or(|now| is_short(&now, bytes))
}

fn is_short(now: &Headroom, wanted: u64) -> bool {
    now.available < AMPLE_BYTES.max(now.usable() / AMPLE_SHARE).saturating_add(wanted)
}

/// The lock, unless somebody stays in it: then the caller does without.
pub(crate) fn soon<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    let mut waiting_since = None;
    loop {
        match mutex.try_lock() {
            Ok(guard) => return Some(guard),
            Err(TryLockError::Poisoned(guard)) => return Some(guard.into_inner()),
            Err(TryLockError::WouldBlock) => thread::yield_now(),
        }
        if waiting_since.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
            return None;
        }
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use crate::memory::{Buffer, Pool};

    #[test]
    fn what_is_left_to_the_process_says_whether_memory_is_short() {
        let short = |total: u64, limit: Option<u64>, available: u64| {
            is_short(&Headroom { total: total << 30, limit, available: available << 20 }, 0)
        };
        assert!(short(64, None, 8191) && !short(64, None, 8192), "an eighth of the machine");
        assert!(short(64, Some(4 << 30), 1023), "too little for a small container");
        assert!(!short(64, Some(4 << 30), 1024), "enough for it");
    }

    #[test]
    fn what_somebody_is_about_to_take_counts_as_taken() {
        let now = Headroom { total: 64 << 30, limit: Some(3 << 30), available: 2 << 30 };
        assert!(!is_short(&now, 1 << 30));
        assert!(is_short(&now, (1 << 30) + 1) && is_short(&now, u64::MAX));
    }

    /// Bytes of this process in memory.
    fn resident() -> usize {
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
        statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() << 12
    }

    #[test]
    fn memory_that_is_kept_goes_back_though_nobody_asks_for_it() {
        const BYTES: usize = 64 << 20;
        let pool = Pool::new(1 << 20, BYTES >> 20).unwrap();
        let leases: Vec<_> = std::iter::from_fn(|| pool.try_take()).collect();
        for mut lease in leases {
            lease.fill(1);
        }
        Buffer::recycled(BYTES).unwrap().fill(1);
        let kept = Instant::now();
        let before = resident();
        while resident() + 2 * BYTES > before + (8 << 20) {
            assert!(kept.elapsed() < 20 * WARM, "{} of {before} bytes are kept", resident());
            thread::sleep(LOOK_EVERY);
        }
        while CARETAKER.load(SeqCst) != 0 {
            assert!(kept.elapsed() < 20 * WARM, "the caretaker stays though nothing is kept");
            thread::sleep(LOOK_EVERY);
        }
        drop(pool);
    }
}
