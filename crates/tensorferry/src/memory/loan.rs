//! Memory of another allocator that is read here, whenever its owner frees it.
//!
//! A caller may free a block while it is still being written to disk: torch gives the bytes of a storage
//! back when it is resized or swapped, whoever refers to it. So a block is *lent*: the allocator's `free`
//! asks [`Loans::keep`] first, and what is lent is freed when the last loan ends, not before.
//!
//! ```text
//!   lend ──► lent ──────────── the last loan ends ──────────────► the owner's again
//!             │ the owner frees it                                 ▲ not freed
//!             ▼                                                    │
//!            due ────────────── the last loan ends ──► released  watched
//! ```
//!
//! A [`Watch`] keeps nothing; it tells whether the block was freed since. An address alone does not: the
//! next block may get it.
//!
//! *Threads.* One lock for a few instructions, which spins, and which whoever forks takes first. While
//! nothing is lent or watched, `keep` is one look at a number.

use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::spin::Spin;

/// Blocks of one allocator.
#[derive(Debug)]
pub struct Loans {
    /// How many blocks are lent or watched.
    known: AtomicUsize,
    state: Spin<State>,
    release: unsafe fn(NonNull<u8>),
}

#[derive(Debug)]
struct State {
    blocks: BTreeMap<usize, Known>,
    /// Blocks that became known so far.
    counted: u64,
}

#[derive(Debug)]
struct Known {
    /// Tells one block from the next at its address.
    number: u64,
    loans: usize,
    watches: usize,
    /// Its owner freed it while it was lent.
    is_due: bool,
}

/// Keeps a block's memory for as long as it exists.
#[derive(Debug)]
pub struct Loan {
    loans: &'static Loans,
    start: NonNull<u8>,
}

// SAFETY: the address is only given back to the allocator, which any thread may do.
unsafe impl Send for Loan {}
// SAFETY: nothing is reached through a shared reference.
unsafe impl Sync for Loan {}

/// Tells whether a block was freed.
#[derive(Debug)]
pub struct Watch {
    loans: &'static Loans,
    start: usize,
    number: u64,
}

impl Loans {
    /// For the allocator whose blocks `release` frees.
    ///
    /// # Safety
    /// `release` may be called, once, with any block for which [`keep`](Self::keep) said `true`.
    pub const unsafe fn new(release: unsafe fn(NonNull<u8>)) -> Self {
        let state = State { blocks: BTreeMap::new(), counted: 0 };
        Self { known: AtomicUsize::new(0), state: Spin::new(state), release }
    }

    /// Borrows a block that is not freed yet.
    pub fn lend(&'static self, start: NonNull<u8>) -> Loan {
        self.enter(start.addr().get(), |known| known.loans += 1);
        Loan { loans: self, start }
    }

    /// Watches a block that is not freed yet.
    pub fn watch(&'static self, start: NonNull<u8>) -> Watch {
        let start = start.addr().get();
        let number = self.enter(start, |known| known.watches += 1);
        Watch { loans: self, start, number }
    }

