//! One bounded tier of one node.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use super::moment::Use;
use super::policy::{Policy, Rank};
use super::queue::Queue;

/// The largest sample that is kept, in bytes: a larger one would be most of a cache by itself, and its
/// size would not fit in 32 bits.
pub const SAMPLE_BYTES_MAX: u64 = u32::MAX as u64;

/// Which samples are kept, and which goes first. It never holds more bytes than its capacity.
///
/// It takes about 50 bytes for each sample kept, and nothing for the others.
#[derive(Debug)]
pub struct Tier {
    policy: Policy,
    capacity: u64,
    used: u64,
    kept: HashMap<u32, Kept, BuildHasherDefault<Spread>>,
    queue: Queue,
    /// Those that leave for one admission; empty between them.
    leaving: Vec<(u32, Kept)>,
}

#[derive(Debug, Clone, Copy)]
struct Kept {
    rank: Rank,
    bytes: u32,
}

impl Tier {
    /// An empty one.
    pub fn new(policy: Policy, capacity: u64) -> Self {
        let queue = Queue::new(policy);
        let leaving = Vec::new();
        Self { policy, capacity, used: 0, kept: HashMap::default(), queue, leaving }
    }

    /// Bytes of what is kept.
    pub const fn used(&self) -> u64 {
        self.used
    }

    /// Bytes of what may be kept.
    pub const fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Keeps at most so many bytes from now on, and adds to `evicted` what has to go for it.
    pub fn limit_to(&mut self, capacity: u64, evicted: &mut Vec<u32>) {
        self.capacity = capacity;
        while self.used > capacity {
            let Some(id) = self.pop_current() else { return };
            self.remove(id);
            evicted.push(id);
        }
    }

    /// How many samples are kept.
    pub fn len(&self) -> usize {
        self.kept.len()
    }

    /// Whether nothing is kept.
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// Whether this sample is kept.
    pub fn contains(&self, id: u32) -> bool {
        self.kept.contains_key(&id)
    }

    /// A kept sample was used. Gives whether it still is kept: a policy may let go of what was used up.
    pub fn touch(&mut self, id: u32, use_: &Use) -> bool {
        let Some(kept) = self.kept.get_mut(&id) else { return false };
        let Some(rank) = self.policy.rank_again(kept.rank, use_) else {
            self.remove(id);
            return false;
        };
        if kept.rank != rank {
            kept.rank = rank;
            self.enqueue(rank, id);
        }
        true
    }

    /// A sample that was not kept was used and could be. Gives whether it is kept from now on, and adds
    /// to `evicted` what had to go for it. Nothing goes for a sample that is refused.
    pub fn admit(&mut self, id: u32, bytes: u64, use_: &Use, evicted: &mut Vec<u32>) -> bool {
        if self.contains(id) {
            return self.touch(id, use_);
        }
        if bytes > self.capacity.min(SAMPLE_BYTES_MAX) {
            return false;
        }
        let Some(rank) = self.policy.rank(use_) else { return false };
        if !self.make_room(bytes, rank, evicted) {
            return false;
        }
        self.used += bytes;
        self.kept.insert(id, Kept { rank, bytes: bytes as u32 });
        self.enqueue(rank, id);
        true
    }

    /// Lets go of a sample, whatever the policy says: because it turned out to be damaged, say.
    pub fn remove(&mut self, id: u32) -> Option<u64> {
        let bytes = u64::from(self.kept.remove(&id)?.bytes);
        self.used -= bytes;
        Some(bytes)
    }

    /// Evicts samples of a higher rank until `bytes` fit; none if they can't be made to.
    fn make_room(&mut self, bytes: u64, rank: Rank, evicted: &mut Vec<u32>) -> bool {
        while self.capacity - self.used < bytes {
            let Some(id) = self.pop_above(rank) else {
                self.take_back();
                return false;
            };
            if let Some(kept) = self.kept.remove(&id) {
                self.used -= u64::from(kept.bytes);
                self.leaving.push((id, kept));
            }
        }
        evicted.extend(self.leaving.drain(..).map(|(id, _)| id));
        true
    }

    fn take_back(&mut self) {
        while let Some((id, kept)) = self.leaving.pop() {
            self.used += u64::from(kept.bytes);
            self.kept.insert(id, kept);
            self.queue.restore(kept.rank, id);
        }
    }

    /// Takes the kept sample of the highest rank from the queue, if that is above `rank`.
    fn pop_above(&mut self, rank: Rank) -> Option<u32> {
        self.pop_if(|highest| highest > rank)
    }

    /// Takes the kept sample of the highest rank from the queue, if there is one.
    fn pop_current(&mut self) -> Option<u32> {
        self.pop_if(|_| true)
    }

    fn pop_if(&mut self, may_go: impl Fn(Rank) -> bool) -> Option<u32> {
        loop {
            let (highest, id) = self.queue.peek()?;
            let is_current = self.kept.get(&id).is_some_and(|kept| kept.rank == highest);
            if is_current && !may_go(highest) {
                return None;
            }
            self.queue.pop();
            if is_current {
                return Some(id);
            }
        }
    }

    /// Entries of the queue, outdated ones included.
    #[cfg(test)]
    pub(super) fn queued(&self) -> usize {
        self.queue.entries()
    }

    fn enqueue(&mut self, rank: Rank, id: u32) {
        self.queue.push(rank, id);
        if self.queue.is_slack(self.kept.len()) {
            self.queue.rebuild(self.kept.iter().map(|(id, kept)| (kept.rank, *id)));
        }
    }
}

/// Spreads ids, which are no secret and come from no adversary, over a table.
#[derive(Debug, Default, Clone, Copy)]
struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u32((*byte).into());
        }
    }

    fn write_u32(&mut self, number: u32) {
        let mixed = (self.0 ^ u64::from(number)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        // The table looks at the lowest and at the highest bits.
        self.0 = mixed ^ (mixed >> 32);
    }
}
