//! Plans beside their promises and the best that can be; the simulator beside its judge; models.

use proptest::prelude::*;
use tensorferry::plan::parameters::simulate::{Doing, Lane, Outcome, simulate};
use tensorferry::plan::parameters::{
    Direction, Gradient, Layer, Link, Mode, Plan, Planner, Prediction, Profile, VERSION, exact,
    minimum_budget, plan,
};

use super::cases::{Case, case};
use super::modelled::{Hardware, Shape};
use super::{comparison, exhaustive, modelled, stepped};

fn asked(case: &Case, planner: Planner) -> Plan {
    plan(&case.profile, case.budget, case.gradient_reserve, planner).unwrap()
}

/// Compares the exact planner with all plans there are, for all places of gradients.
fn is_best(seed: u64, layers: usize) {
    let case = case(seed, layers);
    let ours = asked(&case, Planner::Exact);
    let best = exhaustive::best_seconds(&case.profile, case.gradient_reserve, case.budget).unwrap();
    let seconds = ours.predicted.seconds;
    assert!((seconds - best).abs() <= 1e-9 * best, "seed {seed}: {seconds} for {best}");
    assert_eq!(ours.gap_seconds, Some(0.0), "seed {seed}");
}

#[test]
fn no_plan_for_gradients_and_modes_together_is_faster_than_the_exact_one() {
    (0..600).for_each(|seed| is_best(seed, 1 + seed as usize % 5));
    (4000..4030).for_each(|seed| is_best(seed, 6));
    (4400..4406).for_each(|seed| is_best(seed, 7));
}

#[test]
fn the_exact_planner_is_never_slower_than_the_paper_or_than_copying_everything() {
    let mut better = 0;
    let short = (0..150).map(|seed| (seed, 1 + 7 * seed as usize % 60));
    // The knapsack of so many is not exact, and differs from the paper's if its reserve does.
    let long =
        (0..6).map(|seed| (seed, 300 + 150 * seed as usize)).chain([(102, 1000), (170, 1000)]);
    for (seed, layers) in short.chain(long) {
        let case = case(seed, layers);
        let (ours, paper) = (asked(&case, Planner::Exact), asked(&case, Planner::Paper));
        let (ours, paper) = (ours.predicted.seconds, paper.predicted.seconds);
        assert!(ours <= paper, "seed {seed}: {ours}, {paper}");
        better += usize::from(ours < paper * (1.0 - 1e-9));
        if let Ok(copy) = plan(&case.profile, case.budget, case.gradient_reserve, Planner::Copy) {
            assert!(ours <= copy.predicted.seconds, "seed {seed}");
        }
    }
    assert!(better > 40, "the exact planner was faster {better} times only");
}

#[test]
fn more_reserve_makes_no_iteration_much_longer() {
    for seed in 0..10 {
        let Case { profile, budget, .. } = case(seed, 24);
        let at = |eighths: u64| {
            let reserve = profile.gradient_bytes() / 8 * eighths;
            plan(&profile, budget, reserve, Planner::Exact).unwrap().predicted.seconds
        };
        let mut least = f64::INFINITY;
        for seconds in (0..=8).map(at) {
            assert!(seconds <= least * 1.1, "seed {seed}: {seconds} after {least}");
            least = least.min(seconds);
        }
    }
}

#[test]
fn no_plan_is_faster_than_the_stated_gap_allows_however_narrow_the_search() {
    let mut unproven = 0;
    for seed in 0..400 {
        let Case { profile, gradient_reserve, budget } = case(seed, 2 + seed as usize % 5);
        let best = exhaustive::best_seconds(&profile, gradient_reserve, budget).unwrap();
        for width in 1..4 {
            let (found, gap) = exact::choose_within(&profile, budget, gradient_reserve, width);
            let least = (found.seconds - gap) * (1.0 - 1e-9);
            assert!(least <= best, "seed {seed}, width {width}: {least} for {best}");
            assert!(best <= found.seconds * (1.0 + 1e-9), "seed {seed}, width {width}");
            unproven += usize::from(gap > 0.0);
        }
    }
    assert!(unproven > 40, "only {unproven} gaps were stated");
}

#[test]
fn the_gap_of_a_case_with_many_layers_is_some_percent() {
    let mut gaps: Vec<f64> = Vec::new();
    for seed in 0..8 {
        let ours = asked(&case(seed, 300), Planner::Exact);
        gaps.push(ours.gap_seconds.unwrap() / ours.predicted.seconds);
    }
    gaps.sort_by(f64::total_cmp);
    assert!(gaps[0] >= 0.0 && gaps[4] < 0.02 && gaps[7] < 0.15, "{gaps:?}");
}

