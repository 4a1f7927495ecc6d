//! Large blocks that are used again and again: freed by one, taken by the next who wants as many
//! bytes.
//!
//! A step of training takes and frees the same sizes as the step before. What is freed to the
//! system is made again page by page, which takes longer than to compute on it; what an allocator
//! keeps for itself it may be unable to use again, and the process stays large. So blocks have
//! sizes of few kinds, and one that was freed is taken by the next who asks for its kind.
//!
//! ```text
//!             take                       give
//!   bare ────────────► in use ◄────────────────────► spare
//!     ▲   (no spare one)                   take         │
//!     └──────────────── its pages are given back ◄──────┘  the longest spare first: when more than
//!                                                           the limit are spare, when nobody took it
//!                                                           for some seconds, or memory gets short
//! ```
//!
//! *Bounds.* Spare bytes are at most the sum of all [`Share`]s; without one, nothing is kept. They count in
//! the ledger, and nothing is kept that it has no room for. The `caretaker` says how long something is
//! kept, and looks after it. Addresses come from one range that is reserved once, so that it is known of any
//! address whether it is that of a spare block; they are never given back, and a block that is bare takes none
//! but its address.
//!
//! *Threads.* One lock for a few instructions, which spins: pages are given back outside of it. Whoever
//! forks takes the lock first ([`SpareBlocks::freeze`]), so that the child finds everything in order.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::{Arc, LazyLock, OnceLock};
use std::time::Instant;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use super::block::{Block, Foreign};
use super::buffer::Buffer;
use super::caretaker::{Keeper, look_after};
use super::ledger::{Claim, Named, Priority};
use super::spin::Spin;
use crate::error::{Error, Kind, Result};
use crate::size::Size;

/// Addresses that the process's spare blocks reserve: more than any machine has memory, and few of those
/// that there are.
const RESERVED_BYTES: usize = 1 << 40;

/// Kinds of sizes between one power of two and the next: a block is at most an eighth too long.
const KINDS: usize = 8;

/// Sizes are multiples of this.
const UNIT: usize = 64 << 10;

/// Blocks of this size and more begin where a huge page could.
const HUGE: usize = 2 << 20;

/// What all that is spare takes.
static SPARE: Named = Named::new("activations spare", Priority::Spare);

/// The process's.
static SPARE_BLOCKS: OnceLock<Option<SpareBlocks>> = OnceLock::new();

/// Large blocks for whoever wants one.
#[derive(Debug)]
pub struct SpareBlocks {
    addresses: Range<usize>,
    state: Spin<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Addresses below belong to blocks.
    next: usize,
    /// Of all blocks, by address.
    sizes: HashMap<usize, usize>,
    /// By size; the longest spare first.
    spare: BTreeMap<usize, VecDeque<Spare>>,
    spare_bytes: usize,
    /// By size.
    bare: BTreeMap<usize, Vec<usize>>,
    limit: usize,
}

#[derive(Debug)]
struct Spare {
    address: usize,
    since: Instant,
    claim: Claim,
}

/// So many spare bytes are kept for as long as this exists.
#[derive(Debug)]
pub struct Share {
    spare_blocks: &'static SpareBlocks,
    bytes: usize,
}

