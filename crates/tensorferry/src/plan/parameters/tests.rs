//! Plans of iterations that are known, and what is refused.

use super::*;
use crate::error::Kind;

/// A layer that takes a second forward and two backward, in place three times as long, and so many to copy.
fn layer(bytes: u64) -> Layer {
    Layer {
        name: format!("l{bytes}"),
        parameter_bytes: bytes,
        gradient_bytes: bytes,
        forward_seconds: 1.0,
        backward_seconds: 2.0,
        direct_forward_seconds: 3.0,
        direct_backward_seconds: 3.0,
        direct_forward_bytes: 0,
        direct_backward_bytes: 0,
        direct_gradient_seconds: 1.0,
        update_seconds: 0.5,
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

#[test]
fn the_paper_uses_in_place_what_is_no_slower_that_way() {
    // A table: copied in 8 s, read in place in 1.
    let table = Layer { direct_forward_seconds: 1.0, direct_backward_seconds: 2.0, ..layer(8) };
    let profile = profile(vec![table, layer(1)]);
    let paper = plan(&profile, 1000, 100, Planner::Paper).unwrap();
    assert_eq!(paper.modes(), [Mode::Dha, Mode::Gfgb]);
}

#[test]
fn the_paper_turns_an_earlier_layer_when_a_copy_can_not_be_hidden() {
    // Forward of the third hides two seconds; the last layer's copy takes nine.
    let none = Layer { forward_seconds: 4.0, ..layer(0) };
    let none = Layer { gradient_bytes: 0, ..none };
    let second = Layer { direct_forward_seconds: 1.5, ..layer(3) };
    let last = Layer { direct_forward_seconds: 50.0, direct_backward_seconds: 50.0, ..layer(9) };
    let profile = profile(vec![none, second, last]);
    let simulator = Simulator::new(&profile, &places(&profile, 100));
    // By itself, the second is hidden and copied: 3 s against 4 s that are there.
    assert_eq!(paper::modes(&simulator, 1000)[1..], [Mode::Dfgb, Mode::Gfgb]);
    let alone = self::profile(profile.layers[..2].to_vec());
    let simulator = Simulator::new(&alone, &places(&alone, 100));
    assert_eq!(paper::modes(&simulator, 1000)[1], Mode::Gfgb);
}

#[test]
fn the_paper_loads_what_gains_most_while_the_link_is_idle() {
    // Three layers used in place; six seconds until the first gradient, so two of three copies fit.
    let direct = |gain: f64| Layer {
        direct_forward_seconds: 1.0,
        direct_backward_seconds: 2.0 + gain,
        ..layer(2)
    };
    let profile = profile(vec![direct(1.0), direct(3.0), direct(0.5), direct(0.0)]);
    let paper = plan(&profile, 1000, 100, Planner::Paper).unwrap();
    assert_eq!(paper.modes(), [Mode::Dfgb, Mode::Dfgb, Mode::Dfgb, Mode::Dha]);
    let mut slow = profile;
    slow.layers.iter_mut().for_each(|layer| layer.copy_seconds = Some(2.5));
    let paper = plan(&slow, 1000, 100, Planner::Paper).unwrap();
    assert_eq!(paper.modes(), [Mode::Dfgb, Mode::Dfgb, Mode::Dha, Mode::Dha]);
}

#[test]
fn everything_is_copied_if_that_is_asked_for() {
    let profile = profile(vec![layer(3), layer(5)]);
    let copy = plan(&profile, 116, 8, Planner::Copy).unwrap();
    assert_eq!((copy.modes(), copy.copy_order), (vec![Mode::Gfgb; 2], vec![0, 1]));
    assert_eq!(copy.choices[0].why, "every layer is copied");
}

#[test]
fn an_iteration_without_layers_has_a_plan() {
    for planner in Planner::ALL {
        let plan = plan(&profile(vec![]), 100, 0, planner).unwrap();
        assert_eq!((plan.choices.len(), plan.predicted.seconds), (0, 0.0));
    }
}

#[test]
fn a_budget_that_is_too_small_is_an_error_that_states_the_least() {
    let large = Layer { direct_gradient_seconds: 2.0, ..layer(500) };
    let profile = profile(vec![layer(300), large]);
    assert_eq!(minimum_budget(&profile, 700, Planner::Exact), 100);
    let error = plan(&profile, 99, 700, Planner::Exact).unwrap_err().to_string();
    assert!(error.ends_with("100 B of work; give at least that, or make the batch smaller"));
    // The gradient of 500 fits in the reserve, both do not.
    assert_eq!(minimum_budget(&profile, 700, Planner::Paper), 600);
    assert!(plan(&profile, 600, 700, Planner::Paper).is_ok());
    let error = plan(&profile, 599, 700, Planner::Paper).unwrap_err();
    assert_eq!(error.kind(), Kind::InvalidInput);
    assert_eq!(
        error.to_string(),
        "a budget of 599 B is too small for this iteration, which needs 600 B (600 bytes) on the \
         device: 100 B of work, and the gradients that stay; give at least that, or reserve less \
         for gradients"
    );
    let error = plan(&profile, 1399, 700, Planner::Copy).unwrap_err().to_string();
    assert!(error.contains("needs 1.37 KiB (1400 bytes)"), "{error}");
    assert!(error.ends_with("give at least that, or take another planner"), "{error}");
}

#[test]
fn a_reserve_is_a_share_of_all_gradients() {
    let profile = profile(vec![layer(300), layer(500)]);
    assert_eq!(profile.reserve(0.25).unwrap(), 200);
    let error = profile.reserve(1.5).unwrap_err().to_string();
    assert_eq!(error, "a gradient reserve of 1.5; write a share from 0 to 1");
    let host = plan(&profile, 1000, 0, Planner::Exact).unwrap();
    assert_eq!(host.gradients(), [Gradient::Host; 2]);
}

#[test]
fn a_bad_profile_is_an_error_that_says_what_and_where() {
    let good = serde_json::to_string(&profile(vec![layer(4), layer(5)])).unwrap();
    assert!(Profile::parse(&good).is_ok());
    for (from, to, error) in [
        ("{", "[", "this is no profile of parameters: "),
        ("\"layers\"", "\"layer\"", "this is no profile of parameters: unknown field `layer`"),
        (
            "\"version\":1",
            "\"version\":2",
            "the profile has version 2, not 1; profile an iteration again",
        ),
        ("\"parameter_bytes\":4", "\"parameter_bytes\":-4", "this is no profile of parameters: "),
        (
            "\"parameter_bytes\":5",
            "\"parameter_bytes\":18446744073709551615",
            "parameter_bytes is 18446744073709551615; at most 70368744177664 can be (layer: 1, name: \
             \"l5\")",
        ),
        (
            "\"update_seconds\":0.5",
            "\"update_seconds\":-1",
            "the update takes -1 s; it lies between 0 and 1000000000000000 (layer: 0, name: \"l4\")",
        ),
        (
            "\"parameter_bytes\":4",
            "\"copy_seconds\":1,\"parameter_bytes\":0",
            "a layer without parameters has copy_seconds; leave it out (layer: 0",
        ),
        (
            "\"bytes_per_second\":1.0",
            "\"bytes_per_second\":0",
            "the link inwards moves 0 bytes a second; it lies between 1 and 1000000000000000",
        ),
        (
            "\"direct_slowdown\":1.0",
            "\"direct_slowdown\":0.5",
            "direct_slowdown is 0.5; it lies between 1 and 1000000",
        ),
    ] {
        let bad = good.replacen(from, to, 1);
        assert_ne!(bad, good, "{from}");
        let said = Profile::parse(&bad).unwrap_err();
        assert_eq!(said.kind(), Kind::Corrupt);
        assert!(said.to_string().starts_with(error), "{said}");
    }
    let mut profile = profile(vec![layer(4)]);
    profile.layers[0].forward_seconds = f64::NAN;
    let said = plan(&profile, 400, 0, Planner::Paper).unwrap_err().to_string();
    assert!(said.starts_with("forward takes NaN s"), "{said}");
}

#[test]
fn a_plan_for_another_iteration_is_refused() {
    let here = profile(vec![layer(4), layer(5)]);
    let plan = plan(&here, 1000, 9, Planner::Copy).unwrap();
    let json = serde_json::to_string(&plan).unwrap();
    assert_eq!(Plan::parse(&json, &here).unwrap(), plan);
    let said = Plan::parse(&json, &profile(vec![layer(4)])).unwrap_err().to_string();
    let error =
        "the plan is for 2 layers, the profile has 1; make the plan again from this profile";
    assert_eq!(said, error);
    for (from, to, error) in [
        ("[0,1]", "[1,0]", "the plan copies in another order than the layers are needed"),
        ("\"device\"", "\"none\"", "layer 0 has a gradient in one and none in the other"),
        ("\"version\":1", "\"version\":9", "the plan has version 9, not 1"),
        ("\"mode\":\"gfgb\"", "\"mode\":\"gpu\"", "this is no plan: unknown variant `gpu`"),
    ] {
        let bad = json.replacen(from, to, 1);
        assert_ne!(bad, json, "{from}");
        let said = Plan::parse(&bad, &here).unwrap_err().to_string();
        assert!(said.starts_with(error), "{said}");
    }
}

#[test]
fn a_plan_is_explained_layer_by_layer() {
    let between =
        Layer { parameter_bytes: 0, gradient_bytes: 0, name: "evil\u{1b}[2J".into(), ..layer(0) };
    let table = Layer { direct_forward_seconds: 1.0, direct_backward_seconds: 2.0, ..layer(8) };
    let profile = profile(vec![table, between, layer(1)]);
    let plan = plan(&profile, 110, 9, Planner::Exact).unwrap();
    assert_eq!(
        plan.explain(&profile),
        "made up\n\
         \n\
         layer     parameters  mode  gradient  why\n\
         l8               8 B  DHA   host      GFGB takes 8.000 s longer, DFGB takes 2.000 s longer\n\
         evil\u{fffd}[2J         0 B  -     -         it has no parameters\n\
         l1               1 B  GFGB  device    DHA takes 3.000 s longer, DFGB takes 2.000 s longer\n\
         \n\
         exact: 1 GFGB (1 B), 1 DHA (8 B), 0 DFGB (0 B); no plan is faster\n\
         102 B on the device, budget 110 B\n\
         predicted 15.500 s an iteration: 10.000 s of compute, waiting 0.000 s in forward and 5.000 s \
         in backward, 500.00 ms after it; idle 35.5 %\n"
    );
}

#[test]
fn planners_are_known_by_name() {
    assert_eq!("paper".parse::<Planner>().unwrap(), Planner::Paper);
    let error = "best".parse::<Planner>().unwrap_err().to_string();
    assert_eq!(error, "\"best\" is no planner; choose \"exact\", \"paper\" or \"copy\"");
}
