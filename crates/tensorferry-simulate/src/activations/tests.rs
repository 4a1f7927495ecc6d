//! Plans beside their promises and the best that can be; the simulator beside its judge.

use proptest::prelude::*;
use tensorferry::plan::activations::simulate::{Doing, Outcome, Simulator, Span, simulate};
use tensorferry::plan::activations::{
    Codec, Disk, Place, Plan, Planner, Profile, Tensor, Use, VERSION, minimum_budget, plan,
    timeline,
};

use super::cases::{Case, case};
use super::exhaustive::best_seconds;
use super::{comparison, stepped};

const RAW: Place = Place::Offload { encoded: false };
const ENCODED: Place = Place::Offload { encoded: true };
/// Seconds that are lost to rounding.
const ROUNDING: f64 = 2e-9;

#[test]
fn plans_of_small_steps_take_at_most_a_hundredth_longer_than_the_best_there_is() {
    for seed in 0..300 {
        let Case { profile, budget } = case(seed, 2 + seed as usize % 9);
        let seconds = plan(&profile, budget, Planner::Timeline).unwrap().predicted.seconds;
        let best = best_seconds(&profile, budget).unwrap();
        assert!(seconds <= 1.01 * best, "seed {seed}: {seconds} for {best}");
    }
}

#[test]
fn the_timeline_is_never_worse_than_the_paper_or_than_offloading_everything() {
    let mut better = 0;
    for seed in 0..1000 {
        let Case { profile, budget } = case(seed, 1 + seed as usize % 48);
        let mut simulator = Simulator::new(&profile, budget);
        let mut seconds =
            |places: &[Place]| simulator.predict(places).map(|came| came.seconds).unwrap();
        let everything = seconds(&vec![RAW; profile.tensors.len()]);
        let paper = plan(&profile, budget, Planner::Paper).unwrap().predicted.seconds;
        let places = timeline::search(&profile, budget, timeline::RUNS.0);
        let ours = seconds(&places);
        assert!(ours <= paper + ROUNDING, "seed {seed}: {ours}, {paper}");
        assert!(ours <= everything + ROUNDING, "seed {seed}: {ours}, everything {everything}");
        better += usize::from(ours < paper - ROUNDING);
    }
    assert!(better > 200, "the timeline was better {better} times only");
}

