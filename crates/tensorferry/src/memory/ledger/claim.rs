//! A claim: bytes of an account, for as long as somebody has them.

use std::fmt;

use super::account::{Account, Named};
use crate::error::Result;
use crate::size::Size;
use crate::sync::atomic::Ordering::SeqCst;

/// Bytes that count as held, or set aside for it, until this is dropped. The empty one is of no account
/// and counts nothing.
///
/// What counts of the ledger is what is held, at least the floor: bytes below it are had for certain.
#[derive(Default)]
#[must_use = "bytes that are given back at once allow nothing"]
pub struct Claim {
    account: Option<Account>,
    held: u64,
    floor: u64,
}

impl Claim {
    /// The account has counted them.
    pub(super) fn of(account: Account, held: u64) -> Self {
        Self { account: Some(account), held, floor: 0 }
    }

    /// The account has set them aside.
    pub(super) fn with_floor(account: Account, floor: u64) -> Self {
        Self { account: Some(account), held: 0, floor }
    }

    /// Bytes that are held.
    pub fn held(&self) -> u64 {
        self.held
    }

    /// Bytes that are held beyond those set aside.
    pub(crate) fn above_floor(&self) -> u64 {
        self.held.saturating_sub(self.floor)
    }

    /// Bytes that count: held or set aside.
    #[cfg(test)]
    pub(super) fn counted(&self) -> u64 {
        self.held.max(self.floor)
    }

    /// Holds so many more; an error, with who holds what, if they do not fit.
    pub fn grow(&mut self, bytes: u64) -> Result<()> {
        let beyond = self.beyond(bytes);
        if let Some(account) = &self.account
            && beyond > 0
        {
            account.take(beyond)?;
        }
        self.grown(bytes, beyond);
        Ok(())
    }

    /// The same without an error; whether they fit.
    pub fn try_grow(&mut self, bytes: u64) -> bool {
        let beyond = self.beyond(bytes);
        let had = beyond == 0 || self.account.is_none();
        let fits = had || self.account.as_ref().is_some_and(|account| account.try_take(beyond));
        if fits {
            self.grown(bytes, beyond);
        }
        fits
    }

    /// The same, unless more than one in `share` bytes of the limit would be held then. What is set aside
    /// can always be had.
    pub(crate) fn try_grow_to_share(&mut self, bytes: u64, share: u64) -> bool {
        let most = super::limit().map_or(u64::MAX, |limit| (limit / share).max(self.floor));
        self.held.saturating_add(bytes) <= most && self.try_grow(bytes)
    }

    /// Holds so many, more or fewer.
    pub fn resize(&mut self, bytes: u64) -> Result<()> {
        self.grow(bytes.saturating_sub(self.held))?;
        self.shrink(self.held - bytes);
        Ok(())
    }

    /// Holds so many fewer; at least none.
    pub fn shrink(&mut self, bytes: u64) {
        let bytes = bytes.min(self.held);
        self.held -= bytes;
        let beyond = self.beyond(bytes);
        if let Some(account) = &self.account {
            account.entry().let_go(bytes);
            account.entry().aside.fetch_add(bytes - beyond, SeqCst);
            account.give(beyond);
        }
    }

    /// Moves what is held to another account; nothing is set aside there.
    pub(crate) fn move_to(&mut self, named: &Named) {
        if let Some(account) = named.account() {
            self.move_into(account);
        }
    }

    pub(super) fn move_into(&mut self, account: &Account) {
        let Some(old) = self.account.clone().filter(|old| old.is_beside(account)) else { return };
        let aside = self.floor.saturating_sub(self.held);
        self.floor = 0;
        old.entry().aside.fetch_sub(aside, SeqCst);
        old.give(aside);
        old.entry().let_go(self.held);
        account.entry().hold(self.held);
        self.account = Some(account.clone());
    }

    /// Of so many bytes on top of what is held, those above the floor.
    fn beyond(&self, bytes: u64) -> u64 {
        let above = |held: u64| held.saturating_sub(self.floor);
        above(self.held.saturating_add(bytes)) - above(self.held)
    }

    fn grown(&mut self, bytes: u64, beyond: u64) {
        self.held += bytes;
        if let Some(account) = &self.account {
            account.entry().aside.fetch_sub(bytes - beyond, SeqCst);
            account.entry().hold(bytes);
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.shrink(self.held);
        if let Some(account) = &self.account {
            account.entry().aside.fetch_sub(self.floor, SeqCst);
            account.give(self.floor);
        }
    }
}

impl fmt::Debug for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.account.as_ref().map_or("nobody", |account| account.entry().name);
        write!(f, "Claim({} of {name})", Size(self.held))
    }
}
