//! Mappings that are not in use, kept for the next user.
//!
//! ```text
//!   keep ──► kept ──► unmapped: oldest first when there are too many; all that was kept for long, or
//!             │                 everything when memory gets short, when the caretaker looks
//!             └─────► take
//! ```
//!
//! Fresh memory has been measured at a tenth of the speed of the disk that was to fill it. So large buffers
//! that nobody uses any more are kept here, still mapped and with their pages. At most [`KEPT_SHARE`] of the
//! memory is kept, and none of it for long: `caretaker` says why. It counts as kept in the ledger, and goes
//! when others have no room there.

use std::ptr::NonNull;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Instant;

use rustix::mm::munmap;

use super::caretaker::{Keeper, look_after, soon};
use super::headroom::Headroom;
use super::ledger::{Claim, Named, Priority};

/// One in so many bytes of the memory that this process may have is kept at most.
const KEPT_SHARE: u64 = 4;

/// How much longer than needed a mapping may be: a quarter of what is needed.
const SLACK_SHARE: usize = 4;

/// What all mappings take.
static KEPT: Named = Named::new("kept for the next load", Priority::Kept);

static CACHE: Mutex<MappingCache> = Mutex::new(MappingCache { kept: Vec::new(), bytes: 0 });

struct MappingCache {
    /// Oldest first.
    kept: Vec<Mapping>,
    bytes: usize,
}

/// A mapping that nobody uses.
struct Mapping {
    start: NonNull<u8>,
    len: usize,
    since: Instant,
    claim: Claim,
}

// SAFETY: a mapping in the mapping cache is reached by nobody else, and has no affinity to a thread.
unsafe impl Send for Mapping {}

/// A kept mapping of at least `len` bytes and not much more, with its length, and the claim for it. What is
/// in it is what its last user left.
pub(super) fn take(len: usize) -> Option<(NonNull<u8>, usize, Claim)> {
    let mapping = soon(&CACHE)?.take(len)?;
    Some((mapping.start, mapping.len, mapping.claim))
}

/// Keeps a mapping, if the ledger has room for it, and unmaps the oldest ones when there are too many.
///
/// # Safety
/// `start` is a private anonymous mapping of `len` bytes, whose owner gives it up.
pub(super) unsafe fn keep(start: NonNull<u8>, len: usize, mut claim: Claim) {
    LazyLock::force(&KEEPER);
    claim.move_to(&KEPT);
    let counted = claim.held() == len as u64;
    if !counted {
        claim = KEPT.nothing();
    }
    let has_room = counted || claim.try_grow(len as u64);
    let mapping = Mapping { start, len, since: Instant::now(), claim };
    let leaving = match soon(&CACHE).filter(|_| has_room) {
        // So does a child that was forked while its parent was in the mapping cache.
        None => vec![mapping],
        Some(mut cache) => {
            cache.put(mapping);
            cache.surplus(*KEPT_BYTES_MAX)
        }
    };
    leaving.into_iter().for_each(Mapping::unmap);
    if !look_after() {
        give_back(None);
    }
}

/// Unmaps what was kept since before then, or everything; whether something is still kept.
fn give_back(idle_since: Option<Instant>) -> bool {
    let Some(mut cache) = soon(&CACHE) else { return true };
    let leaving = cache.take_due(idle_since);
    let any = !cache.kept.is_empty();
    // Nobody waits while the kernel takes the pages.
    drop(cache);
    leaving.into_iter().for_each(Mapping::unmap);
    any
}

/// Made when something is first kept, and never dropped.
static KEEPER: LazyLock<Arc<dyn Keeper>> = LazyLock::new(|| {
    let keeper: Arc<dyn Keeper> = Arc::new(OfMappingCache);
    KEPT.enlist(Priority::Kept, Arc::downgrade(&keeper));
    keeper
});

struct OfMappingCache;

impl Keeper for OfMappingCache {
    fn give_back(&self, idle_since: Option<Instant>) -> bool {
        give_back(idle_since)
    }

    fn give_up(&self, bytes: u64) {
        let Some(mut cache) = soon(&CACHE) else { return };
        let stay = (cache.bytes as u64).saturating_sub(bytes);
        let leaving = cache.surplus(stay as usize);
        drop(cache);
        leaving.into_iter().for_each(Mapping::unmap);
    }

