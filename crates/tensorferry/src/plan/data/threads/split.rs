//! The front door: what a running loader asks every so many batches.
//!
//! The search is exact in what counts first. Given how many threads load, the fairest share among the
//! consumers is had greedily, and preparing has the rest, up to its peak; so trying every number of
//! loading threads, which is the paper's step 2 carried through to both ends, meets a split of least
//! stall, within the tolerance of the peak. The paper's own split is judged beside them, and the best is
//! polished thread by thread for the gap between consumers, where the search is not exact.
//!
//! *Noise.* Measurements tremble, and a thread that changes its role costs a little. So the last split
//! stays while nobody waits, and until another is better by [`MARGIN`] of a step. What is chosen then is
//! chosen again from the same numbers: there is nothing to swing between.

use super::forecast::Forecast;
use super::load;
use super::paper;
use super::portfolio::Portfolio;
use super::prepare;

/// A split changes for a gain of more than this share of the slowest consumer's step.
pub const MARGIN: f64 = 0.05;
/// With so many finished batches waiting for each consumer, nobody is being held up.
pub const COMFORT: usize = 2;

/// One that takes batches: a rank, or a loader of its own.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Consumer {
    /// Bytes of its order that were not loaded yet, as far as it is known; zero when it has no work
    /// left, and then no thread loads for it. Not what fits into a full queue, which may be zero any time.
    pub queued_bytes: u64,
    /// Of a usual sample in the queue.
    pub sample_bytes: u64,
    /// Samples a batch.
    pub batch: usize,
    /// The consumer's own time for a batch, without waiting.
    pub train_seconds: f64,
    /// Finished batches that wait for it.
    pub ready: usize,
}

/// What there is to be split.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Machine {
    /// In the set.
    pub threads: usize,
    /// More threads than these never prepare.
    pub cores: usize,
}

/// Who does what. Every thread has one role; one that is not counted rests.
///
/// With too few threads for a role each, which is one to prepare and one for each consumer that has work,
/// none is bound: see [`is_shared`](Self::is_shared).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Split {
    /// Threads that prepare, for all consumers.
    pub prepare: usize,
    /// Threads that load, for each consumer.
    pub load: Vec<usize>,
}

impl Split {
    /// Of threads that are not bound to a role.
    pub fn shared(consumers: usize) -> Self {
        Self { prepare: 0, load: vec![0; consumers] }
    }

    /// Whether every thread does whatever work there is: preparing before loading, and loading for the
    /// consumers in turn. Then all counts are zero.
    pub fn is_shared(&self) -> bool {
        self.prepare == 0
    }

    /// Threads that have a role.
    pub fn used(&self) -> usize {
        self.prepare + self.load.iter().sum::<usize>()
    }

    /// Whether it is one of this machine, for these consumers, and leaves nobody with work alone.
    fn serves(&self, machine: Machine, consumers: &[Consumer]) -> bool {
        let served = |(load, consumer): (&usize, &Consumer)| *load > 0 || !consumer.is_busy();
        !self.is_shared()
            && self.used() <= machine.threads
            && self.load.len() == consumers.len()
            && self.load.iter().zip(consumers).all(served)
    }
}

impl Consumer {
    /// Whether anything is to be loaded for it.
    pub fn is_busy(&self) -> bool {
        self.queued_bytes > 0
    }

    /// Nothing where no clock shows such a time.
    pub(super) fn train_seconds(&self) -> f64 {
        if self.train_seconds.is_finite() { self.train_seconds.max(0.0) } else { 0.0 }
    }

    /// Seconds of one of `threads` threads for a batch.
    pub(super) fn batch_seconds(&self, portfolio: &Portfolio, threads: usize) -> Option<f64> {
        Some(self.batch as f64 * portfolio.seconds(self.sample_bytes, threads)?)
    }
}

/// Even shares, never changed: half of the threads prepare, and the consumers have equal parts of the
/// others, the first ones one more where that does not come out even.
pub fn fixed(machine: Machine, consumers: usize) -> Split {
    halves(machine, &vec![1; consumers])
}

