//! Where the forecast meets queues, ramps and drift.

use proptest::prelude::*;
use tensorferry::plan::data::threads::Machine;

use super::*;

const KIB: u64 = 1 << 10;
const MILLISECOND: f64 = 1e-3;

/// Two consumers; the second one's samples are `skew` times as large. Storage that takes long for each
/// sample but serves many at once, cores enough to prepare.
fn skewed(skew: u64) -> Scenario {
    let feed = |bytes| Feed {
        sample_bytes: bytes,
        batch: 32,
        train_seconds: 20.0 * MILLISECOND,
        batches: 200,
    };
    Scenario {
        machine: Machine { threads: 16, cores: 8 },
        feeds: vec![feed(100 * KIB), feed(100 * KIB * skew)],
        load: Cost { latency_seconds: 2.0 * MILLISECOND, seconds_per_byte: 2e-8, lanes: 64 },
        prepare: Cost { latency_seconds: 0.1 * MILLISECOND, seconds_per_byte: 1e-9, lanes: 8 },
        ahead: 3,
        every: 8,
        drift: None,
        jitter: 0.3,
        seed: 7,
    }
}

#[test]
fn the_gap_between_consumers_with_skewed_samples_shrinks_by_half_or_more() {
    for skew in [2, 3, 4, 6, 8] {
        for seed in 0..5 {
            let scenario = Scenario { seed, ..skewed(skew) };
            let even = run(&scenario, &Policy::Static);
            let auto = run(&scenario, &Policy::Auto);
            assert!(auto.gap() <= even.gap() / 2.0, "{skew}: {} of {}", auto.gap(), even.gap());
            assert!(auto.seconds() < even.seconds());
        }
    }
}

/// The scenario with loading and preparing slower by factors.
fn slower(load: f64, prepare: f64) -> Scenario {
    let mut scenario = skewed(4);
    for (cost, factor) in [(&mut scenario.load, load), (&mut scenario.prepare, prepare)] {
        cost.latency_seconds *= factor;
        cost.seconds_per_byte *= factor;
    }
    scenario
}

/// Bound by training, by loading, by preparing, and in between.
const BOUND_BY: [(f64, f64); 6] =
    [(0.1, 1.0), (0.25, 1.0), (1.0, 1.0), (4.0, 1.0), (1.0, 8.0), (1.0, 30.0)];

#[test]
fn whatever_the_bottleneck_auto_is_nearly_as_fast_as_the_best_split_and_no_slower_than_static() {
    for (load, prepare) in BOUND_BY {
        let scenario = slower(load, prepare);
        let seconds = |policy: &Policy| run(&scenario, policy).seconds();
        let auto = seconds(&Policy::Auto);
        let best = seconds(&Policy::Held(oracle(&scenario, false).unwrap()));
        assert!(auto <= 1.05 * best, "{load} {prepare}: {auto} of {best}");
        assert!(auto <= 1.02 * seconds(&Policy::Static), "{load} {prepare}: {auto}");
    }
}

#[test]
fn storage_that_becomes_slow_while_running_is_followed() {
    let drift = Drift { at_seconds: 4.0, load: 4.0, prepare: 1.0 };
    let scenario = Scenario { drift: Some(drift), ..slower(1.0, 30.0) };
    let auto = run(&scenario, &Policy::Auto);
    let before = run(&scenario, &Policy::Held(oracle(&scenario, false).unwrap()));
    let after = run(&scenario, &Policy::Held(oracle(&scenario, true).unwrap()));
    assert!(auto.seconds() <= 1.1 * after.seconds(), "{} of {}", auto.seconds(), after.seconds());
    assert!(auto.seconds() <= 0.9 * before.seconds(), "{} of {}", auto.seconds(), before.seconds());
    assert!(auto.gap() <= run(&scenario, &Policy::Static).gap() / 2.0);
}

#[test]
fn preparing_that_becomes_slow_while_running_is_followed() {
    let drift = Drift { at_seconds: 4.0, load: 1.0, prepare: 30.0 };
    let scenario = Scenario { drift: Some(drift), ..skewed(4) };
    let auto = run(&scenario, &Policy::Auto);
    let before = run(&scenario, &Policy::Held(oracle(&scenario, false).unwrap()));
    let after = run(&scenario, &Policy::Held(oracle(&scenario, true).unwrap()));
    assert!(auto.seconds() <= 1.1 * after.seconds(), "{} of {}", auto.seconds(), after.seconds());
    assert!(auto.seconds() <= 0.5 * before.seconds(), "{} of {}", auto.seconds(), before.seconds());
}

#[test]
fn a_steady_machine_is_not_stirred() {
    for (load, prepare) in BOUND_BY {
        let auto = run(&slower(load, prepare), &Policy::Auto);
        let first_done = auto.trained.iter().filter_map(|batches| batches.last()).copied();
        let middle = first_done.fold(f64::INFINITY, f64::min) * 0.9;
        let late = auto.splits.iter().filter(|(at, _)| (middle / 3.0..middle).contains(at));
        assert!(late.count() <= 1, "{load} {prepare}: {:?}", auto.splits);
    }
}

proptest! {
    #[test]
    fn every_batch_arrives_and_every_second_is_accounted_for(
        threads in 1usize..10, consumers in 1usize..4, ahead in 1usize..4, every in 1usize..9,
        seed: u64, jitter in 0.0f64..0.9, which in 0usize..3,
    ) {
        let policy = [Policy::Static, Policy::Auto, Policy::Paper][which].clone();
        let mut scenario = Scenario { ahead, every, jitter, seed, ..skewed(3) };
        scenario.machine = Machine { threads, cores: 4 };
        scenario.feeds = (0..consumers)
            .map(|at| Feed { batch: 1 + 3 * at, batches: 10, ..scenario.feeds[at % 2] })
            .collect();
        let outcome = run(&scenario, &policy);
        for (at, feed) in scenario.feeds.iter().enumerate() {
            prop_assert_eq!(outcome.trained[at].len(), feed.batches);
            let worked = feed.train_seconds * feed.batches as f64 + outcome.waited[at];
            prop_assert!((outcome.trained[at][feed.batches - 1] - worked).abs() < 1e-9);
        }
        prop_assert_eq!(run(&scenario, &policy), outcome, "the same again");
    }
}
