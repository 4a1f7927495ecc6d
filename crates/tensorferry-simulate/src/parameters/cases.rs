//! Made-up iterations, to compare planners with.

use tensorferry::plan::parameters::{
    Direction, Layer, Link, Planner, Profile, VERSION, minimum_budget,
};
use tensorferry::random::SplitMix64;

/// An iteration and the memory it gets.
#[derive(Debug, Clone, PartialEq)]
pub struct Case {
    /// The iteration.
    pub profile: Profile,
    /// Bytes for gradients.
    pub gradient_reserve: u64,
    /// Its budget, never below the least.
    pub budget: u64,
}

/// An iteration with that many layers of unlike sizes and times: tables of which a few rows are used, small
/// layers, matrices, and some without parameters or frozen. Copying everything takes between a quarter of
/// forward and six times as long. In every second case all parameters fit.
pub fn case(seed: u64, layers: usize) -> Case {
    let mut random = SplitMix64::new(seed);
    let forward_seconds = random.factor(0.02, 2.0);
    let bandwidth = 10e9 * random.factor(0.5, 3.0);
    let bytes = forward_seconds * random.factor(0.25, 6.0) * bandwidth / layers.max(1) as f64;
    let mut usual = Usual {
        seconds: forward_seconds / layers.max(1) as f64,
        bytes,
        backward: random.factor(1.2, 2.5),
        update: random.factor(0.05, 3.0) * forward_seconds / layers.max(1) as f64,
        link: link(&mut random, bandwidth),
        random,
    };
    let layers = (0..layers).map(|number| usual.layer(number)).collect();
    let Usual { link, mut random, .. } = usual;
    let work_bytes = (random.unit() * 1e9) as u64;
    let source = format!("made up from seed {seed}");
    let profile = Profile { version: VERSION, source, layers, link, work_bytes };
    let share = if random.likely(0.5) { 1.0 } else { random.unit() };
    let gradient_reserve = (profile.gradient_bytes() as f64 * share) as u64;
    let least = minimum_budget(&profile, gradient_reserve, Planner::Paper);
    let share = if random.likely(0.5) { 1.0 } else { random.unit() };
    let budget = least + (profile.parameter_bytes() as f64 * share) as u64;
    Case { profile, gradient_reserve, budget }
}

fn link(random: &mut SplitMix64, bandwidth: f64) -> Link {
    let direction = |random: &mut SplitMix64| Direction {
        bytes_per_second: bandwidth * random.factor(0.7, 1.4),
        latency_seconds: random.factor(1e-6, 1e-4),
    };
    Link {
        inwards: direction(random),
        outwards: direction(random),
        direct_slowdown: random.factor(1.0, 1.5),
        direct_shares: random.likely(0.7),
    }
}

/// What layers are like on average.
struct Usual {
    random: SplitMix64,
    seconds: f64,
    bytes: f64,
    backward: f64,
    update: f64,
    link: Link,
}

impl Usual {
    fn layer(&mut self, number: usize) -> Layer {
        let kind = self.random.unit();
        let random = &mut self.random;
        // Tables are large and quick, small layers are both small and quick.
        let (bytes, seconds, read) = match kind {
            table if table < 0.15 => (random.factor(1.0, 8.0), 0.1, random.factor(1e-3, 0.1)),
            small if small < 0.4 => (random.factor(1e-4, 1e-2), 0.2, 1.0),
            none if none < 0.45 => (0.0, 1.0, 0.0),
            _ => (random.factor(0.2, 2.0), 1.5, random.factor(1.0, 6.0)),
        };
        let parameter_bytes = (self.bytes * bytes) as u64;
        let forward_seconds = self.seconds * seconds * random.factor(0.3, 2.0);
        let backward_seconds = forward_seconds * self.backward * random.factor(0.7, 1.4);
        let is_frozen = parameter_bytes == 0 || random.likely(0.05);
        let gradient_bytes = if is_frozen { 0 } else { parameter_bytes };
        let mut direct = |seconds: f64, read: f64| {
            let bytes = parameter_bytes as f64 * read;
            let link = self.link.inwards.seconds(bytes * self.link.direct_slowdown);
            (bytes as u64, seconds.max(link) * random.factor(1.0, 1.2))
        };
        let (direct_forward_bytes, direct_forward_seconds) = direct(forward_seconds, read);
        let (direct_backward_bytes, direct_backward_seconds) =
            direct(backward_seconds, if read < 1.0 { 0.0 } else { read });
        let written = self.link.outwards.seconds(gradient_bytes as f64);
        Layer {
            name: format!("layer {number}"),
            parameter_bytes,
            gradient_bytes,
            forward_seconds,
            backward_seconds,
            direct_forward_seconds,
            direct_backward_seconds,
            direct_forward_bytes,
            direct_backward_bytes,
            direct_gradient_seconds: written * self.random.unit(),
            update_seconds: if is_frozen { 0.0 } else { self.update * bytes.min(2.0) },
            copy_seconds: None,
            gradient_copy_seconds: None,
        }
    }
}
