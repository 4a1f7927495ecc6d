//! Made-up steps, to compare planners with.

use tensorferry::plan::activations::{Codec, Disk, Profile, Tensor, Use, VERSION, minimum_budget};
use tensorferry::random::SplitMix64;

/// A step and the memory it gets.
#[derive(Debug, Clone, PartialEq)]
pub struct Case {
    /// The step.
    pub profile: Profile,
    /// Its budget, never below the least.
    pub budget: u64,
}

/// A step with that many tensors: layers of unlike sizes and times, some of whose outputs hold many zeros;
/// backward goes through them in reverse, uses some twice and some never. The disk takes between a third of
/// forward and three times as long to write everything.
pub fn case(seed: u64, tensors: usize) -> Case {
    let mut random = SplitMix64::new(seed);
    let forward_seconds = random.factor(0.05, 5.0);
    let backward_seconds = forward_seconds * random.factor(0.8, 3.0);
    let tensors = saved(&mut random, tensors, forward_seconds);
    let bytes: u64 = tensors.iter().map(|tensor| tensor.bytes).sum();
    let write = bytes as f64 / (forward_seconds * random.factor(0.33, 3.0));
    let disk = Disk {
        write_bytes_per_second: write.max(1.0),
        read_bytes_per_second: (write * random.factor(0.7, 2.5)).max(1.0),
        seconds_per_transfer: forward_seconds * random.factor(1e-5, 1e-2)
            / tensors.len().max(1) as f64,
        awaited_write_speedup: random.factor(1.0, 3.0),
        awaited_read_speedup: random.factor(1.0, 3.0),
    };
    let codec = Codec {
        encode_bytes_per_second: (write * random.factor(0.8, 10.0)).max(1.0),
        decode_bytes_per_second: (write * random.factor(0.8, 10.0)).max(1.0),
    };
    let uses = uses(&mut random, tensors.len(), backward_seconds);
    let profile =
        Profile { version: VERSION, tensors, uses, forward_seconds, backward_seconds, disk, codec };
    let least = minimum_budget(&profile);
    let share = random.factor(0.02, 1.0);
    let budget = least + (bytes.saturating_sub(least) as f64 * share) as u64;
    Case { profile, budget }
}

fn saved(random: &mut SplitMix64, count: usize, forward_seconds: f64) -> Vec<Tensor> {
    let spread = random.factor(1.0, 50.0);
    let zeros = random.unit();
    let mut times: Vec<f64> = (0..count).map(|_| random.unit() * forward_seconds).collect();
    times.sort_by(f64::total_cmp);
    let tensor = |(number, saved_at): (usize, f64)| {
        let bytes = random.factor(4e6, 4e6 * spread) as u64;
        let ratio = if random.likely(zeros) { random.factor(1.05, 5.0) } else { 1.0 };
        let encoded_bytes = (bytes as f64 / ratio) as u64;
        Tensor { name: format!("layer {number}"), bytes, encoded_bytes, saved_at }
    };
    times.into_iter().enumerate().map(tensor).collect()
}

fn uses(random: &mut SplitMix64, tensors: usize, backward_seconds: f64) -> Vec<Use> {
    let step = backward_seconds / tensors.max(1) as f64;
    let mut uses = Vec::new();
    for tensor in 0..tensors {
        let times = if random.likely(0.03) { 0 } else { 1 + usize::from(random.likely(0.1)) };
        for _ in 0..times {
            let near = (tensors - 1 - tensor) as f64 + random.unit() * 1.5;
            let at = (near * step).min(backward_seconds);
            let until = (at + step * random.factor(0.1, 2.0)).min(backward_seconds);
            uses.push(Use { tensor, at, until });
        }
    }
    uses.sort_by(|a, b| a.at.total_cmp(&b.at));
    uses
}