    fn idle(&self) -> u64 {
        soon(&CACHE).map_or(0, |cache| cache.bytes as u64)
    }
}

/// Bytes that may be kept.
static KEPT_BYTES_MAX: LazyLock<usize> =
    LazyLock::new(|| Headroom::now().map_or(0, |now| (now.usable() / KEPT_SHARE) as usize));

impl MappingCache {
    fn take(&mut self, len: usize) -> Option<Mapping> {
        let fits = |mapping: &Mapping| mapping.len >= len && mapping.len - len <= len / SLACK_SHARE;
        // The newest is the most likely to be in a processor's cache.
        let found = self.kept.iter().rposition(fits)?;
        Some(self.remove(found))
    }

    fn put(&mut self, mapping: Mapping) {
        self.bytes += mapping.len;
        self.kept.push(mapping);
    }

    fn remove(&mut self, index: usize) -> Mapping {
        let mapping = self.kept.remove(index);
        self.bytes -= mapping.len;
        mapping
    }

    /// Takes out the oldest ones that make up more than `bytes_max`.
    fn surplus(&mut self, bytes_max: usize) -> Vec<Mapping> {
        let mut leaving = Vec::new();
        while self.bytes > bytes_max {
            leaving.push(self.remove(0));
        }
        leaving
    }

    /// Takes out what was kept since before then, or everything.
    fn take_due(&mut self, idle_since: Option<Instant>) -> Vec<Mapping> {
        let is_due = |mapping: &Mapping| idle_since.is_none_or(|since| mapping.since < since);
        let due = self.kept.iter().take_while(|mapping| is_due(mapping)).count();
        let due: Vec<_> = self.kept.drain(..due).collect();
        self.bytes -= due.iter().map(|mapping| mapping.len).sum::<usize>();
        due
    }
}

impl Mapping {
    fn unmap(self) {
        // SAFETY: nobody uses it, and it is forgotten with this, before its claim is. Unmapping a whole
        // mapping can't fail.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use std::time::Duration;

    use super::*;

    fn mapping(pages: usize, since: Instant) -> Mapping {
        Mapping { start: NonNull::dangling(), len: pages << 12, since, claim: Claim::default() }
    }

    fn lengths(cache: &MappingCache) -> Vec<usize> {
        let pages: Vec<_> = cache.kept.iter().map(|mapping| mapping.len >> 12).collect();
        assert_eq!(cache.bytes, pages.iter().sum::<usize>() << 12);
        pages
    }

    fn cache_of(kept: impl IntoIterator<Item = Mapping>) -> MappingCache {
        let mut cache = MappingCache { kept: Vec::new(), bytes: 0 };
        kept.into_iter().for_each(|mapping| cache.put(mapping));
        cache
    }

    #[test]
    fn the_newest_that_fits_is_taken_and_the_oldest_leaves() {
        let now = Instant::now();
        let mut cache = cache_of([8, 9, 30, 10, 11].map(|pages| mapping(pages, now)));
        assert_eq!(cache.take(8 << 12).unwrap().len >> 12, 10);
        assert!(cache.take(31 << 12).is_none());
        assert_eq!(lengths(&cache), [8, 9, 30, 11]);
        assert_eq!(cache.surplus(42 << 12).len(), 2);
        assert_eq!(lengths(&cache), [30, 11]);
    }

    #[test]
    fn what_was_kept_for_long_leaves_and_everything_when_memory_is_short() {
        let began = Instant::now();
        let at = |seconds| began + Duration::from_secs(seconds);
        for (idle_since, due, stay) in
            [(Some(at(3)), vec![1, 2], vec![3, 4]), (None, vec![1, 2, 3, 4], vec![])]
        {
            let ages = [1, 2, 3, 9].into_iter().zip(1..);
            let mut cache = cache_of(ages.map(|(since, pages)| mapping(pages, at(since))));
            let taken = cache.take_due(idle_since);
            assert_eq!(taken.iter().map(|mapping| mapping.len >> 12).collect::<Vec<_>>(), due);
            assert_eq!(lengths(&cache), stay);
        }
    }
}
