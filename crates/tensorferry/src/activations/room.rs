//! The room that the budget has for tensors: how much is used, and for whom more comes free.
//!
//! ```text
//!   limit = used + free;    free = claimed by those who wait + spare, for what is fetched ahead
//! ```
//!
//! What comes free is for callers that wait, and for tensors that backward waits for. Only what is left
//! beside them is for fetching ahead, so that each tensor that is let go of brings a waiting caller nearer.

use std::collections::BTreeMap;

/// Bytes of tensors in memory, within a limit.
#[derive(Debug)]
pub(super) struct Room {
    /// The budget without staging.
    limit: u64,
    used: u64,
    /// Bytes that callers wait for.
    wanted: u64,
    /// Bytes of the tensors that backward waits for and that get no room yet, by key. A tensor stays here while
    /// its caller looks after something else for a moment: what was fetched ahead then would only be let go
    /// of again.
    awaited: BTreeMap<u64, u64>,
    /// Fetching ahead has stopped for want of room.
    pub is_full: bool,
}

impl Room {
    pub fn new(limit: u64) -> Self {
        Self { limit, used: 0, wanted: 0, awaited: BTreeMap::new(), is_full: false }
    }

    pub fn limit(&self) -> u64 {
        self.limit
    }

    pub fn used(&self) -> u64 {
        self.used
    }

    /// So many bytes more are in memory.
    pub fn take(&mut self, bytes: u64) {
        self.used += bytes;
    }

    /// So many bytes are free again.
    pub fn give_back(&mut self, bytes: u64) {
        self.used -= bytes;
    }

    /// Whether so many bytes fit beside what is used.
    pub fn fits(&self, bytes: u64) -> bool {
        self.used + bytes <= self.limit
    }

    /// How many bytes have to leave for so many to fit.
    pub fn missing_for(&self, bytes: u64) -> u64 {
        (self.used + bytes).saturating_sub(self.limit)
    }

    /// Whether so many bytes may be fetched ahead.
    pub fn has_spare(&self, bytes: u64) -> bool {
        self.fits(self.claimed() + bytes)
    }

    /// Bytes that come free and are not for fetching ahead.
    pub fn claimed(&self) -> u64 {
        self.wanted + self.awaited.values().sum::<u64>()
    }

    /// A caller begins to wait for so many bytes.
    pub fn wait_begins(&mut self, bytes: u64) {
        self.wanted += bytes;
    }

    /// It has them, or gives up.
    pub fn wait_ends(&mut self, bytes: u64) {
        self.wanted -= bytes;
    }

    /// Backward waits for a tensor of so many bytes that gets no room yet.
    pub fn await_tensor(&mut self, key: u64, bytes: u64) {
        self.awaited.insert(key, bytes);
    }

    /// The tensor has room, or is not waited for any more.
    pub fn settle_tensor(&mut self, key: u64) {
        self.awaited.remove(&key);
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn what_is_waited_for_is_not_there_for_fetching_ahead() {
        let mut room = Room::new(100);
        room.take(40);
        assert!(room.has_spare(60) && !room.has_spare(61));
        room.wait_begins(20);
        assert!(room.fits(60), "for who waits");
        assert!(room.has_spare(40) && !room.has_spare(41));
        room.await_tensor(1, 15);
        room.await_tensor(1, 15);
        assert!(room.has_spare(25) && !room.has_spare(26), "a tensor counts once");
        room.settle_tensor(1);
        room.wait_ends(20);
        assert_eq!(room.claimed(), 0);
        assert!(room.has_spare(60));
    }

    #[test]
    fn missing_is_what_has_to_leave() {
        let mut room = Room::new(100);
        room.take(90);
        assert_eq!((room.missing_for(10), room.missing_for(30)), (0, 20));
        room.give_back(90);
        assert_eq!((room.used(), room.missing_for(101)), (0, 1));
    }
}