/// The split that holds the consumers up least, by what was measured; the last one where that is nearly
/// as good. Until both kinds of work were measured: half of the threads for each, loading in
/// proportion to the queues.
pub fn split(
    machine: Machine,
    prepare: &Portfolio,
    load: &Portfolio,
    consumers: &[Consumer],
    last: &Split,
) -> Split {
    let queues: Vec<u64> = consumers.iter().map(|consumer| consumer.queued_bytes).collect();
    let busy = || consumers.iter().filter(|consumer| consumer.is_busy());
    if machine.threads <= busy().count() {
        return Split::shared(consumers.len());
    }
    let serves = last.serves(machine, consumers);
    if serves && busy().all(|consumer| consumer.ready >= COMFORT) {
        return last.clone();
    }
    let forecast = Forecast::new(machine, prepare, load, consumers);
    let Some(forecast) = forecast.filter(|_| busy().count() > 0) else {
        return halves(machine, &queues);
    };
    let best = best(&forecast);
    if serves && !is_worth(&forecast, last, &best) { last.clone() } else { best }
}

fn halves(machine: Machine, queues: &[u64]) -> Split {
    let busy = queues.iter().filter(|queue| **queue > 0).count();
    if machine.threads <= busy {
        return Split::shared(queues.len());
    }
    let prepare = (machine.threads / 2).min(machine.cores).clamp(1, machine.threads - busy);
    Split { prepare, load: load::proportional(machine.threads - prepare, queues) }
}

fn best(forecast: &Forecast) -> Split {
    let most = load::most(forecast.machine().threads, forecast.queues());
    let loading = |threads: usize| {
        let limit = forecast.prepare_max(threads);
        let prepare = prepare::peak(limit, |threads| forecast.prepare_seconds(threads));
        let need = |consumer, count| {
            let stages = forecast.stages(consumer, count, threads, prepare);
            stages.load - stages.train
        };
        Split { prepare, load: load::share(threads, &most, need) }
    };
    let counts = forecast.busy().count()..forecast.machine().threads;
    let splits = counts.map(loading).chain([paper::split(forecast)]);
    // The first is the one with the fewest loading, so that threads which bring nothing rest.
    let best = splits.reduce(|a, b| forecast.better(a, b)).unwrap_or_default();
    polished(forecast, best)
}

/// Moves one thread at a time from consumer to consumer, into rest or out of it, while that helps. The
/// share of least stall may still leave a gap that a thread could close.
fn polished(forecast: &Forecast, split: Split) -> Split {
    let mut best = split;
    for _ in 0..forecast.machine().threads {
        let moved = neighbours(forecast, &best).into_iter().reduce(|a, b| forecast.better(a, b));
        match moved {
            Some(moved) if forecast.compare(&moved, &best).is_lt() => best = moved,
            _ => break,
        }
    }
    best
}

/// Every split that one loading thread's move makes; nowhere is rest.
fn neighbours(forecast: &Forecast, split: &Split) -> Vec<Split> {
    let rests = split.used() < forecast.machine().threads;
    let places: Vec<Option<usize>> = forecast.busy().map(Some).chain([None]).collect();
    let mut moved = Vec::new();
    for from in &places {
        if !from.map_or(rests, |consumer| split.load[consumer] > 1) {
            continue;
        }
        for to in places.iter().filter(|to| *to != from) {
            let mut next = split.clone();
            if let Some(consumer) = from {
                next.load[*consumer] -= 1;
            }
            if let Some(consumer) = to {
                next.load[*consumer] += 1;
            }
            moved.push(next);
        }
    }
    moved
}

/// Whether leaving the last split for a better one is worth it.
fn is_worth(forecast: &Forecast, last: &Split, best: &Split) -> bool {
    let (last, best) = (forecast.score(last), forecast.score(best));
    let margin = MARGIN * last.iteration;
    last.stall - best.stall > margin || last.gap - best.gap > margin
}