    /// Asked by who is about to free a block: whether it is freed later, when nobody reads it any more.
    pub fn keep(&self, start: NonNull<u8>) -> bool {
        // Who lends a block has it: it became known before its owner could free it.
        if self.known.load(Ordering::Acquire) == 0 {
            return false;
        }
        let start = start.addr().get();
        let mut state = self.state.lock();
        let Some(known) = state.blocks.get_mut(&start) else { return false };
        if known.loans > 0 {
            known.is_due = true;
            return true;
        }
        self.forget(&mut state, start);
        false
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

    fn enter(&self, start: usize, count: impl FnOnce(&mut Known)) -> u64 {
        let mut state = self.state.lock();
        let next = state.counted + 1;
        let known = state.blocks.entry(start).or_insert_with(|| {
            self.known.fetch_add(1, Ordering::Release);
            Known { number: next, loans: 0, watches: 0, is_due: false }
        });
        count(known);
        let number = known.number;
        state.counted = next;
        number
    }

    fn forget(&self, state: &mut State, start: usize) {
        state.blocks.remove(&start);
        self.known.fetch_sub(1, Ordering::Release);
    }
}

impl Watch {
    /// Whether the block was freed: what is at its address now is something else.
    pub fn is_freed(&self) -> bool {
        let state = self.loans.state.lock();
        let known = state.blocks.get(&self.start);
        known.is_none_or(|known| known.number != self.number || known.is_due)
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        let start = self.start.addr().get();
        let mut state = self.loans.state.lock();
        let Some(known) = state.blocks.get_mut(&start) else { return };
        known.loans -= 1;
        let (is_last, is_due) = (known.loans == 0, known.is_due);
        if is_last && (is_due || known.watches == 0) {
            self.loans.forget(&mut state, start);
        }
        drop(state);
        if is_last && is_due {
            // SAFETY: its owner freed it and was told to leave that to us; nobody reads it any more.
            unsafe { (self.loans.release)(self.start) };
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut state = self.loans.state.lock();
        let known = state.blocks.get_mut(&self.start).filter(|known| known.number == self.number);
        let Some(known) = known else { return };
        known.watches -= 1;
        if known.watches == 0 && known.loans == 0 {
            self.loans.forget(&mut state, self.start);
        }
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    /// Loans of an allocator that counts what is released to it.
    fn loans() -> (&'static Loans, impl Fn() -> usize) {
        thread_local!(static RELEASED: AtomicUsize = const { AtomicUsize::new(0) });
        fn release(_: NonNull<u8>) {
            RELEASED.with(|released| released.fetch_add(1, Ordering::Relaxed));
        }
        // SAFETY: it frees nothing.
        let loans = unsafe { Loans::new(release) };
        (Box::leak(Box::new(loans)), || RELEASED.with(|released| released.load(Ordering::Relaxed)))
    }

    /// An address at which nobody looks.
    fn block(number: usize) -> NonNull<u8> {
        NonNull::new(std::ptr::without_provenance_mut(number)).unwrap()
    }

    #[test]
    fn a_block_that_is_freed_while_it_is_lent_is_released_when_the_last_loan_ends() {
        let (loans, released) = loans();
        let (first, second) = (loans.lend(block(8)), loans.lend(block(8)));
        assert!(loans.keep(block(8)));
        drop(first);
        assert_eq!(released(), 0);
        drop(second);
        assert_eq!(released(), 1);
        assert!(!loans.keep(block(8)), "the next block at this address is nobody's");
    }

    #[test]
    fn a_block_that_is_given_back_in_time_stays_its_owners() {
        let (loans, released) = loans();
        drop(loans.lend(block(8)));
        assert!(!loans.keep(block(8)));
        assert_eq!((released(), loans.known.load(Ordering::Relaxed)), (0, 0));
    }

    #[test]
    fn a_watch_tells_a_block_from_the_next_one_at_its_address() {
        let (loans, _) = loans();
        let watch = loans.watch(block(8));
        drop(loans.lend(block(8)));
        assert!(!watch.is_freed());
        assert!(!loans.keep(block(8)));
        assert!(watch.is_freed());
        let next = loans.watch(block(8));
        assert!(watch.is_freed() && !next.is_freed());
        drop(watch);
        assert!(!next.is_freed());
        let loan = loans.lend(block(8));
        assert!(loans.keep(block(8)) && next.is_freed(), "freed, though it is still there");
        drop(loan);
        assert!(next.is_freed());
        drop(next);
        assert_eq!(loans.known.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn threads_that_lend_and_free_release_each_block_once() {
        static RELEASED: AtomicUsize = AtomicUsize::new(0);
        fn release(_: NonNull<u8>) {
            RELEASED.fetch_add(1, Ordering::Relaxed);
        }
        // SAFETY: it frees nothing.
        static LOANS: Loans = unsafe { Loans::new(release) };
        let freed: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (1..5)
                .map(|thread| {
                    scope.spawn(move || {
                        let round = |_| {
                            let loan = LOANS.lend(block(thread));
                            let reader = scope.spawn(move || drop(loan));
                            let was_kept = LOANS.keep(block(thread));
                            reader.join().unwrap();
                            usize::from(was_kept)
                        };
                        (0..100).map(round).sum::<usize>()
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(RELEASED.load(Ordering::Relaxed), freed);
    }
}
