//! Known answers.

use proptest::prelude::*;
use tensorferry::plan::data::eviction::Policy;

use super::clock::{Clock, Place};
use super::{Comparison, Setup, Sizes, Speeds, compare};

/// 20,000 samples of 1,000 bytes, of which each node's cache holds a part.
fn setup(nodes: u32, cached: f64) -> Setup {
    Setup {
        samples: 20_000,
        sizes: Sizes::Same(1000),
        nodes,
        gpus: 1,
        batch: 10,
        cache: (cached * 20_000.0) as u64 * 1000,
        epochs: 15,
        foresight: 15,
        peers: false,
        seed: 5,
        speeds: Speeds::default(),
    }
}

fn simulated(setup: &Setup, policies: &[Policy]) -> Comparison {
    compare(setup, policies, |_, _| {}).unwrap()
}

/// Part of all uses, from the first epoch on, that the nodes' own caches served.
fn hit_ratio(setup: &Setup, policy: Policy) -> f64 {
    let comparison = simulated(setup, &[policy]);
    let epochs = &comparison.policies[0].epochs;
    let hits: u64 = epochs.iter().map(|epoch| epoch.local_hits).sum();
    hits as f64 / epochs.iter().map(|epoch| epoch.uses).sum::<u64>() as f64
}

#[test]
fn eight_nodes_that_cache_three_tenths_hit_as_often_as_is_known() {
    let near = |foresight, policy, expected: f64| {
        let ratio = hit_ratio(&Setup { foresight, ..setup(8, 0.3) }, policy);
        assert!((ratio - expected).abs() < 0.01, "{policy} {ratio}");
    };
    near(15, Policy::Lru, 0.225);
    near(15, Policy::NeverEvict, 0.265);
    near(15, Policy::Belady, 0.485);
    // It takes about as many epochs of foresight as there are nodes.
    near(3, Policy::Belady, 0.403);
    near(8, Policy::Belady, 0.485);
}

#[test]
fn belady_reads_as_little_as_can_be_on_any_number_of_nodes() {
    for nodes in [1, 2, 4, 8, 16] {
        for cached in [0.05, 0.3, 0.8] {
            let comparison = simulated(&setup(nodes, cached), &[Policy::Belady]);
            let of_bound = comparison.policies[0].of_bound.unwrap();
            // Chance moves it by less the more samples there are: a ten-thousandth for two million.
            assert!((1.0..1.0025).contains(&of_bound), "{nodes} nodes, {cached}: {of_bound}");
        }
    }
}

#[test]
fn on_one_node_belady_reads_exactly_what_can_not_be_cached() {
    let comparison = simulated(&setup(1, 0.3), &[Policy::Belady]);
    for (epoch, tally) in comparison.policies[0].epochs.iter().enumerate() {
        let expected = if epoch == 0 { 20_000_000 } else { 14_000_000 };
        assert_eq!((tally.backend_bytes, comparison.bound_bytes[epoch]), (expected, expected));
    }
}

#[test]
fn with_different_sizes_belady_stays_at_the_bound() {
    let sizes = Sizes::log_normal(20_000, 1000, 0.6, 1).unwrap();
    for nodes in [1, 8] {
        for peers in [false, true] {
            let setup = Setup { sizes: sizes.clone(), peers, ..setup(nodes, 0.08) };
            let of_bound = simulated(&setup, &[Policy::Belady]).policies[0].of_bound.unwrap();
            assert!((1.0..1.0035).contains(&of_bound), "{nodes} nodes, {peers}: {of_bound}");
        }
    }
}

#[test]
fn nodes_that_read_from_one_another_cache_different_samples() {
    let shared = Setup { peers: true, epochs: 4, ..setup(8, 0.1) };
    let comparison = simulated(&shared, &Policy::ALL);
    let belady = comparison.outcome(Policy::Belady).unwrap();
    assert!(belady.epochs[1..].iter().all(|epoch| epoch.backend_bytes == 4_000_000));
    assert_eq!(belady.of_bound, Some(1.0));
    for outcome in &comparison.policies {
        assert!(outcome.warm.backend_bytes >= belady.warm.backend_bytes, "{}", outcome.policy);
    }
    // Room for everything, and more: nothing is read twice, and what is near is near again.
    let ample = simulated(&Setup { peers: true, epochs: 4, ..setup(8, 0.3) }, &[Policy::Belady]);
    let warm = ample.policies[0].warm;
    assert_eq!((warm.backend_bytes, ample.policies[0].of_bound), (0, Some(1.0)));
    assert!(warm.local_ratio() > 0.2, "{}", warm.local_ratio());
}

