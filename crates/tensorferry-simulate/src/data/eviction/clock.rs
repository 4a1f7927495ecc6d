//! Bytes to seconds.
//!
//! Loading a GPU's batch takes what its bytes take from each place, one place after the other (equation 1):
//! a GPU's share of its node's memory and of its node's network, and of the backend that all nodes share.
//! Each GPU loads and prepares up to [`Speeds::ahead`] batches before they are used, and all GPUs start
//! an iteration together, when the last batch is there. So time is lost where loading and preparing differ from
//! training (equation 2) by more than what was loaded ahead, and where GPUs differ (equation 3): the *gap*
//! is that between the slowest and the fastest batch of a node.

use std::collections::VecDeque;

use tensorferry::{Error, Result};

use super::setup::Setup;

/// What bytes and batches cost.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Speeds {
    /// Bytes a second from the backend, for all nodes together.
    pub backend: f64,
    /// Bytes a second that a node gets from its peers.
    pub peer: f64,
    /// Bytes a second from a node's own cache.
    pub local: f64,
    /// Seconds to prepare a batch.
    pub prepare_seconds: f64,
    /// Seconds to train with a batch.
    pub train_seconds: f64,
    /// Batches that each GPU loads ahead.
    pub ahead: u32,
}

/// The most batches loaded ahead.
const AHEAD_MAX: u32 = 4096;

impl Default for Speeds {
    fn default() -> Self {
        let (prepare_seconds, train_seconds) = (0.0, 0.1);
        Self { backend: 2e9, peer: 2.5e9, local: 1e10, prepare_seconds, train_seconds, ahead: 2 }
    }
}

impl Speeds {
    pub(super) fn check(&self) -> Result<()> {
        for (what, speed) in [("backend", self.backend), ("peer", self.peer), ("local", self.local)]
        {
            if !(speed >= 1.0 && speed.is_finite()) {
                return Err(Error::invalid(format!(
                    "a {what} bandwidth of {speed} bytes a second moves nothing; choose at least 1"
                )));
            }
        }
        for (what, seconds) in [("prepare", self.prepare_seconds), ("train", self.train_seconds)] {
            if !(seconds >= 0.0 && seconds.is_finite()) {
                return Err(Error::invalid(format!(
                    "{seconds} seconds to {what} a batch make no sense; choose 0 or more"
                )));
            }
        }
        if !(1..=AHEAD_MAX).contains(&self.ahead) {
            let given = self.ahead;
            return Err(Error::invalid(format!(
                "{given} batches can't be loaded ahead; choose 1 to {AHEAD_MAX}"
            )));
        }
        Ok(())
    }
}

/// Where a sample came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Local,
    Peer,
    Backend,
}

/// Seconds of a run, iteration by iteration.
#[derive(Debug)]
pub(super) struct Clock {
    gpus_a_node: usize,
    /// Seconds for a byte, by place, and those to prepare and to train.
    cost: [f64; 3],
    prepare: f64,
    train: f64,
    ahead: usize,
    /// Seconds to load each GPU's batch of this iteration.
    loading: Vec<f64>,
    /// When each GPU's last batch was ready.
    ready: Vec<f64>,
    /// When the last iterations started: a batch that is loaded ahead takes the place of theirs.
    started: VecDeque<f64>,
    trained: f64,
    gap: f64,
}

impl Clock {
    pub(super) fn new(setup: &Setup) -> Self {
        let Speeds { backend, peer, local, prepare_seconds, train_seconds, ahead } = setup.speeds;
        let (gpus, world) = (f64::from(setup.gpus), f64::from(setup.world_size()));
        Self {
            gpus_a_node: setup.gpus as usize,
            cost: [gpus / local, gpus / peer, world / backend],
            prepare: prepare_seconds,
            train: train_seconds,
            ahead: ahead as usize,
            loading: vec![0.0; setup.world_size() as usize],
            ready: vec![0.0; setup.world_size() as usize],
            started: VecDeque::new(),
            trained: 0.0,
            gap: 0.0,
        }
    }

    /// A GPU loads a sample for the current iteration.
    pub(super) fn load(&mut self, gpu: usize, bytes: u64, from: Place) {
        self.loading[gpu] += bytes as f64 * self.cost[from as usize];
    }

    /// All samples of the iteration were loaded.
    pub(super) fn end_iteration(&mut self) {
        let nodes = self.loading.chunks(self.gpus_a_node);
        let gaps = nodes.map(|node| {
            let slowest = node.iter().copied().fold(0.0, f64::max);
            slowest - node.iter().copied().fold(f64::INFINITY, f64::min)
        });
        self.gap += gaps.fold(0.0, f64::max);
        let room = if self.started.len() == self.ahead { self.started.pop_front() } else { None };
        let room = room.unwrap_or(0.0);
        let mut start = self.trained;
        for (ready, loading) in self.ready.iter_mut().zip(&mut self.loading) {
            *ready = ready.max(room) + *loading + self.prepare;
            *loading = 0.0;
            start = start.max(*ready);
        }
        self.started.push_back(start);
        self.trained = start + self.train;
    }

    /// Seconds since the start of the run, and the sum of the largest gaps of all iterations.
    pub(super) fn now(&self) -> (f64, f64) {
        (self.trained, self.gap)
    }
}
