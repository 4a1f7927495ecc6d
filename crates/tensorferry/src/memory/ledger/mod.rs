//! Who holds how much host memory: one ledger for the whole process.
//!
//! ```text
//!   Named ─► Account ──claim──► Claim: so many bytes, until it is dropped
//!   "data cache"      │
//!                     ├─ fits ──────────────► counted: no lock
//!                     ├─ does not ──────────► keepers of lower priority give back, the lowest first ─► again
//!                     └─ still does not ────► OutOfMemory, with who holds what; who can wait, in line
//! ```
//!
//! A path opens an account once, with a name in users' words and a [`Priority`], and has a [`Claim`] for
//! whatever memory it takes. A claim may set bytes aside: they count against the limit before they are
//! held, so that who has begun can go on.
//!
//! *The limit.* Without one, claims are only counted. With one, all that claims hold or have set aside
//! stays at or below it at every moment. What does not fit makes others give back: memory kept for the
//! next user, then spare blocks, then caches, which shrink. The `caretaker` knows them all; it has them
//! give back what is idle, too.
//!
//! *Nobody waits for ever.* Who asks for more while it holds some is told at once that there is none, and
//! goes on with what it has: staging turns over in what it got, a loader prepares fewer batches ahead. Only
//! who holds nothing waits, in the order of arrival, for at most [`PATIENCE`]. While somebody waits, others
//! take only what that leaves.
//!
//! *A forked child* has its parent's numbers and none of its threads: it counts on, without a limit.

mod account;
mod claim;
#[cfg(test)]
#[cfg(loom)]
mod loom_tests;
mod statement;
#[cfg(test)]
#[cfg(not(loom))]
mod tests;
mod turn;

use std::sync::Arc as StdArc;
#[cfg(not(loom))]
use std::sync::OnceLock;
use std::time::Duration;

pub use account::{Account, Named, Priority};
pub use claim::Claim;
pub use statement::{Holding, Statement};

use account::Entry;
use turn::Turns;

use super::caretaker::Keeper;
#[cfg(not(loom))]
use super::caretaker::soon;
use super::process::process_id;
use crate::error::{Error, Kind, Result};
use crate::size::Size;
use crate::sync::atomic::Ordering::SeqCst;
use crate::sync::atomic::{AtomicU64, fence};
use crate::sync::{Arc, Mutex, lock};

/// How long one waits who holds nothing.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// No limit is lower: the least that an engine, a save and a load take at once.
pub const LIMIT_MIN: u64 = 16 << 20;

/// How often somebody who does not wait has others give back, when a third one takes it.
const TRIES: usize = 3;

/// What stands for no limit.
const NONE: u64 = u64::MAX;

/// All accounts of a process; clones share them.
#[derive(Clone)]
pub struct Ledger(Arc<Book>);

struct Book {
    /// All bytes that are held or set aside.
    used: AtomicU64,
    limit: AtomicU64,
    turns: Turns,
    /// Held by who changes the limit.
    changing: Mutex<()>,
    accounts: Mutex<Vec<Arc<Entry>>>,
    process: u32,
}

impl Ledger {
    /// One without accounts and without a limit.
    pub fn new() -> Self {
        Self(Arc::new(Book {
            used: AtomicU64::new(0),
            limit: AtomicU64::new(NONE),
            turns: Turns::default(),
            changing: Mutex::new(()),
            accounts: Mutex::new(Vec::new()),
            process: process_id(),
        }))
    }