/// Returns a block when it is dropped.
struct Place(&'static SpareBlocks, NonNull<u8>);

// SAFETY: the block is reached through its owner alone, and may be given back by any thread.
unsafe impl Send for Place {}

impl SpareBlocks {
    /// The spare blocks of this process; none where so many addresses can't be reserved.
    pub fn of_process() -> Option<&'static Self> {
        LazyLock::force(&KEEPER);
        SPARE_BLOCKS.get_or_init(|| Self::reserve(RESERVED_BYTES).ok()).as_ref()
    }

    /// A block that returns to the process's spare blocks; memory of its own where there are none. It
    /// contains whatever was there before.
    pub fn block(len: usize) -> Result<Block> {
        let taken = Self::of_process()
            .and_then(|spare_blocks| Some((spare_blocks, spare_blocks.take(len)?)));
        let Some((spare_blocks, start)) = taken else { return Ok(Buffer::zeroed(len)?.into()) };
        let place = Box::new(Place(spare_blocks, start));
        // SAFETY: mapped, so initialised; nobody else gets the block before the place, which is its
        // keeper, is dropped.
        Ok(unsafe { Foreign::exclusive(start, len, place) }.into())
    }

    fn reserve(bytes: usize) -> Result<Self> {
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        let flags = flags | MapFlags::NORESERVE;
        // SAFETY: a new anonymous mapping at an address of the kernel's choice.
        let start = unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, protection, flags) };
        let start = start.map_err(|error| {
            let message = format!("can't reserve addresses for {}", Size(bytes as u64));
            Error::new(Kind::OutOfMemory, message).caused_by(error)
        })?;
        let start = start.expose_provenance();
        let state = State { next: start, ..State::default() };
        Ok(Self { addresses: start..start + bytes, state: Spin::new(state) })
    }

    /// Keeps up to so many more spare bytes.
    #[must_use = "they are kept as long as the share exists"]
    pub fn share(&'static self, bytes: usize) -> Share {
        self.state.lock().limit += bytes;
        Share { spare_blocks: self, bytes }
    }

    /// Whether anything would be kept.
    pub fn keeps(&self) -> bool {
        self.state.lock().limit > 0
    }

    /// Bytes in pages that nobody uses, at most.
    pub fn spare(&self) -> u64 {
        self.state.lock().spare_bytes as u64
    }

    /// Whether the address is that of a spare block.
    pub fn owns(&self, address: usize) -> bool {
        self.addresses.contains(&address)
    }

    /// A block of at least `len` bytes at an address that direct I/O can use; `None` when the
    /// addresses are used up.
    pub fn take(&self, len: usize) -> Option<NonNull<u8>> {
        let size = kind(len)?;
        let mut state = self.state.lock();
        let spare = state.take_spare(size);
        let known = spare.as_ref().map(|spare| spare.address);
        let known = known.or_else(|| state.bare.get_mut(&size)?.pop());
        let address = known.map_or_else(|| state.make(size, self.addresses.end), Some)?;
        drop(state);
        // Whoever takes it counts it, if it counts.
        drop(spare);
        let start = std::ptr::with_exposed_provenance_mut(address);
        if known.is_none() {
            in_huge_pages(start, size);
        }
        NonNull::new(start)
    }

    /// Takes a block back; `false` if it is none that was given out.
    ///
    /// # Safety
    /// Nobody uses the block any more.
    pub unsafe fn give(&self, block: NonNull<u8>) -> bool {
        let address = block.addr().get();
        let Some(size) = self.state.lock().sizes.get(&address).copied() else { return false };
        let mut claim = SPARE.nothing();
        let has_room = claim.try_grow(size as u64);
        let spare = Spare { address, since: Instant::now(), claim };
        if !has_room {
            self.bare(vec![(size, spare)]);
            return true;
        }
        let mut state = self.state.lock();
        state.spare.entry(size).or_default().push_back(spare);
        state.spare_bytes += size;
        let limit = state.limit;
        let excess = state.excess(limit);
        let keeps = state.spare_bytes > 0;
        drop(state);
        self.bare(excess);
        if keeps && !look_after() {
            self.give_back(None);
        }
        true
    }

    /// Gives back the pages of what nobody has taken since then, or of all that is spare; whether some
    /// are still kept.
    fn give_back(&self, idle_since: Option<Instant>) -> bool {
        let mut state = self.state.lock();
        let idle = match idle_since {
            Some(since) => state.spare_since(since),
            None => state.excess(0),
        };
        let keeps = state.spare_bytes > 0;
        drop(state);
        self.bare(idle);
        keeps
    }

    /// Gives the pages of blocks that are on no list back, and puts them on the list of the bare.
    fn bare(&self, blocks: Vec<(usize, Spare)>) {
        for (size, Spare { address, claim, .. }) in blocks {
            let start = std::ptr::with_exposed_provenance_mut(address);
            // SAFETY: inside the reserved range, and reached by nobody: it is on no list and in
            // no use. Refused advice costs memory only.
            let _ = unsafe { madvise(start, size, Advice::LinuxDontNeed) };
            drop(claim);
            self.state.lock().bare.entry(size).or_default().push(address);
        }
    }

    /// Keeps everybody out until [`thaw`](Self::thaw): for who is about to fork.
    pub fn freeze(&self) {
        std::mem::forget(self.state.lock());
    }

    /// Lets everybody in again, in the parent and in the child.
    ///
    /// # Safety
    /// The caller froze it, or its parent did so before it forked.
    pub unsafe fn thaw(&self) {
        // SAFETY: the caller has the lock.
        unsafe { self.state.unlock() };
    }
}