#[test]
fn lobster_as_published_drops_too_much_where_nodes_are_many() {
    let ratio = |nodes, policy| hit_ratio(&setup(nodes, 0.3), policy);
    assert!((ratio(1, Policy::Lobster) - ratio(1, Policy::Belady)).abs() < 0.001);
    assert!(ratio(2, Policy::Lobster) > ratio(2, Policy::NeverEvict));
    // Only every eighth sample is used again in the next epoch.
    assert!(ratio(8, Policy::Lobster) < ratio(8, Policy::Lru));
}

#[test]
fn a_result_depends_on_nothing_but_the_setup() {
    let setup = Setup { peers: true, gpus: 2, ..setup(3, 0.2) };
    assert_eq!(simulated(&setup, &Policy::ALL), simulated(&setup, &Policy::ALL));
}

#[test]
fn progress_only_grows_and_names_the_policy() {
    let mut last = 0.0;
    let mut names = Vec::new();
    let told = |name: &str, done: f64| {
        assert!((last..=1.0).contains(&done), "{last} {done}");
        last = done;
        names.push(name.to_owned());
    };
    compare(&setup(2, 0.1), &[Policy::Lru, Policy::Belady], told).unwrap();
    names.dedup();
    assert_eq!(names, ["drawing orders", "lru", "belady"]);
}

#[test]
fn seconds_are_those_of_the_equations() {
    let speeds = Speeds {
        backend: 100.0,
        peer: 50.0,
        local: 200.0,
        prepare_seconds: 0.5,
        train_seconds: 2.0,
        ahead: 1,
    };
    let setup = Setup { gpus: 2, speeds, ..setup(2, 0.0) };
    let mut clock = Clock::new(&setup);
    // A GPU has half of its node's memory and network, and a quarter of the backend.
    clock.load(0, 100, Place::Local);
    clock.load(1, 100, Place::Peer);
    clock.load(3, 100, Place::Backend);
    clock.end_iteration();
    let near = |(seconds, gap): (f64, f64), expected: (f64, f64)| {
        assert!(
            (seconds - expected.0).abs() < 1e-9 && (gap - expected.1).abs() < 1e-9,
            "{seconds} {gap}"
        );
    };
    // 4 s from the backend, 0.5 to prepare, 2 to train; gaps of 4 - 1 s and 4 - 0 s on the nodes.
    near(clock.now(), (6.5, 4.0));
    // Loaded while the first batch trains, from 4.5 on: 1 + 0.5 s are hidden.
    clock.load(0, 100, Place::Local);
    clock.end_iteration();
    near(clock.now(), (8.5, 5.0));
    // The next may start only when the second does, at 6.5: ready at 11.
    clock.load(3, 100, Place::Backend);
    clock.end_iteration();
    near(clock.now(), (13.0, 9.0));
}

#[test]
fn sizes_have_the_mean_that_was_asked_for() {
    let Sizes::Each(sizes) = Sizes::log_normal(100_000, 110_000, 0.5, 3).unwrap() else {
        panic!("they differ");
    };
    let mean = sizes.iter().map(|size| f64::from(*size)).sum::<f64>() / 1e5;
    assert!((mean / 110_000.0 - 1.0).abs() < 0.01, "{mean}");
    let variance = sizes.iter().map(|size| (f64::from(*size).ln() - 11.483).powi(2)).sum::<f64>();
    assert!((variance / 1e5 - 0.25).abs() < 0.01, "{variance}");
    assert_eq!(Sizes::log_normal(9, 7, 0.0, 0).unwrap(), Sizes::Same(7));
}

