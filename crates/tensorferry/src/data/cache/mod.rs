//! Samples kept near.
//!
//! ```text
//!   find ─► memory ─► SSD ─► (backend)
//!   keep ─► memory, if its tier admits it ─► what had to go, or was refused ─► SSD, likewise
//! ```
//!
//! Which samples are kept is decided by [`plan::data::eviction`](crate::plan::data::eviction), from the orders of
//! this epoch and the next; this module holds the bytes and does what the tier says. A sample is in at most one
//! tier of a node: one that comes from the SSD to memory leaves the SSD. Both tiers are bounded in bytes; the
//! SSD's is one file without a name, so that nothing is left behind however the process ends.
//!
//! What is in memory counts in the process's ledger, and goes when others need it more: the cache shrinks,
//! and has its whole capacity again with the next epoch, as far as there is room.
//!
//! A tier that fails is no reason to fail: a sample that can't be read back, or does not match its
//! checksum, is forgotten, counted, and loaded from where it came.

mod disk;

pub use disk::Config as DiskConfig;

use std::collections::HashMap;
use std::sync::Arc;
#[cfg(not(loom))]
use std::time::Instant;

use self::disk::Disk;
use super::sample::Raw;
use crate::error::Result;
use crate::memory::{Claim, Named, Priority};
#[cfg(not(loom))]
use crate::memory::{Keeper, soon};
use crate::plan::data::eviction::{Copies, Future, Moment, Policy, Tier, Use};
use crate::sync::{Mutex, lock};

/// What samples in memory take, of all caches.
static ACCOUNT: Named = Named::new("data cache", Priority::Fast);

/// A cache that gives way shrinks by at least one in so many of its bytes: the next claim finds room.
#[cfg(not(loom))]
const GIVEN_SHARE: u64 = 32;

/// How much is kept, and what.
#[derive(Debug, Clone)]
pub struct Config {
    /// Who goes first.
    pub policy: Policy,
    /// Bytes in memory.
    pub memory_bytes: u64,
    /// The same on an SSD.
    pub disk: Option<DiskConfig>,
    /// Whether samples are kept as decoded, rather than as stored.
    pub decoded: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self { policy: Policy::Belady, memory_bytes: 0, disk: None, decoded: false }
    }
}

/// Where a sample was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// In memory.
    Memory,
    /// On the SSD.
    Disk,
    /// Where it is stored for good.
    Backend,
}

/// The samples that a node keeps; see the [module](self).
pub struct Cache {
    memory: Arc<Mutex<Memory>>,
    disk: Option<Mutex<Disk>>,
    pub(super) decoded: bool,
    is_off: bool,
    len: u64,
}

struct Memory {
    tier: Tier,
    held: HashMap<u32, Raw>,
    future: Future,
    /// What it may take in an epoch in which nobody needs it more.
    capacity: u64,
    claim: Claim,
}

impl Cache {
    /// An empty one for a source of `len` samples.
    pub fn new(len: u64, config: &Config) -> Result<Self> {
        let capacity = config.memory_bytes;
        ACCOUNT.check(capacity)?;
        let (tier, claim) = (Tier::new(config.policy, capacity), ACCOUNT.nothing());
        let (held, future) = (HashMap::new(), Future::new(len)?);
        let memory = Arc::new(Mutex::new(Memory { tier, held, future, capacity, claim }));
        #[cfg(not(loom))]
        {
            let keeper = Arc::downgrade(&memory);
            ACCOUNT.enlist(Priority::Fast, keeper);
        }
        let disk = config.disk.as_ref();
        let disk = disk.map(|disk| Disk::new(disk, config.policy));
        Ok(Self {
            memory,
            disk: disk.transpose()?.map(Mutex::new),
            decoded: config.decoded,
            is_off: config.memory_bytes == 0 && config.disk.is_none(),
            len,
        })
    }

    /// Whether anything could ever be kept.
    pub fn is_off(&self) -> bool {
        self.is_off
    }

    /// Says what comes: the orders of `epoch` and of those after it.
    pub fn foresee(&self, epoch: u32, orders: &[Vec<u32>]) -> Result<()> {
        let mut memory = lock(&self.memory);
        let capacity = memory.capacity;
        memory.tier.limit_to(capacity, &mut Vec::new());
        memory.future = Future::new(self.len)?;
        memory.future.forget_before(epoch);
        orders.iter().try_for_each(|order| memory.future.push_epoch(order))
    }