#[test]
fn networks_and_machines_are_known_by_name() {
    let error = Shape::named("bert").unwrap_err().to_string();
    assert!(
        error.starts_with("no network \"bert\"; choose one of bert-base, roberta, "),
        "{error}"
    );
    let error = Hardware::named("k80").unwrap_err().to_string();
    assert!(error.starts_with("no machine \"k80\"; choose one of v100-pcie3, "), "{error}");
    let error = modelled::profile(&Shape::ALL[0], &Hardware::ALL[0], 0).unwrap_err().to_string();
    assert_eq!(error, "a batch of 0; choose 1 to 65536");
}

#[test]
fn modelled_networks_have_the_published_sizes_and_can_be_planned_everywhere() {
    for (name, millions) in [
        ("bert-base", 108.5..109.5),
        ("roberta", 123.0..125.0),
        ("bert-large", 333.0..335.0),
        ("gpt2-medium", 354.0..356.0),
        ("transformer-1b", 960.0..1000.0),
        ("transformer-2.4b", 2350.0..2450.0),
        ("transformer-4.3b", 4250.0..4350.0),
        ("transformer-6.7b", 6650.0..6750.0),
    ] {
        let shape = Shape::named(name).unwrap();
        for hardware in Hardware::ALL {
            let profile = modelled::profile(&shape, &hardware, 8).unwrap();
            let parameters = profile.parameter_bytes() as f64 / 4e6;
            assert!(millions.contains(&parameters), "{name}: {parameters}");
            assert!(profile.source.starts_with("modelled, not measured: "));
            let reserve = profile.gradient_bytes();
            let budget = profile.work_bytes + 2 * reserve;
            let plan = plan(&profile, budget, reserve, Planner::Exact).unwrap();
            assert_eq!(plan.choices[0].mode, Mode::Dha, "{name}: its table is read in place");
        }
    }
}

#[test]
fn a_comparison_counts_every_case_once() {
    let comparison = comparison::compare(40, 3, (6, false), |_| ()).unwrap();
    assert_eq!((comparison.best, comparison.slower_than_best), (40, 0));
    assert_eq!((comparison.slower_than_paper, comparison.layers), (0, (2, 6)));
    assert!(comparison.to_string().starts_with("40 made-up iterations of 2 to 6 layers, seed 3\n"));
    let long = comparison::compare(2, 3, (30, true), |_| ()).unwrap();
    assert!(!long.exhaustive && long.layers == (30, 30));
    let error = comparison::compare(1, 0, (1, true), |_| ()).unwrap_err().to_string();
    assert_eq!(error, "1 layers; choose at least 2");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_plan_keeps_its_promises_and_comes_back_from_text(
        seed in any::<u64>(),
        layers in 1usize..24,
        planner in prop::sample::select(vec![Planner::Exact, Planner::Paper]),
    ) {
        let case = case(seed, layers);
        let Case { profile, budget, gradient_reserve } = &case;
        let made = asked(&case, planner);
        prop_assert_eq!(&made, &asked(&case, planner));
        prop_assert!(made.predicted.device_bytes <= *budget);
        let kept = profile.layers.iter().zip(&made.choices);
        let kept = kept.filter(|(_, choice)| choice.gradient == Gradient::Device);
        let kept: u64 = kept.map(|(layer, _)| layer.gradient_bytes).sum();
        prop_assert!(kept <= *gradient_reserve);
        let outcome = simulate(profile, &made.modes(), &made.gradients()).unwrap();
        prop_assert_eq!(outcome.prediction, made.predicted);
        let json = serde_json::to_string(&made).unwrap();
        prop_assert_eq!(Plan::parse(&json, profile).unwrap(), made);
        let json = serde_json::to_string(profile).unwrap();
        prop_assert_eq!(&Profile::parse(&json).unwrap(), profile);
    }

    #[test]
    fn the_least_budget_is_enough_and_a_byte_less_is_not(
        seed in any::<u64>(),
        layers in 1usize..12,
        planner in prop::sample::select(Planner::ALL.to_vec()),
    ) {
        let Case { profile, gradient_reserve, .. } = case(seed, layers);
        let least = minimum_budget(&profile, gradient_reserve, planner);
        let made = plan(&profile, least, gradient_reserve, planner).unwrap();
        prop_assert_eq!(made.predicted.device_bytes, least);
        if least > 0 {
            let error = plan(&profile, least - 1, gradient_reserve, planner).unwrap_err();
            let states = format!("({least} bytes)");
            prop_assert!(error.to_string().contains(&states));
        }
    }
}