#[test]
fn what_can_not_be_simulated_is_an_error_that_says_what_can() {
    let base = || setup(2, 0.1);
    let speeds = Speeds::default();
    for (wrong, error) in [
        (Setup { samples: 0, ..base() }, "0 samples can't be simulated; choose 1 to 4294967295"),
        (Setup { nodes: 0, ..base() }, "0 nodes can't be simulated; choose 1 to 4096"),
        (Setup { nodes: 5000, ..base() }, "5000 nodes can't be simulated; choose 1 to 4096"),
        (Setup { gpus: 0, ..base() }, "0 GPUs a node can't be simulated; choose 1 to 1024"),
        (
            Setup { batch: 0, ..base() },
            "0 samples a batch can't be simulated; choose 1 to 4294967295",
        ),
        (Setup { epochs: 0, ..base() }, "0 epochs can't be simulated; choose 1 to 1048575"),
        (
            Setup { samples: 1 << 31, epochs: 90, ..base() },
            "2147483648 samples, 2 nodes and 90 epochs would take 180 GiB to simulate; choose \
             fewer epochs",
        ),
        (
            Setup { sizes: Sizes::Each(vec![1; 3]), ..base() },
            "3 sizes were given for 20000 samples; give one for each",
        ),
        (
            Setup { speeds: Speeds { backend: 0.0, ..speeds }, ..base() },
            "a backend bandwidth of 0 bytes a second moves nothing; choose at least 1",
        ),
        (
            Setup { speeds: Speeds { train_seconds: -1.0, ..speeds }, ..base() },
            "-1 seconds to train a batch make no sense; choose 0 or more",
        ),
        (
            Setup { speeds: Speeds { ahead: 0, ..speeds }, ..base() },
            "0 batches can't be loaded ahead; choose 1 to 4096",
        ),
    ] {
        let told = compare(&wrong, &[Policy::Lru], |_, _| {}).unwrap_err();
        assert_eq!(told.to_string(), error);
    }
    let error = Sizes::log_normal(9, 0, 0.5, 0).unwrap_err();
    assert_eq!(error.to_string(), "samples of 0 bytes can't be simulated; choose 1 to 4294967295");
    let error = Sizes::log_normal(9, 5, -1.0, 0).unwrap_err();
    assert_eq!(error.to_string(), "a spread of -1 is not one of sizes; choose 0 (all alike) to 3");
}

fn any_setup() -> impl Strategy<Value = Setup> {
    let cluster = (1u32..5, 1u32..4, 1u32..5, any::<bool>());
    let run = (1u32..7, 0u32..7, any::<u64>());
    (prop::collection::vec(1u32..50, 1..80), 0u64..1500, cluster, run).prop_map(
        |(sizes, cache, (nodes, gpus, batch, peers), (epochs, foresight, seed))| Setup {
            samples: sizes.len() as u64,
            sizes: Sizes::Each(sizes),
            nodes,
            gpus,
            batch,
            cache,
            epochs,
            foresight,
            peers,
            seed,
            speeds: Speeds::default(),
        },
    )
}

proptest! {
    #[test]
    fn no_policy_beats_the_bound_and_every_use_is_counted_once(setup in any_setup()) {
        let comparison = simulated(&setup, &Policy::ALL);
        for outcome in &comparison.policies {
            let mut ahead = 0;
            for (tally, bound) in outcome.epochs.iter().zip(&comparison.bound_bytes) {
                prop_assert_eq!(tally.uses, setup.uses());
                prop_assert!(tally.local_hits + tally.peer_hits <= tally.uses);
                let bytes = tally.local_bytes + tally.peer_bytes + tally.backend_bytes;
                prop_assert!(bytes >= setup.bytes());
                prop_assert!(tally.seconds > 0.0 && tally.gap_seconds >= 0.0);
                // After any number of epochs.
                ahead += tally.backend_bytes as i64 - *bound as i64;
                prop_assert!(ahead >= 0, "{}: {:?}", outcome.policy, comparison);
            }
            prop_assert!(setup.peers || outcome.warm.peer_hits == 0);
        }
    }
}
