//! What every policy promises, and what Belady's reaches.
//!
//! Two judges stand beside: an exhaustive search over everything that a cache could ever hold, for a few
//! samples, and Belady's choice by exact moments (MIN), which the search proves right, for many.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use proptest::prelude::*;

use super::{Copies, Future, Moment, Policy, Tier, Use};
use crate::plan::data::order::{Distributed, Mt19937, randperm};

/// What one node uses, epoch by epoch.
type Run = Vec<Vec<u32>>;

/// Every use of a run, with all that is known of it.
fn uses(run: &Run, samples: u32) -> Vec<(u32, Use)> {
    let mut future = Future::new(samples.into()).unwrap();
    for order in run {
        future.push_epoch(order).unwrap();
    }
    let moments = (0u32..).zip(run).flat_map(|(epoch, order)| {
        (0u32..).zip(order).map(move |(position, id)| (*id, Moment { epoch, position }))
    });
    let known = |(id, now)| {
        let next = future.next_use(id, now);
        (id, Use { now, next, uses: future.uses(id), copies: Copies::Private })
    };
    moments.map(known).collect()
}

/// Moments at which the sample was there.
fn hits(policy: Policy, run: &Run, samples: u32, capacity: u64) -> Vec<Moment> {
    let mut tier = Tier::new(policy, capacity);
    let mut hits = Vec::new();
    for (id, use_) in uses(run, samples) {
        if tier.contains(id) {
            hits.push(use_.now);
            tier.touch(id, &use_);
        } else {
            tier.admit(id, 1, &use_, &mut Vec::new());
        }
    }
    hits
}

/// Belady's MIN by exact moments, with the choice not to keep what comes.
fn min_by_moments(run: &Run, samples: u32, capacity: usize) -> usize {
    let never = Moment { epoch: u32::MAX, position: 0 };
    let mut kept: BTreeMap<u32, Moment> = BTreeMap::new();
    let mut order: BTreeSet<(Moment, u32)> = BTreeSet::new();
    let mut hits = 0;
    for (id, use_) in uses(run, samples) {
        if let Some(next) = kept.remove(&id) {
            order.remove(&(next, id));
            hits += 1;
        }
        let next = use_.next.unwrap_or(never);
        kept.insert(id, next);
        order.insert((next, id));
        if kept.len() > capacity
            && let Some((_, id)) = order.pop_last()
        {
            kept.remove(&id);
        }
    }
    hits
}

/// The most hits there can be: every set of samples that a cache could hold after each use.
fn exhaustive(run: &Run, capacity: u32) -> usize {
    let mut best: HashMap<u32, usize> = HashMap::from([(0, 0)]);
    for id in run.iter().flatten() {
        let mut after: HashMap<u32, usize> = HashMap::new();
        for (set, hits) in best {
            let hits = hits + (set >> id & 1) as usize;
            let with = set | 1 << id;
            // Nothing is gained by letting go of more than one at a time.
            let without =
                (0..32).filter(|other| with >> other & 1 == 1).map(|other| with & !(1 << other));
            for next in without.chain([with, set]).filter(|next| next.count_ones() <= capacity) {
                let most = after.entry(next).or_default();
                *most = hits.max(*most);
            }
        }
        best = after;
    }
    best.into_values().max().unwrap_or(0)
}

/// Every order of the samples.
fn permutations(samples: u32) -> Vec<Vec<u32>> {
    let mut all = vec![vec![]];
    for id in 0..samples {
        let insert = |order: Vec<u32>| {
            (0..=order.len()).map(move |at| {
                let mut longer = order.clone();
                longer.insert(at, id);
                longer
            })
        };
        all = all.into_iter().flat_map(insert).collect();
    }
    all
}

/// What one node of several uses of torch's orders.
fn node(samples: u32, nodes: u32, epochs: u32, seed: u64) -> Run {
    let share = Distributed {
        len: samples.into(),
        world_size: nodes,
        rank: nodes / 2,
        seed,
        shuffle: true,
        drop_last: true,
    };
    (0..epochs).map(|epoch| share.epoch(epoch.into()).unwrap()).collect()
}

#[test]
fn on_one_node_belady_hits_as_often_as_can_be_in_every_order_of_few_samples() {
    for samples in 2..=4 {
        let orders = permutations(samples);
        for (second, third) in orders.iter().flat_map(|a| orders.iter().map(move |b| (a, b))) {
            let run = vec![(0..samples).collect(), second.clone(), third.clone()];
            for capacity in 1..=samples {
                let best = exhaustive(&run, capacity);
                let of = |policy| hits(policy, &run, samples, capacity.into()).len();
                assert_eq!(of(Policy::Belady), best, "{run:?} {capacity}");
                // What is there at the end of an epoch is all that can be hit in the next.
                assert_eq!(best, 2 * capacity as usize);
                assert_eq!(of(Policy::Lobster), best, "{run:?} {capacity}");
            }
        }
    }
}

