//! What a split promises: bounds, nobody starves, the best there is, and rest when nothing changes.

use std::ops::RangeInclusive;

use proptest::prelude::*;
use tensorferry::plan::data::threads::forecast::{Forecast, Score};
use tensorferry::plan::data::threads::prepare::PEAK_TOLERANCE;
use tensorferry::plan::data::threads::{
    self, COMFORT, Consumer, MARGIN, Machine, Portfolio, Split, fixed, paper, split,
};

use super::exhaustive;
use super::pipeline::Cost;

/// Everything that a split is made from.
#[derive(Debug, Clone)]
struct Case {
    machine: Machine,
    prepare: Portfolio,
    load: Portfolio,
    consumers: Vec<Consumer>,
}

impl Case {
    fn split(&self, last: &Split) -> Split {
        split(self.machine, &self.prepare, &self.load, &self.consumers, last)
    }

    fn fresh(&self) -> Split {
        self.split(&Split::default())
    }

    fn forecast(&self) -> Forecast {
        Forecast::new(self.machine, &self.prepare, &self.load, &self.consumers).unwrap()
    }

    fn score(&self, split: &Split) -> Score {
        self.forecast().score(split)
    }

    fn busy(&self) -> usize {
        self.consumers.iter().filter(|consumer| consumer.is_busy()).count()
    }
}

fn consumer(queued_bytes: u64, sample_bytes: u64, train_seconds: f64) -> Consumer {
    Consumer { queued_bytes, sample_bytes, batch: 32, train_seconds, ready: 0 }
}

fn profile(threads: usize, consumers: &[Consumer], cost: Cost) -> Portfolio {
    let mut portfolio = Portfolio::default();
    for consumer in consumers {
        for count in 1..=threads {
            portfolio.observe(
                consumer.sample_bytes,
                count,
                cost.seconds(consumer.sample_bytes, count),
            );
        }
    }
    portfolio
}

fn case(machine: Machine, consumers: Vec<Consumer>, prepare: Cost, load: Cost) -> Case {
    let prepare = profile(machine.threads, &consumers, prepare);
    let load = profile(machine.threads, &consumers, load);
    Case { machine, prepare, load, consumers }
}

fn costs() -> impl Strategy<Value = Cost> {
    (0.0f64..0.01, 0.0f64..1e-7, 1usize..12).prop_map(
        |(latency_seconds, seconds_per_byte, lanes)| Cost {
            latency_seconds,
            seconds_per_byte,
            lanes,
        },
    )
}

fn consumers(count: RangeInclusive<usize>) -> impl Strategy<Value = Vec<Consumer>> {
    let one =
        (prop::bool::weighted(0.85), 1u64..1 << 40, 10u32..22, 1usize..100, 0.0f64..1.0, 0usize..4)
            .prop_map(|(busy, queue, power, batch, train_seconds, ready)| Consumer {
                queued_bytes: if busy { queue } else { 0 },
                sample_bytes: 1 << power,
                batch,
                train_seconds,
                ready,
            });
    prop::collection::vec(one, count)
}

fn cases(threads: usize, count: RangeInclusive<usize>) -> impl Strategy<Value = Case> {
    (1..=threads, 1usize..16, consumers(count), costs(), costs()).prop_map(
        |(threads, cores, consumers, prepare, load)| {
            case(Machine { threads, cores }, consumers, prepare, load)
        },
    )
}

/// Cases whose models are any noise, not made by a formula.
fn wild(threads: usize, count: RangeInclusive<usize>) -> impl Strategy<Value = Case> {
    let noise = || prop::collection::vec((10u32..22, 1..=threads, 1e-4f64..0.1), 1..40);
    let portfolio = |values: Vec<(u32, usize, f64)>| {
        let mut portfolio = Portfolio::default();
        for (power, threads, seconds) in values {
            portfolio.observe(1 << power, threads, seconds);
        }
        portfolio
    };
    (1..=threads, 1usize..16, consumers(count), noise(), noise()).prop_map(
        move |(threads, cores, consumers, prepare, load)| Case {
            machine: Machine { threads, cores },
            prepare: portfolio(prepare),
            load: portfolio(load),
            consumers,
        },
    )
}