impl State {
    fn take_spare(&mut self, size: usize) -> Option<Spare> {
        // The latest is the most likely to be in a processor's cache.
        let spare = self.spare.get_mut(&size)?.pop_back()?;
        self.spare_bytes -= size;
        Some(spare)
    }

    fn make(&mut self, size: usize, end: usize) -> Option<usize> {
        let alignment = if size >= HUGE { HUGE } else { UNIT };
        let address = self.next.checked_next_multiple_of(alignment)?;
        if size > end.checked_sub(address)? {
            return None;
        }
        self.next = address + size;
        self.sizes.insert(address, size);
        Some(address)
    }

    /// Takes out the blocks that have been spare for longest, until the others are within the limit.
    fn excess(&mut self, limit: usize) -> Vec<(usize, Spare)> {
        let mut excess = Vec::new();
        while self.spare_bytes > limit {
            let Some((_, size)) = self.longest_spare() else { break };
            excess.extend(self.take_longest(size));
        }
        excess
    }

    /// Takes out the blocks that have been spare since then or for longer.
    fn spare_since(&mut self, since: Instant) -> Vec<(usize, Spare)> {
        let mut idle = Vec::new();
        while let Some((_, size)) = self.longest_spare().filter(|(spare, _)| *spare <= since) {
            idle.extend(self.take_longest(size));
        }
        idle
    }

    /// Since when, and its size.
    fn longest_spare(&self) -> Option<(Instant, usize)> {
        let longest = |(size, spare): (&usize, &VecDeque<Spare>)| {
            spare.front().map(|spare| (spare.since, *size))
        };
        self.spare.iter().filter_map(longest).min()
    }

    fn take_longest(&mut self, size: usize) -> Option<(usize, Spare)> {
        let spare = self.spare.get_mut(&size)?.pop_front()?;
        self.spare_bytes -= size;
        Some((size, spare))
    }
}

/// Made with the process's spare blocks, and never dropped.
static KEEPER: LazyLock<Arc<dyn Keeper>> = LazyLock::new(|| {
    let keeper: Arc<dyn Keeper> = Arc::new(OfSpareBlocks);
    SPARE.enlist(Priority::Spare, Arc::downgrade(&keeper));
    keeper
});

/// The process's spare blocks.
struct OfSpareBlocks;

impl OfSpareBlocks {
    fn of_process() -> Option<&'static SpareBlocks> {
        SPARE_BLOCKS.get().and_then(Option::as_ref)
    }
}

impl Keeper for OfSpareBlocks {
    fn give_back(&self, idle_since: Option<Instant>) -> bool {
        Self::of_process().is_some_and(|spare_blocks| spare_blocks.give_back(idle_since))
    }

    fn give_up(&self, bytes: u64) {
        let Some(process) = Self::of_process() else { return };
        let mut state = process.state.lock();
        let stay = (state.spare_bytes as u64).saturating_sub(bytes);
        let excess = state.excess(stay as usize);
        drop(state);
        process.bare(excess);
    }

    fn idle(&self) -> u64 {
        Self::of_process().map_or(0, SpareBlocks::spare)
    }
}

/// Has a new block made of huge pages, as far as whole ones lie in it: blocks of one size do not serve
/// another, so that a step whose sizes vary makes pages again and again, and a huge one takes a
/// twentieth of the time of those that it stands for.
fn in_huge_pages(start: *mut u8, size: usize) {
    let len = size - size % HUGE;
    if len > 0 {
        // SAFETY: a part of the reserved range that begins with a block. Refused advice costs time only.
        let _ = unsafe { madvise(start.cast(), len, Advice::LinuxHugepage) };
    }
}