#[test]
fn belady_by_epochs_reads_hardly_more_than_by_moments_on_many_nodes() {
    let (samples, epochs) = (40_000, 10);
    for nodes in [1, 2, 3, 4, 8, 16] {
        let run = node(samples, nodes, epochs, 3);
        let uses = run.iter().map(Vec::len).sum::<usize>();
        // One over the square of the nodes is the worst case: what is used in two epochs on end just fits.
        for cached in [f64::from(nodes).powi(-2), 0.02, 0.1, 0.3, 0.7] {
            let capacity = (f64::from(samples) * cached) as usize;
            let best = uses - min_by_moments(&run, samples, capacity);
            let reads = uses - hits(Policy::Belady, &run, samples, capacity as u64).len();
            let more = reads as f64 / best as f64 - 1.0;
            let most = if nodes == 1 { 0.0 } else { 0.002 };
            assert!((0.0..=most).contains(&more), "{nodes} {cached}: {reads} for {best}");
        }
    }
}

#[test]
fn belady_spreads_hits_over_an_epoch_where_exact_moments_bring_them_first() {
    let run = node(10_000, 1, 4, 9);
    let early = |policy| {
        let hits = hits(policy, &run, 10_000, 5_000);
        let warm: Vec<_> = hits.iter().filter(|moment| moment.epoch == 3).collect();
        assert_eq!(warm.len(), 5_000);
        warm.iter().filter(|moment| moment.position < 5_000).count()
    };
    assert!((2_350..2_650).contains(&early(Policy::Belady)), "{}", early(Policy::Belady));
    assert!(early(Policy::Lobster) > 4_000, "{}", early(Policy::Lobster));
}

#[test]
fn lobster_lets_go_of_what_the_next_epoch_does_not_use() {
    let mut tier = Tier::new(Policy::Lobster, 10);
    let at = |epoch, position| Moment { epoch, position };
    let soon = Use { now: at(0, 0), next: Some(at(1, 5)), ..Use::default() };
    assert!(tier.admit(7, 4, &soon, &mut Vec::new()));
    let later = Use { now: at(1, 5), next: Some(at(3, 0)), ..Use::default() };
    assert!(!tier.touch(7, &later));
    assert_eq!((tier.contains(7), tier.used()), (false, 0));
    assert!(!tier.admit(7, 4, &later, &mut Vec::new()));
}

#[test]
fn belady_gives_up_a_second_copy_for_an_only_one_and_never_the_reverse() {
    let mut tier = Tier::new(Policy::Belady, 2);
    let with =
        |copies| Use { next: Some(Moment { epoch: 1, position: 0 }), copies, ..Use::default() };
    let (only, several) = (with(Copies::Only), with(Copies::Several));
    let mut evicted = Vec::new();
    assert!(tier.admit(1, 1, &only, &mut evicted) && tier.admit(2, 1, &several, &mut evicted));
    // Others have copied what this node answers for.
    assert!(tier.touch(1, &several));
    assert!(tier.admit(3, 1, &only, &mut evicted));
    assert_eq!(evicted, [2]);
    assert!(!tier.admit(4, 1, &several, &mut evicted));
    assert!(!tier.admit(4, 1, &only, &mut evicted));
    assert!(tier.contains(1) && tier.contains(3));
}

#[test]
fn a_sample_that_fits_in_no_way_is_refused_and_nothing_goes_for_it() {
    for policy in Policy::ALL {
        let mut tier = Tier::new(policy, u64::MAX);
        assert!(!tier.admit(1, 1 << 32, &Use::default(), &mut Vec::new()), "{policy}");
        let mut tier = Tier::new(policy, 9);
        let use_ = Use { next: Some(Moment { epoch: 1, position: 3 }), uses: 2, ..Use::default() };
        let mut evicted = Vec::new();
        assert!(tier.admit(1, 9, &use_, &mut evicted), "{policy}");
        assert!(!tier.admit(2, 10, &use_, &mut evicted), "{policy}");
        assert!(tier.admit(3, 0, &use_, &mut evicted), "{policy}: nothing takes no room");
        assert!(evicted.is_empty(), "{policy}");
    }
}

