//! Made-up traces for tests: machines whose truth is known.

use super::trace::{Step, Trace};
use crate::plan::checkpoint::ask::{Reading, Writing};
use crate::plan::checkpoint::tool::Tool;

/// 4 KiB to 1 GiB.
pub(crate) const SIZES: [u64; 10] =
    [1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24, 1 << 26, 1 << 28, 1 << 30];

/// Microseconds and gigabytes a second of direct, buffered, mapped, torch and numpy.
pub(crate) type Machine = [(f64, f64); 5];

pub(crate) const WRITE: Machine =
    [(150.0, 1.1), (60.0, 0.7), (0.0, 0.0), (300.0, 0.3), (110.0, 0.45)];
pub(crate) const READ: Machine =
    [(120.0, 2.0), (90.0, 1.2), (60.0, 1.0), (400.0, 0.6), (150.0, 0.9)];

/// Writing and reading where the page cache wins, the other way round than the built-in table has it.
pub(crate) const CACHED: (Machine, Machine) = (
    [(900.0, 0.4), (100.0, 1.1), (0.0, 0.0), (350.0, 0.5), (200.0, 0.8)],
    [(800.0, 0.5), (120.0, 1.6), (150.0, 1.3), (500.0, 0.7), (300.0, 1.0)],
);
/// Writing and reading over a network: latencies of milliseconds, and hardly a difference for large
/// objects.
pub(crate) const REMOTE: (Machine, Machine) = (
    [(9000.0, 0.11), (6000.0, 0.10), (0.0, 0.0), (12_000.0, 0.08), (7000.0, 0.105)],
    [(3000.0, 0.11), (4000.0, 0.10), (8000.0, 0.05), (6000.0, 0.09), (3500.0, 0.115)],
);

/// How a made-up machine behaves.
pub(crate) struct Recipe {
    /// For writing and for reading.
    pub(crate) machine: (Machine, Machine),
    pub(crate) steps: usize,
    /// Standard deviation of the logarithm.
    pub(crate) noise: f64,
    /// Share of times that are two to five times as long.
    pub(crate) outliers: f64,
    /// Factor on a time at a part (0 to 1) of the run, for writing (true) or reading, and its phase.
    pub(crate) factor: fn(f64, bool, Tool, u64) -> f64,
    pub(crate) phase: fn(f64) -> usize,
    pub(crate) phases: usize,
}

pub(crate) fn steady(_: f64, _: bool, _: Tool, _: u64) -> f64 {
    1.0
}

pub(crate) fn record(recipe: &Recipe, seed: u64) -> Trace {
    let mut random = Random(seed);
    let phases: Vec<_> = (0..recipe.phases).map(|number| format!("phase {number}")).collect();
    let steps = (0..recipe.steps).map(|number| {
        let part = number as f64 / recipe.steps as f64;
        let size = SIZES[(random.next() >> 33) as usize % SIZES.len()];
        let mut time = |write: bool, tool: Tool| {
            let (micros, gigabytes) =
                if write { recipe.machine.0 } else { recipe.machine.1 }[tool as usize];
            let expected = micros * 1e-6 + size as f64 / (gigabytes * 1e9);
            (tool, expected * (recipe.factor)(part, write, tool, size) * recipe.noise(&mut random))
        };
        Step {
            phase: phases[(recipe.phase)(part)].clone(),
            size,
            write: Tool::ALL
                .into_iter()
                .filter(|tool| tool.writes())
                .map(|tool| time(true, tool))
                .collect(),
            read: Tool::ALL.into_iter().map(|tool| time(false, tool)).collect(),
            situation: (Writing::Durable, Reading::Cold),
        }
    });
    let steps = steps.collect();
    Trace { machine: "made up".into(), phases, steps }
}

impl Recipe {
    fn noise(&self, random: &mut Random) -> f64 {
        let outlier = if random.unit() < self.outliers { 2.0 + 3.0 * random.unit() } else { 1.0 };
        outlier * (self.noise * random.normal()).exp()
    }
}

pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Nearly: the sum of twelve.
    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.unit()).sum::<f64>() - 6.0
    }
}