/// The size of the blocks for requests of `len` bytes.
fn kind(len: usize) -> Option<usize> {
    let step = (1_usize << len.max(1).ilog2()) / KINDS;
    len.max(1).checked_next_multiple_of(step.max(UNIT))
}

impl Drop for SpareBlocks {
    fn drop(&mut self) {
        let start = std::ptr::with_exposed_provenance_mut(self.addresses.start);
        // SAFETY: reserved with this length. Blocks, shares and places of spare blocks refer to one that
        // is never dropped; this is for a test's own, whose blocks are gone.
        let _ = unsafe { munmap(start, self.addresses.len()) };
    }
}

impl Share {
    /// Grows to what a block of `len` bytes takes: one that is longer than all that may be spare would
    /// never be used again.
    pub fn fit(&mut self, len: usize) {
        let more = kind(len).map_or(0, |size| size.saturating_sub(self.bytes));
        if more > 0 {
            self.spare_blocks.state.lock().limit += more;
            self.bytes += more;
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut state = self.spare_blocks.state.lock();
        state.limit -= self.bytes;
        let limit = state.limit;
        let excess = state.excess(limit);
        drop(state);
        self.spare_blocks.bare(excess);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // SAFETY: the block's owner lets go of it, and of its keeper with it.
        let known = unsafe { self.0.give(self.1) };
        debug_assert!(known, "a spare block returns to it");
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    fn spare_blocks(limit: usize) -> &'static SpareBlocks {
        let spare_blocks = Box::leak(Box::new(SpareBlocks::reserve(1 << 30).unwrap()));
        std::mem::forget(spare_blocks.share(limit));
        spare_blocks
    }

    fn fill(block: NonNull<u8>, len: usize, byte: u8) {
        // SAFETY: a block of at least so many bytes that only this test has.
        unsafe { block.write_bytes(byte, len) };
    }

    fn give(spare_blocks: &SpareBlocks, block: NonNull<u8>) {
        // SAFETY: the test does not use it any more.
        assert!(unsafe { spare_blocks.give(block) });
    }

    fn first_byte(block: NonNull<u8>) -> u8 {
        // SAFETY: mapped memory of a block that only this test has.
        unsafe { block.read() }
    }

    #[test]
    fn a_block_that_was_given_back_is_taken_again_with_its_pages() {
        let spare_blocks = spare_blocks(8 * MIB);
        let block = spare_blocks.take(3 * MIB).unwrap();
        fill(block, 3 * MIB, 7);
        give(spare_blocks, block);
        assert_eq!(spare_blocks.spare(), 3 << 20);
        let other = spare_blocks.take(5 * MIB).unwrap();
        assert_ne!(block, other);
        let again = spare_blocks.take(3 * MIB - 1).unwrap();
        assert_eq!((again, first_byte(again), spare_blocks.spare()), (block, 7, 0));
        let apart = again.addr().get().abs_diff(other.addr().get());
        assert!(apart >= 3 * MIB && other.addr().get().is_multiple_of(HUGE));
    }

    #[test]
    fn what_has_been_spare_for_longest_loses_its_pages_when_there_is_too_much() {
        let spare_blocks = spare_blocks(4 * MIB);
        let blocks: Vec<_> = (0..3).map(|_| spare_blocks.take(2 * MIB).unwrap()).collect();
        for block in &blocks {
            fill(*block, 2 * MIB, 9);
            give(spare_blocks, *block);
        }
        assert_eq!(spare_blocks.spare(), 4 << 20);
        let again: Vec<_> = (0..3).map(|_| spare_blocks.take(2 * MIB).unwrap()).collect();
        assert_eq!(again, [blocks[2], blocks[1], blocks[0]]);
        let bytes: Vec<_> = again.into_iter().map(first_byte).collect();
        assert_eq!(bytes, [9, 9, 0], "the oldest is as new");
    }

    #[test]
    fn what_nobody_took_for_a_while_goes_back_and_all_of_it_when_memory_is_short() {
        let spare_blocks = spare_blocks(16 * MIB);
        let blocks = [1, 2, 3].map(|_| spare_blocks.take(2 * MIB).unwrap());
        let [early, late, later] = blocks;
        give(spare_blocks, early);
        let between = Instant::now();
        std::thread::sleep(std::time::Duration::from_millis(2));
        give(spare_blocks, late);
        give(spare_blocks, later);
        assert!(spare_blocks.give_back(Some(between)) && spare_blocks.spare() == 4 << 20);
        assert_eq!(spare_blocks.take(2 * MIB), Some(later), "what came later is kept");
        assert!(!spare_blocks.give_back(None) && spare_blocks.spare() == 0);
        give(spare_blocks, later);
    }

    #[test]
    fn nothing_is_kept_when_the_last_share_is_gone() {
        let spare_blocks = spare_blocks(0);
        let share = spare_blocks.share(16 * MIB);
        let block = spare_blocks.take(MIB).unwrap();
        give(spare_blocks, block);
        assert!(spare_blocks.keeps() && spare_blocks.spare() == 1 << 20);
        drop(share);
        assert!(!spare_blocks.keeps() && spare_blocks.spare() == 0);
        assert_eq!(spare_blocks.take(MIB), Some(block));
    }

    #[test]
    fn a_share_grows_to_the_longest_block_and_takes_all_of_it_back() {
        let spare_blocks = spare_blocks(0);
        let mut share = spare_blocks.share(MIB);
        let len = 2 * MIB + 1;
        let block = spare_blocks.take(len).unwrap();
        give(spare_blocks, block);
        assert_eq!(spare_blocks.spare(), 0, "too long to be kept");
        share.fit(len);
        share.fit(MIB);
        assert_eq!(spare_blocks.take(len), Some(block));
        give(spare_blocks, block);
        assert_eq!(spare_blocks.spare(), kind(len).unwrap() as u64);
        drop(share);
        assert!(!spare_blocks.keeps() && spare_blocks.spare() == 0);
    }

    #[test]
    fn addresses_that_are_used_up_and_foreign_blocks_are_refused() {
        let spare_blocks = spare_blocks(MIB);
        assert_eq!(spare_blocks.take(2 << 30), None);
        assert_eq!(spare_blocks.take(usize::MAX), None);
        let mut local = 0_u8;
        let outside = NonNull::from(&mut local);
        assert!(!spare_blocks.owns(outside.addr().get()));
        // SAFETY: it is no block, and not used here.
        assert!(!unsafe { spare_blocks.give(outside) });
        assert!(spare_blocks.owns(spare_blocks.take(1).unwrap().addr().get()));
    }

    #[test]
    fn sizes_are_at_most_an_eighth_too_long_and_of_few_kinds() {
        for len in [1, UNIT, UNIT + 1, MIB, MIB + 1, 9 * MIB + 5, 100 * MIB + 3] {
            let size = kind(len).unwrap();
            assert!(size >= len && size - len <= (len / KINDS).max(UNIT), "{len}: {size}");
            assert_eq!(kind(size), Some(size));
        }
    }

    #[test]
    fn threads_never_share_a_block() {
        let spare_blocks = spare_blocks(8 * MIB);
        std::thread::scope(|scope| {
            for thread in 0..4_u8 {
                scope.spawn(move || {
                    for round in 0..200_usize {
                        let len = (round % 3 + 1) * 100_000;
                        let block = spare_blocks.take(len).unwrap();
                        fill(block, len, thread);
                        std::thread::yield_now();
                        // SAFETY: filled above, and nobody else's.
                        let bytes = unsafe { std::slice::from_raw_parts(block.as_ptr(), len) };
                        assert!(bytes.iter().all(|byte| *byte == thread));
                        give(spare_blocks, block);
                    }
                });
            }
        });
        assert!(spare_blocks.spare() <= 8 << 20);
    }

    #[test]
    fn who_is_frozen_out_waits_for_the_thaw() {
        let spare_blocks = spare_blocks(MIB);
        spare_blocks.freeze();
        let waiting = std::thread::spawn(move || spare_blocks.take(MIB).is_some());
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert!(!waiting.is_finished());
        // SAFETY: frozen above.
        unsafe { spare_blocks.thaw() };
        assert!(waiting.join().unwrap());
    }
}
