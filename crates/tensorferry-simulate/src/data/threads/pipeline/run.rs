//! The state of a run, and what each event does to it.
//!
//! *States.* A sample is in the order, loading, loaded, preparing, prepared; a batch of prepared ones is
//! trained on and gone. A thread that finishes a sample takes its next role by the split that holds then,
//! so a new split never interrupts work, and at no time more threads work than there are.
//!
//! *Bounds.* A consumer has at most `ahead` batches between order and training.

use std::collections::{BTreeMap, VecDeque};

use tensorferry::plan::data::threads::forecast::Forecast;
use tensorferry::plan::data::threads::paper;
use tensorferry::plan::data::threads::portfolio::Portfolio;
use tensorferry::plan::data::threads::{Consumer, Split, fixed, split};
use tensorferry::random::SplitMix64;

use super::Policy;
use super::outcome::Outcome;
use super::scenario::Scenario;

pub(super) struct Pipeline<'a> {
    scenario: &'a Scenario,
    policy: &'a Policy,
    now: f64,
    /// By time (as bits, which sort as the numbers do when none is negative), then as they came.
    events: BTreeMap<(u64, u64), Event>,
    sequence: u64,
    lanes: Vec<Lane>,
    /// Whose samples are in line to be prepared.
    loaded: VecDeque<usize>,
    preparing: usize,
    /// The consumer whose turn it is when no thread is bound.
    turn: usize,
    split: Split,
    load: Portfolio,
    prepare: Portfolio,
    outcome: Outcome,
    random: SplitMix64,
}

/// One consumer's way.
#[derive(Default)]
struct Lane {
    /// Samples of its order that nobody began to load.
    left: usize,
    loading: usize,
    /// Samples between order and training.
    held: usize,
    prepared: usize,
    training: bool,
    idle_since: f64,
}

#[derive(Clone, Copy)]
enum Event {
    Loaded(Work),
    Prepared(Work),
    Trained(usize),
}

/// A sample that a thread has done.
#[derive(Clone, Copy)]
struct Work {
    consumer: usize,
    threads: usize,
    seconds: f64,
}

impl<'a> Pipeline<'a> {
    pub(super) fn new(scenario: &'a Scenario, policy: &'a Policy) -> Self {
        let feeds = scenario.feeds.iter();
        let consumers = scenario.feeds.len();
        let mut pipeline = Self {
            scenario,
            policy,
            now: 0.0,
            events: BTreeMap::new(),
            sequence: 0,
            lanes: feeds.map(|feed| Lane { left: feed.samples(), ..Lane::default() }).collect(),
            loaded: VecDeque::new(),
            preparing: 0,
            turn: 0,
            split: fixed(scenario.machine, consumers),
            load: Portfolio::default(),
            prepare: Portfolio::default(),
            outcome: Outcome {
                trained: vec![Vec::new(); consumers],
                waited: vec![0.0; consumers],
                splits: Vec::new(),
            },
            random: SplitMix64::new(scenario.seed),
        };
        pipeline.resplit();
        pipeline.outcome.splits.push((0.0, pipeline.split.clone()));
        pipeline
    }

