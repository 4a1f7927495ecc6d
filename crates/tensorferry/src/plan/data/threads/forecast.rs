//! What a split will give: seconds of each stage of each consumer, and one score for the whole.
//!
//! Preparing is shared: the forecast takes the consumers to step together, as the ranks of one training
//! do, so that its threads prepare one batch of each in a step. Loading is apart for each consumer, but
//! all of it goes to the same storage: how fast one thread loads depends on how many load, for anybody.

use std::cmp::Ordering;

use super::portfolio::Portfolio;
use super::split::{Consumer, Machine, Split};

/// Of a step, by which two sums of the same seconds may differ.
const ROUNDING: f64 = 1e-9;

/// Seconds of one batch in each stage.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stages {
    /// The consumer's own.
    pub train: f64,
    /// Storage to memory.
    pub load: f64,
    /// One batch of every consumer.
    pub prepare: f64,
}

impl Stages {
    /// From batch to batch: the stages overlap, so the slowest sets the pace.
    pub fn iteration(&self) -> f64 {
        self.train.max(self.load).max(self.prepare)
    }

    /// What the consumer waits in each.
    pub fn stall(&self) -> f64 {
        self.iteration() - self.train
    }

    /// The paper's time difference: negative when loading and then preparing takes longer than training.
    pub fn difference(&self) -> f64 {
        self.train - (self.load + self.prepare)
    }
}

/// How good a split is. Less is better; the first that differs decides.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Score {
    /// Of the consumer that waits longest, seconds a batch.
    pub stall: f64,
    /// Between the slowest consumer and the fastest, seconds a batch.
    pub gap: f64,
    /// Loading and preparing beyond training, of the consumer where that is most; negative when it is
    /// less for all. Beyond the pipeline's needs, but threads that would rest make it robust.
    pub lateness: f64,
    /// Of the slowest consumer, seconds a batch.
    pub iteration: f64,
}

impl Score {
    /// The better one is less. What is only rounded differently is equal.
    pub fn compare(&self, other: &Self) -> Ordering {
        let rounding = ROUNDING * self.iteration.max(other.iteration);
        let differ = |a: f64, b: f64| {
            if (a - b).abs() <= rounding { Ordering::Equal } else { a.total_cmp(&b) }
        };
        differ(self.stall, other.stall)
            .then(differ(self.gap, other.gap))
            .then(differ(self.lateness, other.lateness))
    }
}

/// The portfolios, looked up once for all thread counts of a machine.
#[derive(Debug)]
pub struct Forecast {
    machine: Machine,
    queues: Vec<u64>,
    train: Vec<f64>,
    /// Of all threads that prepare, for one batch of each consumer; by their number.
    prepare: Vec<f64>,
    /// Of one thread for one batch; by consumer, then by the number of threads that load for anybody.
    load: Vec<Vec<f64>>,
}

impl Forecast {
    /// Nothing while either kind of work was never measured.
    pub fn new(
        machine: Machine,
        prepare: &Portfolio,
        load: &Portfolio,
        consumers: &[Consumer],
    ) -> Option<Self> {
        let busy = || consumers.iter().filter(|consumer| consumer.is_busy());
        let prepare = table(machine.threads, |threads| {
            let batches = busy().map(|consumer| consumer.batch_seconds(prepare, threads));
            Some(batches.sum::<Option<f64>>()? / threads as f64)
        })?;
        let load = consumers
            .iter()
            .map(|consumer| table(machine.threads, |threads| consumer.batch_seconds(load, threads)))
            .collect::<Option<_>>()?;
        let queues = consumers.iter().map(|consumer| consumer.queued_bytes).collect();
        let train = consumers.iter().map(Consumer::train_seconds).collect();
        Some(Self { machine, queues, train, prepare, load })
    }

    /// Of which machine.
    pub fn machine(&self) -> Machine {
        self.machine
    }

    /// Bytes that wait to be loaded, by consumer.
    pub fn queues(&self) -> &[u64] {
        &self.queues
    }

    /// The consumers that have work.
    pub fn busy(&self) -> impl Iterator<Item = usize> {
        (0..self.queues.len()).filter(|consumer| self.queues[*consumer] > 0)
    }

    /// The most threads that may prepare while `load` others load: preparing is computing, so
    /// no more than cores.
    pub fn prepare_max(&self, load: usize) -> usize {
        let left = self.machine.threads.saturating_sub(load);
        left.min(self.machine.cores).max(1)
    }

    /// Seconds in which so many threads prepare one batch of each consumer.
    pub fn prepare_seconds(&self, threads: usize) -> f64 {
        match threads {
            0 => f64::INFINITY,
            _ => self.prepare[threads.min(self.prepare.len()) - 1],
        }
    }

    /// The stages of a consumer for which `own` threads load, of `all` that load.
    pub fn stages(&self, consumer: usize, own: usize, all: usize, prepare: usize) -> Stages {
        let table = &self.load[consumer];
        let load = match own {
            0 => f64::INFINITY,
            _ => table[all.clamp(1, table.len()) - 1] / own as f64,
        };
        let prepare = self.prepare_seconds(prepare);
        Stages { train: self.train[consumer], load, prepare }
    }

    /// The better of two splits is less.
    pub fn compare(&self, a: &Split, b: &Split) -> Ordering {
        self.score(a).compare(&self.score(b))
    }

    /// The better of two splits, the first if neither is.
    pub fn better(&self, a: Split, b: Split) -> Split {
        if self.compare(&b, &a).is_lt() { b } else { a }
    }

    /// How good a split is for the consumers that have work.
    pub fn score(&self, split: &Split) -> Score {
        let all = split.load.iter().sum();
        let stages = || {
            self.busy()
                .map(|consumer| self.stages(consumer, split.load[consumer], all, split.prepare))
        };
        let most = |of: fn(&Stages) -> f64| {
            stages().map(|stages| of(&stages)).fold(f64::NEG_INFINITY, f64::max)
        };
        let iteration = most(Stages::iteration);
        let gap = iteration + most(|stages| -stages.iteration());
        let lateness = most(|stages| -stages.difference());
        Score { stall: most(Stages::stall), gap, lateness, iteration }
    }
}

/// A value for each count from one to `threads`.
fn table(threads: usize, value: impl Fn(usize) -> Option<f64>) -> Option<Vec<f64>> {
    (1..=threads).map(value).collect()
}