    /// The sample, from the nearest tier that has it.
    pub fn find(&self, id: u32, now: Moment) -> Option<(Raw, Origin)> {
        self.find_in_memory(id, now)
            .map(|raw| (raw, Origin::Memory))
            .or_else(|| self.find_on_disk(id, now).map(|raw| (raw, Origin::Disk)))
    }

    /// A sample was used and may be kept.
    pub fn keep(&self, id: u32, raw: &Raw, now: Moment) {
        let use_ = self.use_of(id, now);
        let mut leaving = Vec::new();
        if self.admit(id, raw.bytes(), &use_, &mut leaving) {
            self.hold(id, raw);
        } else {
            leaving.push((id, raw.clone()));
        }
        for (id, raw) in leaving {
            self.keep_on_disk(id, &raw, now);
        }
    }

    /// Puts a sample that memory admitted there. One that can't be read is not kept; whoever uses it
    /// will be told why.
    fn hold(&self, id: u32, raw: &Raw) {
        // Read outside of the lock: it may be large and still in its file.
        let read = raw.in_memory();
        let mut memory = lock(&self.memory);
        match read {
            Ok(raw) if memory.tier.contains(id) => {
                memory.held.insert(id, raw);
            }
            Ok(_) => return,
            Err(_) => {
                memory.tier.remove(id);
                memory.settle();
                return;
            }
        }
        drop(memory);
        if let Some(disk) = &self.disk {
            lock(disk).remove(id);
        }
    }

    fn keep_on_disk(&self, id: u32, raw: &Raw, now: Moment) {
        let Some(disk) = &self.disk else { return };
        let use_ = self.use_of(id, now);
        let Some(writing) = lock(disk).reserve(id, raw.bytes(), &use_) else { return };
        // Written without the lock: other threads find theirs meanwhile.
        let written = writing.write(raw);
        lock(disk).publish(id, written);
    }

    fn find_in_memory(&self, id: u32, now: Moment) -> Option<Raw> {
        let raw = lock(&self.memory).held.get(&id).cloned()?;
        let use_ = self.use_of(id, now);
        let mut memory = lock(&self.memory);
        if !memory.tier.touch(id, &use_) {
            memory.held.remove(&id);
            memory.settle();
        }
        Some(raw)
    }

    fn find_on_disk(&self, id: u32, now: Moment) -> Option<Raw> {
        let disk = self.disk.as_ref()?;
        let reading = lock(disk).find(id)?;
        // Read without the lock: other threads find theirs meanwhile.
        let raw = reading.read();
        let use_ = self.use_of(id, now);
        lock(disk).found(id, raw.is_some(), &use_);
        raw
    }

    fn admit(&self, id: u32, bytes: u64, use_: &Use, leaving: &mut Vec<(u32, Raw)>) -> bool {
        let mut memory = lock(&self.memory);
        let mut evicted = Vec::new();
        memory.claim_for(id, bytes);
        let admitted = memory.tier.admit(id, bytes, use_, &mut evicted);
        leaving.extend(evicted.into_iter().filter_map(|id| Some((id, memory.held.remove(&id)?))));
        memory.settle();
        admitted
    }

    fn use_of(&self, id: u32, now: Moment) -> Use {
        let memory = lock(&self.memory);
        let next = if memory.future.is_unknown() {
            // A sampler says nothing beforehand; most use every sample in every epoch.
            Some(Moment { epoch: now.epoch + 1, ..now })
        } else {
            memory.future.next_use(id, now)
        };
        Use { now, next, uses: memory.future.uses(id), copies: Copies::Private }
    }

    /// Bytes in memory, and on the SSD.
    pub fn used(&self) -> (u64, u64) {
        let disk = self.disk.as_ref().map_or(0, |disk| lock(disk).used());
        (lock(&self.memory).tier.used(), disk)
    }
}

impl Memory {
    /// Has room for a sample counted. If there is none, the cache keeps to what it has.
    fn claim_for(&mut self, id: u32, bytes: u64) {
        let wanted = self.tier.used().saturating_add(bytes).min(self.tier.capacity());
        let more = wanted.saturating_sub(self.claim.held());
        if more > 0 && !self.tier.contains(id) && !self.claim.try_grow(more) {
            self.tier.limit_to(self.tier.used(), &mut Vec::new());
        }
    }