    /// That of this process.
    #[cfg(not(loom))]
    pub fn of_process() -> &'static Self {
        static LEDGER: OnceLock<Ledger> = OnceLock::new();
        LEDGER.get_or_init(Self::new)
    }

    /// Opens an account.
    pub fn open(&self, name: &'static str, priority: Priority) -> Account {
        let entry = Arc::new(Entry::new(name, priority));
        self.0.with_accounts(|accounts| accounts.push(Arc::clone(&entry)));
        Account::new(Arc::clone(&self.0), entry)
    }

    /// Bytes that all accounts together stay within; `None` without a limit.
    pub fn limit(&self) -> Option<u64> {
        self.0.limit()
    }

    /// Sets the limit, or lifts it. What is kept goes and caches shrink where they must; it is an error,
    /// and the limit stays as it was, if what is needed is more. While that is tried, claims see the new one.
    pub fn set_limit(&self, limit: Option<u64>) -> Result<()> {
        let book = &*self.0;
        let new = limit.unwrap_or(NONE);
        if new < LIMIT_MIN {
            let (limit, least) = (Size(new), Size(LIMIT_MIN));
            let message = format!("a memory limit of {limit} is too low; give at least {least}");
            return Err(Error::invalid(message));
        }
        if book.is_forked() {
            let why = "a forked process has no memory limit; set one in a process that is spawned";
            return Err(Error::new(Kind::Unsupported, why));
        }
        self.change_limit(new).map_err(|used| self.too_low(new, used))
    }

    /// The same for numbers that make sense; if it fails, the bytes in use.
    fn change_limit(&self, new: u64) -> Result<(), u64> {
        let book = &*self.0;
        let changing = lock(&book.changing);
        let old = book.limit.swap(new, SeqCst);
        fence(SeqCst);
        book.make_room(0, None);
        // Who takes bytes looks at the limit again afterwards: what counts here was taken before.
        let used = book.used.load(SeqCst);
        if used > new {
            book.limit.store(old, SeqCst);
        }
        drop(changing);
        book.ring();
        if used > new { Err(used) } else { Ok(()) }
    }

    fn too_low(&self, limit: u64, used: u64) -> Error {
        let (limit, used, holders) = (Size(limit), Size(used), self.0.holders());
        Error::invalid(format!(
            "a memory limit of {limit} is less than the {used} in use ({holders}); let go of some of \
             that, or give at least {used}"
        ))
    }
}

impl Default for Ledger {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for Ledger {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Ledger({})", Size(self.0.used.load(SeqCst)))
    }
}

impl Book {
    fn limit(&self) -> Option<u64> {
        let limit = self.limit.load(SeqCst);
        (limit != NONE && !self.is_forked()).then_some(limit)
    }

    /// Counts bytes if they fit beside those that others wait for.
    fn take(&self, bytes: u64, awaited: u64) -> bool {
        let mut used = self.used.load(SeqCst);
        let sum = loop {
            let Some(sum) = used.checked_add(bytes) else { return false };
            if sum.saturating_add(awaited) > self.limit.load(SeqCst) {
                return false;
            }
            match self.used.compare_exchange_weak(used, sum, SeqCst, SeqCst) {
                Ok(_) => break sum,
                Err(now) => used = now,
            }
        };
        // Who lowers the limit looks at `used` afterwards: either it sees these bytes, or they see it.
        fence(SeqCst);
        let fits = sum <= self.limit.load(SeqCst);
        if !fits {
            self.used.fetch_sub(bytes, SeqCst);
        }
        fits
    }

    /// Counts bytes no more.
    fn give(&self, bytes: u64) {
        self.used.fetch_sub(bytes, SeqCst);
        // Who is about to wait looks at `used` afterwards: either it is seen here, or it sees these.
        fence(SeqCst);
        self.ring();
    }

    /// Tells those in line that there may be room.
    fn ring(&self) {
        if self.turns.awaited() > 0 && !self.is_forked() {
            self.turns.ring();
        }
    }

    /// Counts bytes now, or has others give back for them; whether it could.
    fn obtain(&self, bytes: u64, priority: Priority) -> bool {
        if self.take(bytes, self.turns.awaited()) {
            return true;
        }
        if self.is_forked() {
            self.used.fetch_add(bytes, SeqCst);
            return true;
        }
        let obtained = (0..TRIES).any(|_| {
            self.make_room(bytes, Some(priority));
            self.take(bytes, self.turns.awaited())
        });
        // What was counted for a moment may have been in somebody's way.
        self.ring();
        obtained
    }