#[test]
fn a_comparison_counts_every_case_once() {
    let comparison = comparison::compare(5, 3, |_| ()).unwrap();
    assert_eq!(comparison.worse, 0);
    assert_eq!(comparison.better + comparison.same, 5);
    assert!(comparison.timeline.mean_stall_share <= comparison.paper.mean_stall_share);
    assert!(comparison.to_string().starts_with("5 made-up steps of 2 to 96 tensors, seed 3\n"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_plan_keeps_its_promises_and_comes_back_from_text(
        seed in any::<u64>(),
        tensors in 1usize..24,
        planner in prop::sample::select(Planner::ALL.to_vec()),
    ) {
        let Case { profile, budget } = case(seed, tensors);
        let made = plan(&profile, budget, planner).unwrap();
        prop_assert_eq!(&made, &plan(&profile, budget, planner).unwrap());
        prop_assert!(made.predicted.peak_bytes <= budget);
        let outcome = simulate(&profile, &made.places(), budget).unwrap();
        prop_assert_eq!(outcome.prediction, made.predicted);
        let json = serde_json::to_string(&made).unwrap();
        prop_assert_eq!(Plan::parse(&json, &profile).unwrap(), made);
        let json = serde_json::to_string(&profile).unwrap();
        prop_assert_eq!(Profile::parse(&json).unwrap(), profile);
    }
}

fn tensor(bytes: u64, saved_at: f64) -> Tensor {
    Tensor { name: format!("at {saved_at}"), bytes, encoded_bytes: bytes, saved_at }
}

fn use_(tensor: usize, at: f64, until: f64) -> Use {
    Use { tensor, at, until }
}

/// A byte a second, ten seconds each way.
fn profile(tensors: Vec<Tensor>, uses: Vec<Use>) -> Profile {
    let disk = Disk {
        write_bytes_per_second: 1.0,
        read_bytes_per_second: 1.0,
        seconds_per_transfer: 0.0,
        awaited_write_speedup: 1.0,
        awaited_read_speedup: 1.0,
    };
    let codec = Codec { encode_bytes_per_second: 1e9, decode_bytes_per_second: 1e9 };
    let (forward_seconds, backward_seconds) = (10.0, 10.0);
    Profile { version: VERSION, tensors, uses, forward_seconds, backward_seconds, disk, codec }
}

fn places(count: usize) -> impl Strategy<Value = Vec<Place>> {
    prop::collection::vec(prop::sample::select(vec![Place::Keep, RAW, ENCODED]), count)
}

prop_compose! {
    /// Whole bytes and seconds, so that both simulators are exact.
    fn whole_profiles()(
        sizes in prop::collection::vec((1u64..10, 1u64..10, 0u32..20), 1..8),
        uses in prop::collection::vec((0usize..8, 0u32..20, 0u32..6), 0..14),
        (fixed, slow_codec) in (0u32..3, any::<bool>()),
        (writes, reads) in (0u8..3, 0u8..3),
    ) -> Profile {
        let mut tensors: Vec<_> = sizes
            .iter()
            .map(|(bytes, encoded, at)| Tensor {
                encoded_bytes: (*encoded).min(*bytes),
                ..tensor(*bytes, f64::from(*at))
            })
            .collect();
        tensors.sort_by(|a, b| a.saved_at.total_cmp(&b.saved_at));
        let mut uses: Vec<_> = uses
            .iter()
            .map(|(which, at, long)| {
                use_(which % tensors.len(), f64::from(*at), f64::from((at + long).min(20)))
            })
            .collect();
        uses.sort_by(|a, b| a.at.total_cmp(&b.at));
        let mut profile = profile(tensors, uses);
        (profile.forward_seconds, profile.backward_seconds) = (20.0, 20.0);
        profile.disk.seconds_per_transfer = f64::from(fixed);
        // Powers of two, so that their parts of seconds are exact too.
        profile.disk.awaited_write_speedup = f64::from(1u8 << writes);
        profile.disk.awaited_read_speedup = f64::from(1u8 << reads);
        if slow_codec {
            profile.codec = Codec { encode_bytes_per_second: 1.0, decode_bytes_per_second: 1.0 };
        }
        profile
    }
}

prop_compose! {
    fn whole_cases()(profile in whole_profiles())(
        places in places(profile.tensors.len()),
        slack in 0u64..20,
        profile in Just(profile),
    ) -> (Profile, Vec<Place>, u64) {
        let budget = minimum_budget(&profile) + slack;
        (profile, places, budget)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn second_by_second_comes_to_the_same((profile, places, budget) in whole_cases()) {
        let quick = simulate(&profile, &places, budget).ok().map(|outcome| outcome.prediction);
        prop_assert_eq!(quick, stepped::simulate(&profile, &places, budget));
    }
}

proptest! {
    #[test]
    fn the_minimum_budget_is_enough_to_offload_everything_and_one_less_is_not(
        profile in whole_profiles(),
        encoded in any::<bool>(),
    ) {
        let places = vec![Place::Offload { encoded }; profile.tensors.len()];
        let minimum = minimum_budget(&profile);
        prop_assert!(simulate(&profile, &places, minimum).is_ok());
        prop_assert!(simulate(&profile, &places, minimum - 1).is_err());
    }

    #[test]
    fn memory_stays_within_the_budget_and_time_is_accounted_for(
        (profile, places, budget) in whole_cases(),
    ) {
        let Ok(Outcome { prediction, timeline }) = simulate(&profile, &places, budget) else {
            return Ok(());
        };
        let most = timeline.memory.iter().map(|(_, bytes)| *bytes).max().unwrap_or(0);
        prop_assert!(prediction.peak_bytes <= budget);
        prop_assert!(most <= prediction.peak_bytes);
        let lane = |disk: bool| {
            let mut spans: Vec<_> =
                timeline.spans.iter().filter(|span| span.doing.is_transfer() == disk).collect();
            spans.sort_by(|a, b| a.from.total_cmp(&b.from));
            spans
        };
        for disk in [false, true] {
            prop_assert!(lane(disk).windows(2).all(|pair| pair[0].until <= pair[1].from));
        }
        let computed: f64 = lane(false).iter().map(|span| span.until - span.from).sum();
        prop_assert!((computed - prediction.seconds).abs() < 1e-9);
        let moved = |read: bool| -> u64 {
            let tensor = |span: &&Span| match span.doing {
                Doing::Write(tensor) if !read => Some(tensor),
                Doing::Read(tensor) if read => Some(tensor),
                _ => None,
            };
            let bytes = |id: usize| profile.tensors[id].stored_bytes(places[id].is_encoded());
            lane(true).iter().filter_map(tensor).map(bytes).sum()
        };
        prop_assert_eq!(moved(false), prediction.written_bytes);
        prop_assert_eq!(moved(true), prediction.read_bytes);
    }
}
