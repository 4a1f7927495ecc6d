//! Who holds what, at one moment.

use std::cmp::Reverse;

use serde::Serialize;

use super::account::{Entry, Priority};
use super::{Book, Ledger};
use crate::error::Result;
use crate::memory::Headroom;
use crate::metrics::Registry;
use crate::size::Size;
use crate::sync::Arc;
use crate::sync::atomic::Ordering::SeqCst;

/// How often the accounts are read again while claims come and go.
const READS_MAX: usize = 64;

/// Holders that an error names.
const NAMED_MAX: usize = 6;

/// All accounts that were opened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Statement {
    /// What they hold together.
    pub bytes: u64,
    /// What they have set aside together.
    pub reserved_bytes: u64,
    /// What both stay within.
    pub limit: Option<u64>,
    /// What the machine, or the group of this process, has.
    pub usable_bytes: Option<u64>,
    /// What of it can be taken now.
    pub available_bytes: Option<u64>,
    /// Those that hold most first.
    pub accounts: Vec<Holding>,
}

/// One account.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Holding {
    /// What it is called.
    pub name: &'static str,
    /// For whom it gives back.
    pub priority: Priority,
    /// What it holds.
    pub bytes: u64,
    /// What counts beside that: it may be held at any time.
    pub reserved_bytes: u64,
    /// The most that it ever held.
    pub peak_bytes: u64,
    /// What it would give back for others.
    pub reclaimable_bytes: u64,
}

impl Ledger {
    /// Who holds what now.
    pub fn statement(&self) -> Statement {
        self.0.statement()
    }

    /// Sets the gauges of all accounts.
    pub fn publish(&self, registry: &Registry) -> Result<()> {
        let statement = self.statement();
        for Holding { name, bytes, reserved_bytes, .. } in &statement.accounts {
            let labels = [("account", *name)];
            registry.gauge("ferry_memory_held_bytes", &labels)?.set(*bytes as f64);
            registry.gauge("ferry_memory_reserved_bytes", &labels)?.set(*reserved_bytes as f64);
        }
        let limit = statement.limit.unwrap_or(0) as f64;
        registry.gauge("ferry_memory_limit_bytes", &[])?.set(limit);
        registry.describe("ferry_memory_held_bytes", "Host memory that an account holds.")?;
        registry.describe(
            "ferry_memory_reserved_bytes",
            "What counts beside that: it may be held at any time.",
        )?;
        registry.describe("ferry_memory_limit_bytes", "What both stay within; 0 without a limit.")
    }
}

impl Book {
    pub(super) fn statement(&self) -> Statement {
        let (mut accounts, headroom) = (self.read(), Headroom::now());
        for (account, entry) in &mut accounts {
            account.reclaimable_bytes = entry.reclaimable();
        }
        let accounts: Vec<_> = accounts.into_iter().map(|(account, _)| account).collect();
        Statement {
            bytes: accounts.iter().map(|account| account.bytes).sum(),
            reserved_bytes: accounts.iter().map(|account| account.reserved_bytes).sum(),
            limit: self.limit(),
            usable_bytes: headroom.map(|now| now.usable()),
            available_bytes: headroom.map(|now| now.available),
            accounts,
        }
    }

    /// All accounts, those that hold most first, read while nothing moved or as near to that as can be.
    fn read(&self) -> Vec<(Holding, Arc<Entry>)> {
        let entries = self.accounts();
        let read = || entries.iter().map(|entry| entry.read()).collect::<Vec<_>>();
        let mut accounts = read();
        for _ in 0..READS_MAX {
            let sum: u64 = accounts.iter().map(Holding::counted).sum();
            if sum == self.used.load(SeqCst) {
                break;
            }
            accounts = read();
        }
        let mut accounts: Vec<_> = accounts.into_iter().zip(entries).collect();
        accounts.sort_by_key(|(account, _)| Reverse(account.counted()));
        accounts
    }

    /// Those who hold most, for errors.
    pub(super) fn holders(&self) -> String {
        let holding = self.read().into_iter().map(|(account, _)| account);
        let holding: Vec<_> = holding.filter(|one| one.counted() > 0).collect();
        let rest: u64 = holding.iter().skip(NAMED_MAX).map(Holding::counted).sum();
        let named = holding.iter().take(NAMED_MAX);
        let named = named.map(|one| format!("{} {}", one.name, Size(one.counted())));
        let others = (rest > 0).then(|| format!("others {}", Size(rest)));
        let told: Vec<_> = named.chain(others).collect();
        if told.is_empty() { "nothing".to_owned() } else { told.join(", ") }
    }
}

impl Entry {
    fn read(&self) -> Holding {
        let (bytes, reserved_bytes) = (self.held.load(SeqCst), self.aside.load(SeqCst));
        Holding {
            name: self.name,
            priority: self.priority,
            bytes,
            reserved_bytes,
            peak_bytes: self.peak.load(SeqCst),
            reclaimable_bytes: 0,
        }
    }

    fn reclaimable(&self) -> u64 {
        let keepers = Priority::GIVING.into_iter().flat_map(|rank| self.keepers(rank));
        keepers.map(|keeper| keeper.idle()).sum()
    }
}

impl Holding {
    fn counted(&self) -> u64 {
        self.bytes + self.reserved_bytes
    }
}