fn any_last() -> impl Strategy<Value = Split> {
    (0usize..20, prop::collection::vec(0usize..8, 0..5))
        .prop_map(|(prepare, load)| Split { prepare, load })
}

/// With too few threads for a role each nobody is bound; else all with work are served.
fn check_bounds(case: &Case, split: &Split) -> Result<(), TestCaseError> {
    prop_assert_eq!(split.load.len(), case.consumers.len());
    if case.machine.threads <= case.busy() {
        prop_assert_eq!(split, &Split::shared(case.consumers.len()));
        return Ok(());
    }
    prop_assert!(!split.is_shared() && split.prepare >= 1);
    prop_assert!(split.used() <= case.machine.threads);
    for (load, consumer) in split.load.iter().zip(&case.consumers) {
        prop_assert!(*load > 0 || !consumer.is_busy(), "{:?} starves", consumer);
    }
    Ok(())
}

/// At least one consumer has work, and there is a thread for each role.
fn bound(case: Case) -> Case {
    let mut case = case;
    case.consumers[0].queued_bytes = case.consumers[0].queued_bytes.max(1);
    case.machine.threads = case.machine.threads.max(case.busy() + 1);
    case
}

fn bound_cases(threads: usize, count: usize) -> impl Strategy<Value = Case> {
    prop_oneof![cases(threads, 1..=count), wild(threads, 1..=count)].prop_map(bound)
}

