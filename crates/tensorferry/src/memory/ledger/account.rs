//! An account: what one path holds, under one name.

use std::sync::{Arc as StdArc, Mutex as StdMutex, OnceLock, Weak};
use std::time::Duration;

use serde::Serialize;

use super::Book;
#[cfg(not(loom))]
use super::Ledger;
use super::claim::Claim;
use crate::error::Result;
use crate::memory::caretaker::{Keeper, soon};
use crate::sync::Arc;
use crate::sync::atomic::AtomicU64;
use crate::sync::atomic::Ordering::SeqCst;

/// Who gives back for whom: the lower for the higher.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Priority {
    /// Kept for the next user, and used by nobody.
    Kept,
    /// The same, where the next user comes within a step of training.
    Spare,
    /// What makes it fast: caches.
    Fast,
    /// Without it the work does not go on.
    Needed,
}

impl Priority {
    /// Those that give back, the first one first.
    pub(super) const GIVING: [Self; 3] = [Self::Kept, Self::Spare, Self::Fast];
}

/// An account of the process's ledger, which is opened when it is first used.
pub struct Named {
    name: &'static str,
    priority: Priority,
    opened: OnceLock<Account>,
}

/// An account; clones are the same one.
#[derive(Clone)]
pub struct Account {
    book: Arc<Book>,
    entry: Arc<Entry>,
}

/// The numbers of an account, and who gives back of it.
pub(super) struct Entry {
    pub(super) name: &'static str,
    pub(super) priority: Priority,
    pub(super) held: AtomicU64,
    /// Counted before they are held.
    pub(super) aside: AtomicU64,
    pub(super) peak: AtomicU64,
    keepers: StdMutex<Vec<(Priority, Weak<dyn Keeper>)>>,
}

impl Named {
    /// One that is called so.
    pub const fn new(name: &'static str, priority: Priority) -> Self {
        Self { name, priority, opened: OnceLock::new() }
    }

    /// Bytes that are held from now on; see [`Account::claim`].
    pub fn claim(&self, bytes: u64) -> Result<Claim> {
        self.account().map_or_else(|| Ok(Claim::default()), |account| account.claim(bytes))
    }

    /// The same for who holds nothing; see [`Account::claim_within`].
    pub fn claim_within(&self, bytes: u64, patience: Duration) -> Result<Claim> {
        let waited = |account: &Account| account.claim_within(bytes, patience);
        self.account().map_or_else(|| Ok(Claim::default()), waited)
    }

    /// Bytes that are set aside; see [`Account::reserve`].
    pub fn reserve(&self, bytes: u64) -> Result<Claim> {
        self.account().map_or_else(|| Ok(Claim::default()), |account| account.reserve(bytes))
    }

    /// Refuses what could never fit, whoever gave back.
    pub fn check(&self, bytes: u64) -> Result<()> {
        match self.account() {
            Some(account) if super::limit().is_some_and(|limit| bytes > limit) => {
                Err(account.book.refusal(&account.entry, bytes))
            }
            _ => Ok(()),
        }
    }

    /// A claim of nothing, which may grow.
    pub fn nothing(&self) -> Claim {
        self.account().map_or_else(Claim::default, Account::nothing)
    }

    /// Has somebody give back of this account from now on, for as long as it exists.
    pub(crate) fn enlist(&self, rank: Priority, keeper: Weak<dyn Keeper>) {
        if let Some(account) = self.account() {
            account.enlist(rank, keeper);
        }
    }

    /// Bytes that are held.
    pub fn held(&self) -> u64 {
        self.account().map_or(0, |account| account.entry.held.load(SeqCst))
    }

    #[cfg(not(loom))]
    #[expect(clippy::unnecessary_wraps, reason = "there is none under loom")]
    pub(super) fn account(&self) -> Option<&Account> {
        let open = || Ledger::of_process().open(self.name, self.priority);
        Some(self.opened.get_or_init(open))
    }

    /// A model of loom's has nothing that outlives it.
    #[cfg(loom)]
    pub(super) fn account(&self) -> Option<&Account> {
        let (_, _) = (self.name, self.priority);
        self.opened.get()
    }
}

impl Account {
    pub(super) fn new(book: Arc<Book>, entry: Arc<Entry>) -> Self {
        Self { book, entry }
    }

    /// Bytes that are held from now on. Who has lower priority gives back for them; if they do not fit
    /// then, it is an error that says who holds what.
    pub fn claim(&self, bytes: u64) -> Result<Claim> {
        let mut claim = self.nothing();
        claim.grow(bytes)?;
        Ok(claim)
    }

    /// The same for who holds nothing yet, and so may wait for others.
    pub fn claim_within(&self, bytes: u64, patience: Duration) -> Result<Claim> {
        self.book.obtain_within(&self.entry, bytes, patience)?;
        self.entry.hold(bytes);
        Ok(Claim::of(self.clone(), bytes))
    }

    /// Bytes that are set aside: they count, and are there when the claim grows.
    pub fn reserve(&self, bytes: u64) -> Result<Claim> {
        self.take(bytes)?;
        self.entry.aside.fetch_add(bytes, SeqCst);
        Ok(Claim::with_floor(self.clone(), bytes))
    }

    /// A claim of nothing, which may grow.
    pub fn nothing(&self) -> Claim {
        Claim::of(self.clone(), 0)
    }

    /// Has somebody give back of this account from now on, for as long as it exists.
    pub(crate) fn enlist(&self, rank: Priority, keeper: Weak<dyn Keeper>) {
        if let Some(mut keepers) = soon(&self.entry.keepers) {
            keepers.retain(|(_, keeper)| keeper.strong_count() > 0);
            keepers.push((rank, keeper));
        }
    }

    pub(super) fn entry(&self) -> &Entry {
        &self.entry
    }

    pub(super) fn take(&self, bytes: u64) -> Result<()> {
        if self.book.obtain(bytes, self.entry.priority) {
            return Ok(());
        }
        Err(self.book.refusal(&self.entry, bytes))
    }

    pub(super) fn try_take(&self, bytes: u64) -> bool {
        self.book.obtain(bytes, self.entry.priority)
    }

    pub(super) fn give(&self, bytes: u64) {
        self.book.give(bytes);
    }

    /// Whether both are of one ledger.
    pub(super) fn is_beside(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.book, &other.book)
    }
}

impl Entry {
    pub(super) fn new(name: &'static str, priority: Priority) -> Self {
        let zero = || AtomicU64::new(0);
        let keepers = StdMutex::new(Vec::new());
        Self { name, priority, held: zero(), aside: zero(), peak: zero(), keepers }
    }

    pub(super) fn hold(&self, bytes: u64) {
        let held = self.held.fetch_add(bytes, SeqCst) + bytes;
        self.peak.fetch_max(held, SeqCst);
    }

    pub(super) fn let_go(&self, bytes: u64) {
        self.held.fetch_sub(bytes, SeqCst);
    }

    pub(super) fn keepers(&self, rank: Priority) -> Vec<StdArc<dyn Keeper>> {
        let Some(keepers) = soon(&self.keepers) else { return Vec::new() };
        let of_rank = keepers.iter().filter(|(own, _)| *own == rank);
        of_rank.filter_map(|(_, keeper)| keeper.upgrade()).collect()
    }
}