/// A layer of so many bytes that takes a second forward and two backward, and twice that in place.
fn layer(bytes: u64) -> Layer {
    Layer {
        name: format!("{bytes} bytes"),
        parameter_bytes: bytes,
        gradient_bytes: bytes,
        forward_seconds: 1.0,
        backward_seconds: 2.0,
        direct_forward_seconds: 2.0,
        direct_backward_seconds: 4.0,
        direct_forward_bytes: 1,
        direct_backward_bytes: 1,
        direct_gradient_seconds: 1.0,
        update_seconds: 1.0,
        copy_seconds: None,
        gradient_copy_seconds: None,
    }
}

/// A byte a second each way.
fn profile(layers: Vec<Layer>) -> Profile {
    let direction = Direction { bytes_per_second: 1.0, latency_seconds: 0.0 };
    let link =
        Link { inwards: direction, outwards: direction, direct_slowdown: 1.0, direct_shares: true };
    Profile { version: VERSION, source: "made up".into(), layers, link, work_bytes: 100 }
}

prop_compose! {
    /// Whole seconds, so that both simulators are exact.
    fn whole_layers()(
        bytes in prop_oneof![1 => Just(0u64), 6 => 1u64..8],
        is_frozen in prop::bool::weighted(0.2),
        (forward, backward) in (0u32..6, 0u32..6),
        (longer, longer_back, written) in (0u32..6, 0u32..6, 0u32..3),
        (read, read_back, update) in (0u64..5, 0u64..5, 0u32..5),
    ) -> Layer {
        Layer {
            gradient_bytes: if is_frozen { 0 } else { bytes },
            forward_seconds: f64::from(forward),
            backward_seconds: f64::from(backward),
            direct_forward_seconds: f64::from(forward + longer),
            direct_backward_seconds: f64::from(backward + longer_back),
            direct_forward_bytes: read,
            direct_backward_bytes: read_back,
            direct_gradient_seconds: f64::from(written),
            update_seconds: f64::from(update),
            ..layer(bytes)
        }
    }
}

prop_compose! {
    fn whole_cases()(layers in prop::collection::vec(whole_layers(), 0..8))(
        modes in prop::collection::vec(prop::sample::select(Mode::ALL.to_vec()), layers.len()),
        kept in prop::collection::vec(any::<bool>(), layers.len()),
        shares in any::<bool>(),
        layers in Just(layers),
    ) -> (Profile, Vec<Mode>, Vec<Gradient>) {
        let mut profile = profile(layers);
        profile.link.direct_shares = shares;
        let place = |(layer, kept): (&Layer, bool)| match (layer.gradient_bytes, kept) {
            (0, _) => Gradient::None,
            (_, true) => Gradient::Device,
            (_, false) => Gradient::Host,
        };
        let gradients = profile.layers.iter().zip(kept).map(place).collect();
        (profile, modes, gradients)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn second_by_second_comes_to_the_same((profile, modes, gradients) in whole_cases()) {
        let quick = simulate(&profile, &modes, &gradients).unwrap().prediction.seconds;
        let slow = stepped::seconds(&profile, &modes, &gradients);
        prop_assert_eq!(Some(quick as u64), slow);
    }
}

proptest! {
    #[test]
    fn time_is_accounted_for_and_nobody_does_two_things_at_once(
        (profile, modes, gradients) in whole_cases(),
    ) {
        let Outcome { prediction, timeline } = simulate(&profile, &modes, &gradients).unwrap();
        for lane in [Lane::Compute, Lane::In, Lane::Out, Lane::Update] {
            let spans: Vec<_> = timeline.lane(lane).collect();
            prop_assert!(spans.windows(2).all(|pair| pair[0].until <= pair[1].from + 1e-9));
            prop_assert!(spans.iter().all(|span| span.until <= prediction.seconds + 1e-9));
        }
        let Prediction { compute_seconds, forward_wait, backward_wait, tail_seconds, .. } = prediction;
        let all = compute_seconds + forward_wait + backward_wait + tail_seconds;
        prop_assert!((all - prediction.seconds).abs() < 1e-9);
        let copied: f64 = timeline
            .lane(Lane::In)
            .filter(|span| matches!(span.doing, Doing::Copy(_)))
            .map(|span| span.until - span.from)
            .sum();
        prop_assert!((copied - prediction.copied_bytes as f64).abs() < 1e-9);
    }
}
