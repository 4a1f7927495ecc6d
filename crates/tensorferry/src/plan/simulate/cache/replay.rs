//! One policy, use by use.

use serde::Serialize;

use super::clock::{Clock, Place};
use super::itinerary::Itinerary;
use super::setup::Setup;
use crate::error::Result;
use crate::plan::eviction::{Copies, Moment, Policy, Shelf, Use};

/// What one epoch, or several, came to.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Tally {
    /// Samples used by all GPUs.
    pub uses: u64,
    /// Of them, from the node's own cache.
    pub local_hits: u64,
    /// From another node's cache.
    pub peer_hits: u64,
    /// Bytes from the node's own cache.
    pub local_bytes: u64,
    /// Bytes from other nodes' caches.
    pub peer_bytes: u64,
    /// Bytes from the backend.
    pub backend_bytes: u64,
    /// Predicted time.
    pub seconds: f64,
    /// Predicted difference between the slowest and the fastest batch of a node, in its worst node, summed
    /// over the iterations.
    pub gap_seconds: f64,
}

impl Tally {
    /// Part of the uses that the node's own cache served.
    pub fn local_ratio(&self) -> f64 {
        self.local_hits as f64 / self.uses.max(1) as f64
    }

    /// Part of the uses that another node's cache served.
    pub fn peer_ratio(&self) -> f64 {
        self.peer_hits as f64 / self.uses.max(1) as f64
    }

    pub(super) fn plus(self, other: &Self) -> Self {
        Self {
            uses: self.uses + other.uses,
            local_hits: self.local_hits + other.local_hits,
            peer_hits: self.peer_hits + other.peer_hits,
            local_bytes: self.local_bytes + other.local_bytes,
            peer_bytes: self.peer_bytes + other.peer_bytes,
            backend_bytes: self.backend_bytes + other.backend_bytes,
            seconds: self.seconds + other.seconds,
            gap_seconds: self.gap_seconds + other.gap_seconds,
        }
    }

    fn count(&mut self, bytes: u64, from: Place) {
        self.uses += 1;
        match from {
            Place::Local => {
                self.local_hits += 1;
                self.local_bytes += bytes;
            }
            Place::Peer => {
                self.peer_hits += 1;
                self.peer_bytes += bytes;
            }
            Place::Backend => self.backend_bytes += bytes,
        }
    }
}

/// Uses between two reports of progress.
const REPORTED_EVERY: u64 = 1 << 20;

/// Simulates all epochs under one policy.
pub(super) fn replay(
    setup: &Setup,
    policy: Policy,
    itinerary: &Itinerary,
    mut progress: impl FnMut(f64),
) -> Result<Vec<Tally>> {
    let mut cluster = Cluster::new(setup, policy, itinerary);
    let mut order = setup.order(0)?;
    let mut tallies = Vec::new();
    for epoch in 0..setup.epochs {
        let last = epoch + 1 == setup.epochs;
        let next = if last { Vec::new() } else { setup.order(epoch + 1)? };
        cluster.look_ahead(&next);
        let told = |done| progress((f64::from(epoch) + done) / f64::from(setup.epochs));
        tallies.push(cluster.run(epoch, &order, told));
        order = next;
    }
    Ok(tallies)
}

/// All nodes.
struct Cluster<'a> {
    setup: &'a Setup,
    policy: Policy,
    itinerary: &'a Itinerary,
    shelves: Vec<Shelf>,
    /// How many nodes keep each sample, where that matters.
    copies: Vec<u16>,
    /// Where each sample stands in the next epoch, where that matters.
    positions: Vec<u32>,
    clock: Clock,
    evicted: Vec<u32>,
}

impl<'a> Cluster<'a> {
    fn new(setup: &'a Setup, policy: Policy, itinerary: &'a Itinerary) -> Self {
        Self {
            setup,
            policy,
            itinerary,
            shelves: (0..setup.nodes).map(|_| Shelf::new(policy, setup.cache)).collect(),
            copies: if setup.peers { vec![0; setup.samples as usize] } else { Vec::new() },
            positions: Vec::new(),
            clock: Clock::new(setup),
            evicted: Vec::new(),
        }
    }

    fn look_ahead(&mut self, order: &[u32]) {
        if self.policy.needs_positions() {
            self.positions.resize(order.len(), 0);
            for (position, id) in (0u32..).zip(order) {
                self.positions[*id as usize] = position;
            }
        }
    }

    fn run(&mut self, epoch: u32, order: &[u32], mut progress: impl FnMut(f64)) -> Tally {
        let (uses, stride) = (self.setup.uses(), self.setup.stride());
        let world = u64::from(self.setup.world_size());
        let mut tally = Tally::default();
        let before = self.clock.now();
        for (use_, id) in (0..uses).zip(order.iter().cycle()) {
            let gpu = (use_ % world) as u32;
            let now = Moment { epoch, position: use_ as u32 };
            let from = self.use_sample(*id, gpu / self.setup.gpus, now);
            let bytes = self.setup.sizes.of(*id);
            tally.count(bytes, from);
            self.clock.load(gpu as usize, bytes, from);
            if (use_ + 1) % stride == 0 || use_ + 1 == uses {
                self.clock.end_iteration();
            }
            if use_ % REPORTED_EVERY == 0 {
                progress(use_ as f64 / uses as f64);
            }
        }
        let after = self.clock.now();
        (tally.seconds, tally.gap_seconds) = (after.0 - before.0, after.1 - before.1);
        tally
    }

    /// A node uses a sample: where it came from, and what the shelf makes of it.
    fn use_sample(&mut self, id: u32, node: u32, now: Moment) -> Place {
        let is_local = self.shelves[node as usize].contains(id);
        let elsewhere = self.setup.peers && self.copies[id as usize] > u16::from(is_local);
        let use_ = self.describe(id, node, now, elsewhere);
        let shelf = &mut self.shelves[node as usize];
        let is_kept = if is_local {
            shelf.touch(id, &use_)
        } else {
            shelf.admit(id, self.setup.sizes.of(id), &use_, &mut self.evicted)
        };
        if self.setup.peers {
            self.evicted.iter().for_each(|id| self.copies[*id as usize] -= 1);
            let copies = &mut self.copies[id as usize];
            *copies = *copies + u16::from(is_kept) - u16::from(is_local);
        }
        self.evicted.clear();
        match (is_local, elsewhere) {
            (true, _) => Place::Local,
            (false, true) => Place::Peer,
            (false, false) => Place::Backend,
        }
    }

    fn describe(&self, id: u32, node: u32, now: Moment, elsewhere: bool) -> Use {
        let copies = match (self.setup.peers, elsewhere) {
            (false, _) => Copies::Private,
            (true, false) => Copies::Only,
            (true, true) => Copies::Several,
        };
        let mut use_ = Use { now, next: None, uses: 0, copies };
        match self.policy {
            Policy::Lru | Policy::NeverEvict => {}
            Policy::NoPfs => use_.uses = self.itinerary.uses(id, node),
            Policy::Lobster | Policy::Belady => use_.next = self.next(id, node, now),
        }
        use_
    }

    /// The next use; its position only in the next epoch, and for who asks.
    fn next(&self, id: u32, node: u32, now: Moment) -> Option<Moment> {
        let epoch = self.itinerary.next(id, node, now.epoch)?;
        if epoch - now.epoch > self.setup.foresight {
            return None;
        }
        let known = self.policy.needs_positions() && epoch == now.epoch + 1;
        let position = if known { self.positions[id as usize] } else { 0 };
        Some(Moment { epoch, position })
    }
}