#[test]
fn a_tier_that_is_limited_lets_go_of_what_is_used_last_and_takes_more_again_later() {
    let mut tier = Tier::new(Policy::Belady, 5);
    let next = |epoch| Use { next: Some(Moment { epoch, position: 0 }), ..Use::default() };
    let mut evicted = Vec::new();
    for (id, epoch) in [(1, 4), (2, 1), (3, 5), (4, 2), (5, 3)] {
        assert!(tier.admit(id, 1, &next(epoch), &mut evicted));
    }
    tier.limit_to(2, &mut evicted);
    assert_eq!((evicted.as_slice(), tier.used(), tier.capacity()), (&[3, 1, 5][..], 2, 2));
    assert!(!tier.admit(6, 1, &next(9), &mut evicted) && tier.contains(2) && tier.contains(4));
    tier.limit_to(3, &mut evicted);
    assert!(tier.admit(6, 1, &next(9), &mut evicted));
    assert_eq!((evicted.len(), tier.used()), (3, 3));
}

#[test]
fn the_queue_stays_small_however_often_samples_are_used() {
    for policy in Policy::ALL {
        let mut tier = Tier::new(policy, 10);
        for turn in 0..100_000u32 {
            let now = Moment { epoch: turn, position: 0 };
            let next = Some(Moment { epoch: turn + 1, position: turn % 7 });
            let use_ = Use { now, next, uses: turn, ..Use::default() };
            tier.admit(turn % 10, 1, &use_, &mut Vec::new());
        }
        assert_eq!(tier.len(), 10);
        assert!(tier.queued() <= 64, "{policy}: {}", tier.queued());
    }
}

fn any_use() -> impl Strategy<Value = Use> {
    let moment = || (0u32..6, 0u32..50).prop_map(|(epoch, position)| Moment { epoch, position });
    let copies = prop_oneof![Just(Copies::Private), Just(Copies::Only), Just(Copies::Several)];
    (moment(), prop::option::of(moment()), 0u32..5, copies)
        .prop_map(|(now, next, uses, copies)| Use { now, next, uses, copies })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_tier_is_never_overfull_and_tells_all_that_goes(
        policy in prop::sample::select(Policy::ALL.to_vec()),
        capacity in 0u64..60,
        steps in prop::collection::vec((0u32..25, 0u64..20, 0u8..8, any_use()), 0..400),
    ) {
        let mut tier = Tier::new(policy, capacity);
        let mut model: HashMap<u32, u64> = HashMap::new();
        for (id, bytes, action, use_) in steps {
            let mut evicted = Vec::new();
            if action == 0 {
                prop_assert_eq!(tier.remove(id), model.remove(&id));
            } else if model.contains_key(&id) {
                if !tier.touch(id, &use_) {
                    model.remove(&id);
                }
            } else if tier.admit(id, bytes, &use_, &mut evicted) {
                for gone in evicted {
                    prop_assert!(model.remove(&gone).is_some(), "{} was not there", gone);
                }
                model.insert(id, bytes);
            } else {
                prop_assert!(evicted.is_empty());
            }
            prop_assert!(tier.used() <= capacity);
            prop_assert_eq!(tier.used(), model.values().sum::<u64>());
            prop_assert_eq!(tier.len(), model.len());
            prop_assert!(model.keys().all(|id| tier.contains(*id)));
        }
    }

    #[test]
    fn exact_moments_are_the_best_there_is_and_nothing_beats_them(
        run in prop::collection::vec(prop::collection::btree_set(0u32..7, 0..6), 1..5),
        capacity in 1u32..5, seed in any::<u64>(),
    ) {
        let mut random = Mt19937::new(seed);
        let mut shuffled = |set: BTreeSet<u32>| {
            let ids: Vec<_> = set.into_iter().collect();
            let order = randperm(ids.len() as u64, &mut random).unwrap();
            order.into_iter().map(|at| ids[at as usize]).collect()
        };
        let run: Run = run.into_iter().map(&mut shuffled).collect();
        let best = exhaustive(&run, capacity);
        prop_assert_eq!(min_by_moments(&run, 7, capacity as usize), best);
        for policy in Policy::ALL {
            prop_assert!(hits(policy, &run, 7, capacity.into()).len() <= best, "{}", policy);
        }
    }

    #[test]
    fn with_sizes_one_node_reads_what_can_not_be_kept_and_at_most_one_sample_more(
        sizes in prop::collection::vec(1u64..40, 1..60), capacity in 0u64..1500, seed in any::<u64>(),
    ) {
        let samples = sizes.len() as u32;
        let mut tier = Tier::new(Policy::Belady, capacity);
        let run = node(samples, 1, 4, seed);
        let mut read = [0; 4];
        for (id, use_) in uses(&run, samples) {
            let bytes = sizes[id as usize];
            if !tier.touch(id, &use_) {
                read[use_.now.epoch as usize] += bytes;
                tier.admit(id, bytes, &use_, &mut Vec::new());
            }
        }
        let bound = sizes.iter().sum::<u64>().saturating_sub(capacity);
        let largest = sizes.iter().max().copied().unwrap_or(0);
        for read in &read[1..] {
            prop_assert!((bound..bound + largest).contains(read), "{} for {}", read, bound);
        }
    }
}