proptest! {
    #[test]
    fn no_thread_is_used_twice_and_nobody_with_work_starves(
        case in prop_oneof![cases(24, 0..=5), wild(24, 0..=5)], last in any_last(), measured: bool,
    ) {
        let load = if measured { case.load.clone() } else { Portfolio::default() };
        let case = Case { load, ..case };
        check_bounds(&case, &case.split(&last))?;
    }

    #[test]
    fn a_split_is_a_fixed_point_while_nothing_changes(
        case in prop_oneof![cases(24, 0..=5), wild(24, 0..=5)], last in any_last(),
    ) {
        let first = case.split(&last);
        prop_assert_eq!(case.split(&first), first);
    }

    #[test]
    fn no_split_of_all_stalls_less_by_more_than_the_tolerance_of_the_peak(
        case in bound_cases(10, 3),
    ) {
        let ours = case.score(&case.fresh());
        let best = case.score(&exhaustive::best(&case.forecast()).unwrap());
        prop_assert!(ours.stall <= best.stall + PEAK_TOLERANCE * ours.iteration, "{:?} {:?}", ours, best);
    }

    #[test]
    fn with_two_consumers_no_split_that_stalls_as_little_has_a_smaller_gap(
        case in bound_cases(12, 2),
    ) {
        let (forecast, split) = (case.forecast(), case.fresh());
        let ours = forecast.score(&split);
        for other in exhaustive::all(&forecast).iter().filter(|other| other.prepare == split.prepare) {
            let theirs = forecast.score(other);
            let gap = theirs.gap + 1e-9 * ours.iteration;
            prop_assert!(theirs.stall > ours.stall || gap >= ours.gap, "{:?} {:?}", split, other);
        }
    }

    #[test]
    fn the_papers_split_is_never_better(case in bound_cases(24, 5)) {
        let (ours, theirs) = (case.score(&case.fresh()), case.score(&paper::split(&case.forecast())));
        prop_assert!(ours.compare(&theirs).is_le(), "{:?} {:?}", ours, theirs);
    }

    #[test]
    fn the_papers_sum_is_at_most_twice_the_least_where_training_takes_equally_long(
        case in bound_cases(10, 3), train in 0.0f64..1.0,
    ) {
        let mut case = case;
        case.consumers.iter_mut().for_each(|consumer| consumer.train_seconds = train);
        let sum = |split: &Split| case.score(split).lateness + train;
        let least = exhaustive::all(&case.forecast()).iter().map(sum).fold(f64::INFINITY, f64::min);
        let bound = 2.0 * (1.0 + PEAK_TOLERANCE) * least.max(train);
        prop_assert!(sum(&case.fresh()) <= bound * (1.0 + 1e-9));
    }

    #[test]
    fn the_last_split_stays_unless_another_is_better_by_the_margin(
        case in bound_cases(10, 3), which: prop::sample::Index,
    ) {
        let forecast = case.forecast();
        let all = exhaustive::all(&forecast);
        let last = which.get(&all);
        let (next, before) = (case.split(last), forecast.score(last));
        let after = forecast.score(&next);
        let gain = (before.stall - after.stall).max(before.gap - after.gap);
        prop_assert!(next == *last || gain > MARGIN * before.iteration);
        prop_assert!(after.stall <= before.stall);
    }

    #[test]
    fn more_threads_never_stall_longer(case in bound_cases(24, 4), more in 1usize..8) {
        let mut larger = case.clone();
        larger.machine.threads += more;
        let (few, many) = (case.score(&case.fresh()), larger.score(&larger.fresh()));
        prop_assert!(many.stall <= few.stall + PEAK_TOLERANCE * many.iteration, "{:?} {:?}", few, many);
    }

    #[test]
    fn longer_training_never_stalls_longer(case in bound_cases(24, 4), more in 0.0f64..1.0) {
        let mut slower = case.clone();
        slower.consumers.iter_mut().for_each(|consumer| consumer.train_seconds += more);
        let (fast, slow) = (case.score(&case.fresh()), slower.score(&slower.fresh()));
        prop_assert!(slow.stall <= fast.stall + PEAK_TOLERANCE * slow.iteration, "{:?} {:?}", fast, slow);
    }

    #[test]
    fn of_consumers_that_train_equally_long_the_heavier_has_no_fewer_threads(
        threads in 4usize..24, powers in prop::array::uniform3(10u32..22), train in 0.0f64..1.0,
        prepare in costs(), load in costs(),
    ) {
        let consumers = powers.map(|power| consumer(1 << 30, 1 << power, train)).to_vec();
        let split = case(Machine { threads, cores: 8 }, consumers, prepare, load).fresh();
        for (power, count) in powers.iter().zip(&split.load) {
            for (other, others) in powers.iter().zip(&split.load) {
                prop_assert!(power <= other || count >= others, "{:?} {:?}", powers, split);
            }
        }
    }

    #[test]
    fn slower_storage_never_takes_threads_from_loading(
        threads in 2usize..24, power in 10u32..22, train in 0.0f64..1.0,
        prepare in costs(), load in costs(), slower in 1.0f64..20.0,
    ) {
        let consumers = vec![consumer(1 << 30, 1 << power, train)];
        let loading = |factor: f64| {
            let load = Cost {
                latency_seconds: load.latency_seconds * factor,
                seconds_per_byte: load.seconds_per_byte * factor,
                ..load
            };
            case(Machine { threads, cores: threads }, consumers.clone(), prepare, load).fresh().load[0]
        };
        prop_assert!(loading(slower) >= loading(1.0));
    }

    #[test]
    fn noise_does_not_bring_back_a_split_that_was_left(
        threads in 4usize..16, powers in prop::array::uniform3(10u32..22), trains in prop::array::uniform3(0.0f64..1.0),
        prepare in costs(), load in costs(),
        noise in prop::collection::vec((0.99f64..1.01, 0.99f64..1.01), 30),
    ) {
        let consumers: Vec<_> =
            powers.iter().zip(trains).map(|(power, train)| consumer(1 << 30, 1 << power, train)).collect();
        let trembling = |cost: Cost, by: f64| Cost {
            latency_seconds: cost.latency_seconds * by,
            seconds_per_byte: cost.seconds_per_byte * by,
            ..cost
        };
        let machine = Machine { threads, cores: 8 };
        let mut seen = vec![Split::default()];
        for (first, second) in noise {
            let last = seen[seen.len() - 1].clone();
            let now = case(machine, consumers.clone(), trembling(prepare, first), trembling(load, second));
            let next = now.split(&last);
            if next != last {
                prop_assert!(!seen.contains(&next), "{:?} then {:?}", seen, next);
                seen.push(next);
            }
        }
    }
}

