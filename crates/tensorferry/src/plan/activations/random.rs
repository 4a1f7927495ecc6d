//! Made-up steps, to compare planners with.

use super::budget::minimum_budget;
use super::profile::{Codec, Disk, Profile, Tensor, Use, VERSION};

/// A step and the memory it gets.
#[derive(Debug, Clone, PartialEq)]
pub struct Case {
    /// The step.
    pub profile: Profile,
    /// Its budget, never below the least.
    pub budget: u64,
}

/// A sequence that looks random and follows from its seed.
#[derive(Debug, Clone)]
pub(in crate::plan) struct Chance(u64);

impl Chance {
    pub(in crate::plan) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// One of `0..below`; nothing else if that is empty.
    pub(in crate::plan) fn below(&mut self, below: usize) -> usize {
        (self.unit() * below as f64) as usize
    }

    /// From 0 to 1.
    pub(in crate::plan) fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ mixed >> 31) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Between the two, evenly in the logarithm.
    pub(in crate::plan) fn factor(&mut self, low: f64, high: f64) -> f64 {
        low * (high / low).powf(self.unit())
    }

    pub(in crate::plan) fn likely(&mut self, share: f64) -> bool {
        self.unit() < share
    }
}

/// A step with that many tensors: layers of unlike sizes and times, some of whose outputs hold many zeros;
/// backward goes through them in reverse, uses some twice and some never. The disk takes between a third of
/// forward and three times as long to write everything.
pub fn case(seed: u64, tensors: usize) -> Case {
    let mut chance = Chance::new(seed);
    let forward_seconds = chance.factor(0.05, 5.0);
    let backward_seconds = forward_seconds * chance.factor(0.8, 3.0);
    let tensors = saved(&mut chance, tensors, forward_seconds);
    let bytes: u64 = tensors.iter().map(|tensor| tensor.bytes).sum();
    let write = bytes as f64 / (forward_seconds * chance.factor(0.33, 3.0));
    let disk = Disk {
        write_bytes_per_second: write.max(1.0),
        read_bytes_per_second: (write * chance.factor(0.7, 2.5)).max(1.0),
        seconds_per_transfer: forward_seconds * chance.factor(1e-5, 1e-2)
            / tensors.len().max(1) as f64,
        awaited_write_speedup: chance.factor(1.0, 3.0),
        awaited_read_speedup: chance.factor(1.0, 3.0),
    };
    let codec = Codec {
        encode_bytes_per_second: (write * chance.factor(0.8, 10.0)).max(1.0),
        decode_bytes_per_second: (write * chance.factor(0.8, 10.0)).max(1.0),
    };
    let uses = uses(&mut chance, tensors.len(), backward_seconds);
    let profile =
        Profile { version: VERSION, tensors, uses, forward_seconds, backward_seconds, disk, codec };
    let least = minimum_budget(&profile);
    let share = chance.factor(0.02, 1.0);
    let budget = least + (bytes.saturating_sub(least) as f64 * share) as u64;
    Case { profile, budget }
}

fn saved(chance: &mut Chance, count: usize, forward_seconds: f64) -> Vec<Tensor> {
    let spread = chance.factor(1.0, 50.0);
    let zeros = chance.unit();
    let mut times: Vec<f64> = (0..count).map(|_| chance.unit() * forward_seconds).collect();
    times.sort_by(f64::total_cmp);
    let tensor = |(number, saved_at): (usize, f64)| {
        let bytes = chance.factor(4e6, 4e6 * spread) as u64;
        let ratio = if chance.likely(zeros) { chance.factor(1.05, 5.0) } else { 1.0 };
        let encoded_bytes = (bytes as f64 / ratio) as u64;
        Tensor { name: format!("layer {number}"), bytes, encoded_bytes, saved_at }
    };
    times.into_iter().enumerate().map(tensor).collect()
}

fn uses(chance: &mut Chance, tensors: usize, backward_seconds: f64) -> Vec<Use> {
    let step = backward_seconds / tensors.max(1) as f64;
    let mut uses = Vec::new();
    for tensor in 0..tensors {
        let times = if chance.likely(0.03) { 0 } else { 1 + usize::from(chance.likely(0.1)) };
        for _ in 0..times {
            let near = (tensors - 1 - tensor) as f64 + chance.unit() * 1.5;
            let at = (near * step).min(backward_seconds);
            let until = (at + step * chance.factor(0.1, 2.0)).min(backward_seconds);
            uses.push(Use { tensor, at, until });
        }
    }
    uses.sort_by(|a, b| a.at.total_cmp(&b.at));
    uses
}
