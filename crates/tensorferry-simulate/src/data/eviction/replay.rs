//! One policy, use by use.

use serde::Serialize;
use tensorferry::Result;
use tensorferry::plan::data::eviction::{Copies, Moment, Policy, Tier, Use};

use super::clock::{Clock, Place};
use super::itinerary::Itinerary;
use super::setup::Setup;

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

/// Uses that are looked up together, so that the processor waits for memory once for several of them.
const BLOCK: u64 = 256;
/// Uses between two reports of progress: whole blocks.
const REPORTED_EVERY: u64 = BLOCK << 12;

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

/// A use before its turn.
#[derive(Debug, Clone, Copy)]
struct Foreseen {
    id: u32,
    gpu: u32,
    node: u32,
    use_: Use,
}

/// All nodes.
struct Cluster<'a> {
    setup: &'a Setup,
    policy: Policy,
    itinerary: &'a Itinerary,
    tier: Vec<Tier>,
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
            tier: (0..setup.nodes).map(|_| Tier::new(policy, setup.cache)).collect(),
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
        let uses = self.setup.uses();
        let mut tally = Tally::default();
        let before = self.clock.now();
        let mut coming = order.iter().cycle();
        let mut block = Vec::with_capacity(BLOCK as usize);
        for start in (0..uses).step_by(BLOCK as usize) {
            let places = start..uses.min(start + BLOCK);
            let known = places.zip(&mut coming).map(|(place, id)| self.foresee(*id, place, epoch));
            block.extend(known);
            block.drain(..).for_each(|foreseen| self.step(&foreseen, &mut tally));
            if start.is_multiple_of(REPORTED_EVERY) {
                progress(start as f64 / uses as f64);
            }
        }
        if !uses.is_multiple_of(self.setup.stride()) {
            self.clock.end_iteration();
        }
        let after = self.clock.now();
        (tally.seconds, tally.gap_seconds) = (after.0 - before.0, after.1 - before.1);
        tally
    }

    fn step(&mut self, foreseen: &Foreseen, tally: &mut Tally) {
        let id = foreseen.id;
        let from = self.use_sample(foreseen);
        let bytes = self.setup.sizes.of(id);
        tally.count(bytes, from);
        self.clock.load(foreseen.gpu as usize, bytes, from);
        if (u64::from(foreseen.use_.now.position) + 1).is_multiple_of(self.setup.stride()) {
            self.clock.end_iteration();
        }
    }

    /// What is known of a use whatever happens before it.
    fn foresee(&self, id: u32, place: u64, epoch: u32) -> Foreseen {
        let gpu = (place % u64::from(self.setup.world_size())) as u32;
        let node = gpu / self.setup.gpus;
        // Only to have what is known of the sample in the processor's cache when its turn comes.
        std::hint::black_box(self.tier[node as usize].contains(id));
        let now = Moment { epoch, position: place as u32 };
        let mut use_ = Use { now, ..Use::default() };
        match self.policy {
            Policy::Lru | Policy::NeverEvict => {}
            Policy::NoPfs => use_.uses = self.itinerary.uses(id, node),
            Policy::Lobster | Policy::Belady => use_.next = self.next(id, node, now),
        }
        Foreseen { id, gpu, node, use_ }
    }

    /// A node uses a sample: where it came from, and what the tier makes of it.
    fn use_sample(&mut self, foreseen: &Foreseen) -> Place {
        let Foreseen { id, node, mut use_, .. } = *foreseen;
        let own = &mut self.tier[node as usize];
        let is_local = own.contains(id);
        let elsewhere = self.setup.peers && self.copies[id as usize] > u16::from(is_local);
        use_.copies = match (self.setup.peers, elsewhere) {
            (false, _) => Copies::Private,
            (true, false) => Copies::Only,
            (true, true) => Copies::Several,
        };
        let is_kept = if is_local {
            own.touch(id, &use_)
        } else {
            own.admit(id, self.setup.sizes.of(id), &use_, &mut self.evicted)
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
