//! Made-up traces for tests: machines whose truth is known.

use super::trace::{Step, Trace};
use tensorferry::plan::checkpoint::Tool;
use tensorferry::plan::checkpoint::{Reading, Writing};
use tensorferry::random::SplitMix64;

/// 4 KiB to 1 GiB.
pub(crate) const SIZES: [u64; 10] =
    [1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24, 1 << 26, 1 << 28, 1 << 30];

/// Microseconds and gigabytes a second of direct, buffered, mapped, torch and numpy.
pub(crate) type Machine = [(f64, f64); 5];

/// A file system, and how is written and read there.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub(crate) mount: &'static str,
    pub(crate) situation: (Writing, Reading),
    pub(crate) write: Machine,
    pub(crate) read: Machine,
}

const NEVER: (f64, f64) = (0.0, 0.0);

/// A disk, past the page cache.
pub(crate) const DISK: Place = Place {
    mount: "disk",
    situation: (Writing::Durable, Reading::Cold),
    write: [(450.0, 2.1), (440.0, 1.3), NEVER, (800.0, 0.6), (550.0, 0.8)],
    read: [(150.0, 2.9), (170.0, 1.7), (180.0, 1.8), (400.0, 1.0), (250.0, 1.2)],
};
/// The same disk, through the page cache.
pub(crate) const CACHE: Place = Place {
    mount: "disk",
    situation: (Writing::Relaxed, Reading::Warm),
    write: [(160.0, 2.0), (30.0, 4.0), NEVER, (300.0, 1.5), (90.0, 2.2)],
    read: [(100.0, 2.8), (40.0, 8.0), (45.0, 6.5), (180.0, 2.5), (70.0, 3.0)],
};
/// A file system on which nearly nothing is as the rule has it: latencies of milliseconds over a network, and
/// past the page cache everything takes twice as long.
pub(crate) const REMOTE: Place = Place {
    mount: "remote",
    situation: (Writing::Durable, Reading::Cold),
    write: [(12_000.0, 0.5), (6000.0, 1.0), NEVER, (9000.0, 0.6), (7000.0, 0.8)],
    read: [(6000.0, 0.55), (3000.0, 1.1), (8000.0, 0.5), (6000.0, 0.7), (3500.0, 1.0)],
};
pub(crate) const MIXTURE: &[Place] = &[DISK, CACHE, REMOTE];

/// How a made-up machine behaves.
pub(crate) struct Recipe {
    pub(crate) places: Vec<Place>,
    pub(crate) steps: usize,
    /// Standard deviation of the logarithm.
    pub(crate) noise: f64,
    /// Share of times that are two to five times as long.
    pub(crate) outliers: f64,
    /// Factor on a time at a part (0 to 1) of the run, for writing (true) or reading, and its phase.
    pub(crate) factor: fn(f64, bool, Tool, u64) -> f64,
    pub(crate) phases: usize,
}

pub(crate) fn steady(_: f64, _: bool, _: Tool, _: u64) -> f64 {
    1.0
}

/// A trace whose sizes take about as much time each.
pub(crate) fn record(recipe: &Recipe, seed: u64) -> Trace {
    let mut random = SplitMix64::new(seed);
    let phases: Vec<_> = (0..recipe.phases).map(|number| format!("phase {number}")).collect();
    let steps = (0..recipe.steps).map(|number| {
        let part = number as f64 / recipe.steps as f64;
        let size = size(&mut random);
        let place = recipe.places[below(&mut random, recipe.places.len())];
        let mut time = |write: bool, tool: Tool| {
            let machine = if write { place.write } else { place.read };
            let number = Tool::ALL.iter().position(|other| *other == tool).unwrap();
            let (micros, gigabytes) = machine[number];
            let expected = micros * 1e-6 + size as f64 / (gigabytes * 1e9);
            (tool, expected * (recipe.factor)(part, write, tool, size) * recipe.noise(&mut random))
        };
        let writers = Tool::ALL.into_iter().filter(|tool| tool.writes());
        Step {
            phase: phases[(part * recipe.phases as f64) as usize].clone(),
            mount: place.mount.to_owned(),
            size,
            write: writers.map(|tool| time(true, tool)).collect(),
            read: Tool::ALL.into_iter().map(|tool| time(false, tool)).collect(),
            situation: place.situation,
        }
    });
    let steps = steps.collect();
    Trace { machine: "made up".into(), phases, steps }
}

/// Large ones are the rarer, so that each size takes about as much time, within bounds.
fn size(random: &mut SplitMix64) -> u64 {
    loop {
        let size = SIZES[below(random, SIZES.len())];
        if random.unit() < (16.0 * f64::from(1 << 20) / size as f64).max(1.0 / 16.0) {
            return size;
        }
    }
}

impl Recipe {
    fn noise(&self, random: &mut SplitMix64) -> f64 {
        let outlier = if random.unit() < self.outliers { 2.0 + 3.0 * random.unit() } else { 1.0 };
        outlier * (self.noise * normal(random)).exp()
    }

    /// Every tool faster or slower at latency and bandwidth, each by up to a factor of two.
    pub(crate) fn scaled(mut self, seed: u64) -> Self {
        let mut random = SplitMix64::new(seed);
        for place in &mut self.places {
            for (micros, gigabytes) in place.write.iter_mut().chain(&mut place.read) {
                *micros *= 4f64.powf(random.unit() - 0.5);
                *gigabytes *= 4f64.powf(random.unit() - 0.5);
            }
        }
        self
    }
}

/// A whole number below `end`.
fn below(random: &mut SplitMix64, end: usize) -> usize {
    (random.draw() >> 33) as usize % end
}

/// Nearly: the sum of twelve.
fn normal(random: &mut SplitMix64) -> f64 {
    (0..12).map(|_| random.unit()).sum::<f64>() - 6.0
}