    /// The same, waiting in line for at most so long.
    fn obtain_within(&self, entry: &Entry, bytes: u64, patience: Duration) -> Result<()> {
        if self.obtain(bytes, entry.priority) {
            return Ok(());
        }
        let could_fit = self.limit().is_none_or(|limit| bytes <= limit);
        let make_room = || self.make_room(bytes, Some(entry.priority));
        if could_fit && self.turns.wait(bytes, patience, make_room, || self.take(bytes, 0))? {
            return Ok(());
        }
        Err(self.refusal(entry, bytes))
    }

    /// Has those below a priority, or all, give back until `bytes` fit.
    fn make_room(&self, bytes: u64, below: Option<Priority>) {
        let below = |rank: &Priority| below.is_none_or(|priority| *rank < priority);
        for rank in Priority::GIVING.into_iter().filter(below) {
            for keeper in self.keepers(rank) {
                let missing = self.missing(bytes);
                if missing == 0 {
                    return;
                }
                keeper.give_up(missing);
            }
        }
    }

    fn missing(&self, bytes: u64) -> u64 {
        let wanted = self.used.load(SeqCst).saturating_add(bytes);
        wanted.saturating_sub(self.limit.load(SeqCst))
    }

    /// Nobody whom loom tries keeps any.
    #[cfg(loom)]
    fn keepers(&self, _: Priority) -> Vec<StdArc<dyn Keeper>> {
        Vec::new()
    }

    /// Who keeps memory of this rank.
    #[cfg(not(loom))]
    fn keepers(&self, rank: Priority) -> Vec<StdArc<dyn Keeper>> {
        self.accounts().iter().flat_map(|entry| entry.keepers(rank)).collect()
    }

    fn accounts(&self) -> Vec<Arc<Entry>> {
        self.with_accounts(|accounts| accounts.clone()).unwrap_or_default()
    }

    /// A child that was forked in the middle of this does without them.
    #[cfg(not(loom))]
    fn with_accounts<T>(&self, work: impl FnOnce(&mut Vec<Arc<Entry>>) -> T) -> Option<T> {
        soon(&self.accounts).map(|mut accounts| work(&mut accounts))
    }

    #[cfg(loom)]
    fn with_accounts<T>(&self, work: impl FnOnce(&mut Vec<Arc<Entry>>) -> T) -> Option<T> {
        Some(work(&mut lock(&self.accounts)))
    }

    /// Says who holds what; whether trying again can help.
    #[cold]
    fn refusal(&self, entry: &Entry, bytes: u64) -> Error {
        let (name, limit) = (entry.name, self.limit.load(SeqCst));
        let (asked, most, could_fit) = (Size(bytes), Size(limit), bytes <= limit);
        let message = if could_fit {
            let holders = self.holders();
            format!(
                "the memory limit of {most} leaves no room for {asked} of {name}: in use are {holders}; \
                 raise the limit, or let go of some of that"
            )
        } else {
            format!(
                "the memory limit is {most}, and {name} would take {asked}; raise the limit, or make do \
                 with less"
            )
        };
        Error::new(Kind::OutOfMemory, message).retryable(could_fit)
    }

    fn is_forked(&self) -> bool {
        self.process != process_id()
    }
}

/// Bytes that this process stays within, if it has a limit.
#[cfg(not(loom))]
pub(crate) fn limit() -> Option<u64> {
    Ledger::of_process().limit()
}

/// None for what loom tries.
#[cfg(loom)]
pub(crate) fn limit() -> Option<u64> {
    None
}

/// Nothing that loom tries is kept.
#[cfg(loom)]
pub(super) fn give_back(_: Option<std::time::Instant>) -> bool {
    false
}

/// Has those who keep memory for the next user give back what is idle since then, or all of it; whether
/// some is still kept.
#[cfg(not(loom))]
pub(super) fn give_back(idle_since: Option<std::time::Instant>) -> bool {
    let book = &Ledger::of_process().0;
    let keepers = [Priority::Kept, Priority::Spare].into_iter().flat_map(|rank| book.keepers(rank));
    // Each of them, whatever the one before says.
    keepers.filter(|keeper| keeper.give_back(idle_since)).count() > 0
}