    /// Counts what the tier holds.
    fn settle(&mut self) {
        self.claim.shrink(self.claim.held().saturating_sub(self.tier.used()));
    }
}

/// The cache gives way to those who need memory more. What goes is not written to the SSD: who asks waits.
#[cfg(not(loom))]
impl Keeper for Mutex<Memory> {
    fn give_back(&self, _: Option<Instant>) -> bool {
        // It is used.
        true
    }

    fn give_up(&self, bytes: u64) {
        let Some(mut memory) = soon(self) else { return };
        let used = memory.tier.used();
        let stay = used.saturating_sub(bytes.max(used / GIVEN_SHARE));
        let mut evicted = Vec::new();
        memory.tier.limit_to(stay, &mut evicted);
        let leaving: Vec<_> = evicted.iter().map(|id| memory.held.remove(id)).collect();
        // The bytes go before they count no more.
        drop(leaving);
        memory.settle();
    }

    fn idle(&self) -> u64 {
        soon(self).map_or(0, |memory| memory.tier.used())
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use std::path::Path;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{OnceLock, Weak};

    use super::*;
    use crate::io::{self, Borrowed, Choice, Engine, Facts, File, Open, Pending, Priority, Shared};
    use crate::memory::Block;

    /// An engine that nobody calls while a lock of the cache is held.
    struct Watched {
        engine: Arc<dyn Engine>,
        cache: OnceLock<Weak<Cache>>,
        transfers: AtomicUsize,
    }

    impl Watched {
        fn look(&self) {
            let cache = self.cache.get().and_then(Weak::upgrade).unwrap();
            let disk = cache.disk.as_ref().unwrap().try_lock();
            assert!(disk.is_ok(), "the tier is locked during a transfer");
            assert!(cache.memory.try_lock().is_ok(), "memory is locked during a transfer");
            self.transfers.fetch_add(1, Ordering::Relaxed);
        }
    }

    impl Engine for Watched {
        fn open(&self, path: &Path, how: Open) -> Result<File> {
            self.engine.open(path, how)
        }

        fn read(&self, file: &File, at: u64, into: Block, priority: Priority) -> Pending<Block> {
            self.look();
            self.engine.read(file, at, into, priority)
        }

        fn write(&self, file: &File, at: u64, from: Block, priority: Priority) -> Pending<Block> {
            self.look();
            self.engine.write(file, at, from, priority)
        }

        fn move_inline(
            &self,
            file: &File,
            offset: u64,
            memory: Borrowed<'_, '_>,
            priority: Priority,
        ) -> Result<usize> {
            self.look();
            self.engine.move_inline(file, offset, memory, priority)
        }

        fn sync(&self, file: &File, priority: Priority) -> Pending<()> {
            self.engine.sync(file, priority)
        }

        fn stop(&self) {
            self.engine.stop();
        }

        fn facts(&self) -> &Facts {
            self.engine.facts()
        }
    }

    #[test]
    fn no_lock_is_held_while_the_ssd_is_written_or_read() {
        let engine = io::open(&io::Config::of(Choice::Memory)).unwrap();
        let (cache, transfers) = (OnceLock::new(), AtomicUsize::new(0));
        let watched = Arc::new(Watched { engine, cache, transfers });
        let config = DiskConfig {
            engine: Shared::only(Arc::clone(&watched) as _),
            directory: "cache".into(),
            bytes: 1 << 20,
            leave_bytes: 0,
        };
        let disk = Disk::new(&config, Policy::Belady).unwrap();
        let plain = Cache::new(2, &Config::default()).unwrap();
        let cache = Arc::new(Cache { disk: Some(Mutex::new(disk)), ..plain });
        watched.cache.set(Arc::downgrade(&cache)).unwrap();

        let moment = |epoch| Moment { epoch, position: 0 };
        cache.keep(1, &Raw::single(vec![7; 100]), moment(0));
        assert_eq!(watched.transfers.load(Ordering::Relaxed), 1);
        let (found, origin) = cache.find(1, moment(1)).unwrap();
        assert_eq!((found.as_memory().unwrap(), origin), (&[7; 100][..], Origin::Disk));
        assert_eq!(watched.transfers.load(Ordering::Relaxed), 2);
    }
}