    pub(super) fn run(mut self) -> Outcome {
        self.dispatch();
        while let Some(((time, _), event)) = self.events.pop_first() {
            self.now = f64::from_bits(time);
            self.happen(event);
            self.dispatch();
        }
        self.outcome
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Loaded(work) => {
                let bytes = self.scenario.feeds[work.consumer].sample_bytes;
                self.load.observe(bytes, work.threads, work.seconds);
                self.lanes[work.consumer].loading -= 1;
                self.loaded.push_back(work.consumer);
            }
            Event::Prepared(work) => {
                let bytes = self.scenario.feeds[work.consumer].sample_bytes;
                self.prepare.observe(bytes, work.threads, work.seconds);
                self.preparing -= 1;
                self.lanes[work.consumer].prepared += 1;
            }
            Event::Trained(consumer) => {
                let lane = &mut self.lanes[consumer];
                lane.training = false;
                lane.idle_since = self.now;
                self.outcome.trained[consumer].push(self.now);
                let done: usize = self.outcome.trained.iter().map(Vec::len).sum();
                if done.is_multiple_of(self.scenario.every.max(1)) {
                    self.change();
                }
            }
        }
    }

    /// Looks at the split again.
    fn change(&mut self) {
        let before = self.split.clone();
        self.resplit();
        if self.split != before {
            self.outcome.splits.push((self.now, self.split.clone()));
        }
    }

    fn resplit(&mut self) {
        let machine = self.scenario.machine;
        let consumers: Vec<Consumer> = (0..self.lanes.len()).map(|at| self.consumer(at)).collect();
        match self.policy {
            Policy::Static => {}
            Policy::Held(held) => self.split = held.clone(),
            Policy::Auto => {
                self.split = split(machine, &self.prepare, &self.load, &consumers, &self.split);
            }
            Policy::Paper => {
                let busy = consumers.iter().filter(|consumer| consumer.is_busy()).count();
                let forecast = Forecast::new(machine, &self.prepare, &self.load, &consumers);
                if let Some(forecast) = forecast.filter(|_| (1..machine.threads).contains(&busy)) {
                    self.split = paper::split(&forecast);
                }
            }
        }
    }

    fn consumer(&self, at: usize) -> Consumer {
        let (feed, lane) = (&self.scenario.feeds[at], &self.lanes[at]);
        feed.consumer(lane.left, lane.prepared / feed.batch.max(1))
    }

    /// Starts whatever can start now.
    fn dispatch(&mut self) {
        (0..self.lanes.len()).for_each(|consumer| self.train(consumer));
        while self.threads_rest() && self.may_prepare() {
            self.start_preparing();
        }
        while self.threads_rest()
            && let Some(consumer) = self.next_to_load()
        {
            self.start_loading(consumer);
        }
    }

    fn train(&mut self, consumer: usize) {
        let (feed, lane) = (&self.scenario.feeds[consumer], &mut self.lanes[consumer]);
        if lane.training || lane.prepared < feed.batch || feed.batch == 0 {
            return;
        }
        lane.training = true;
        lane.prepared -= feed.batch;
        lane.held -= feed.batch;
        self.outcome.waited[consumer] += self.now - lane.idle_since;
        self.after(feed.train_seconds, Event::Trained(consumer));
    }

    fn threads_rest(&self) -> bool {
        let loading: usize = self.lanes.iter().map(|lane| lane.loading).sum();
        loading + self.preparing < self.scenario.machine.threads
    }

    fn may_prepare(&self) -> bool {
        let bound = !self.split.is_shared() && self.preparing >= self.split.prepare;
        !bound && !self.loaded.is_empty()
    }

    fn start_preparing(&mut self) {
        let Some(consumer) = self.loaded.pop_front() else { return };
        self.preparing += 1;
        let threads = self.preparing;
        let cost =
            self.scenario.prepare.seconds(self.scenario.feeds[consumer].sample_bytes, threads);
        let seconds = cost * self.scenario.factors(self.now).1 * self.jitter();
        self.after(seconds, Event::Prepared(Work { consumer, threads, seconds }));
    }

    fn next_to_load(&mut self) -> Option<usize> {
        let lanes = self.lanes.len();
        let next = (0..lanes).map(|at| (self.turn + at) % lanes).find(|at| self.may_load(*at))?;
        self.turn = (next + 1) % lanes;
        Some(next)
    }

    fn may_load(&self, consumer: usize) -> bool {
        let lane = &self.lanes[consumer];
        let bound = !self.split.is_shared() && lane.loading >= self.split.load[consumer];
        let room = self.scenario.ahead.max(1) * self.scenario.feeds[consumer].batch;
        !bound && lane.left > 0 && lane.held < room
    }

    fn start_loading(&mut self, consumer: usize) {
        let lane = &mut self.lanes[consumer];
        lane.left -= 1;
        lane.held += 1;
        lane.loading += 1;
        let threads = self.lanes.iter().map(|lane| lane.loading).sum();
        let cost = self.scenario.load.seconds(self.scenario.feeds[consumer].sample_bytes, threads);
        let seconds = cost * self.scenario.factors(self.now).0 * self.jitter();
        self.after(seconds, Event::Loaded(Work { consumer, threads, seconds }));
    }

    fn after(&mut self, seconds: f64, event: Event) {
        self.sequence += 1;
        self.events.insert(((self.now + seconds.max(0.0)).to_bits(), self.sequence), event);
    }

    /// A factor around one, from the seed alone.
    fn jitter(&mut self) -> f64 {
        let most = self.scenario.jitter;
        1.0 + most * (2.0 * self.random.unit() - 1.0)
    }
}