fn usual() -> Case {
    let cost = Cost { latency_seconds: 0.01, seconds_per_byte: 0.0, lanes: 64 };
    let consumers = vec![consumer(1 << 30, 1 << 20, 0.01), consumer(3 << 30, 1 << 20, 0.01)];
    case(Machine { threads: 16, cores: 16 }, consumers, cost, cost)
}

#[test]
fn even_shares_are_even() {
    let fixed = |threads, consumers| fixed(Machine { threads, cores: 64 }, consumers);
    assert_eq!(fixed(8, 2), Split { prepare: 4, load: vec![2, 2] });
    assert_eq!(fixed(8, 3), Split { prepare: 4, load: vec![2, 1, 1] });
    assert_eq!(fixed(4, 3), Split { prepare: 1, load: vec![1, 1, 1] });
    assert_eq!(fixed(2, 1), Split { prepare: 1, load: vec![1] });
    assert_eq!(
        threads::fixed(Machine { threads: 8, cores: 2 }, 1),
        Split { prepare: 2, load: vec![6] }
    );
}

#[test]
fn with_too_few_threads_for_a_role_each_no_thread_is_bound() {
    let shared = fixed(Machine { threads: 1, cores: 1 }, 1);
    assert!(shared.is_shared());
    assert_eq!((shared.used(), shared.load), (0, vec![0]));
    assert!(fixed(Machine { threads: 3, cores: 8 }, 3).is_shared());
    let mut case = usual();
    case.machine.threads = 2;
    assert!(case.fresh().is_shared());
    case.consumers[0].queued_bytes = 0;
    assert_eq!(case.fresh(), Split { prepare: 1, load: vec![0, 1] }, "one of them is done");
}

#[test]
fn before_anything_is_measured_half_of_the_threads_load_in_proportion_to_the_queues() {
    for unmeasured in [0, 1] {
        let mut case = usual();
        [&mut case.prepare, &mut case.load][unmeasured].clone_from(&Portfolio::default());
        assert_eq!(case.fresh(), Split { prepare: 8, load: vec![2, 6] });
    }
}

#[test]
fn nothing_changes_while_enough_batches_are_ready_for_all() {
    let mut case = usual();
    let last = Split { prepare: 13, load: vec![2, 1] };
    assert_ne!(case.split(&last), last);
    case.consumers.iter_mut().for_each(|consumer| consumer.ready = COMFORT);
    assert_eq!(case.split(&last), last);
    case.consumers[1].ready = 0;
    assert_ne!(case.split(&last), last);
}

#[test]
fn a_last_split_of_another_machine_is_not_kept() {
    let mut case = usual();
    case.consumers.iter_mut().for_each(|consumer| consumer.ready = COMFORT);
    for last in [
        Split { prepare: 13, load: vec![2, 2] },
        Split { prepare: 13, load: vec![2] },
        Split { prepare: 13, load: vec![2, 0] },
        Split { prepare: 0, load: vec![2, 2] },
    ] {
        assert_eq!(case.split(&last), case.fresh(), "{last:?}");
    }
}

#[test]
fn when_all_consumers_are_done_the_last_split_stays() {
    let mut case = usual();
    case.consumers.iter_mut().for_each(|consumer| consumer.queued_bytes = 0);
    let last = Split { prepare: 3, load: vec![4, 5] };
    assert_eq!(case.split(&last), last);
}

#[test]
fn a_training_time_that_no_clock_shows_counts_as_none() {
    let mut case = usual();
    case.consumers[0].train_seconds = f64::NAN;
    case.consumers[1].train_seconds = -1.0;
    let split = case.fresh();
    case.consumers.iter_mut().for_each(|consumer| consumer.train_seconds = 0.0);
    assert_eq!(split, case.fresh());
}
