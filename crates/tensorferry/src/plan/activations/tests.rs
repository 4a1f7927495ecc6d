//! Plans of steps that are known, and what is refused.

use super::*;
use crate::plan::activations::simulate::simulate;

const RAW: Place = Place::Offload { encoded: false };
const ENCODED: Place = Place::Offload { encoded: true };
/// Seconds that are lost to rounding.
const ROUNDING: f64 = 2e-9;

/// Tensors of so many bytes, so many when encoded, saved a second apart; backward uses them in reverse, two
/// seconds each. A byte a second to the disk, two back.
fn profile(sizes: &[(u64, u64)]) -> Profile {
    let tensors: Vec<Tensor> = sizes
        .iter()
        .enumerate()
        .map(|(number, (bytes, encoded_bytes))| Tensor {
            name: format!("t{number}"),
            bytes: *bytes,
            encoded_bytes: *encoded_bytes,
            saved_at: number as f64,
        })
        .collect();
    let uses = (0..sizes.len()).rev().enumerate().map(|(place, tensor)| {
        let at = 2.0 * place as f64;
        Use { tensor, at, until: at + 2.0 }
    });
    Profile {
        version: VERSION,
        uses: uses.collect(),
        tensors,
        forward_seconds: sizes.len() as f64,
        backward_seconds: 2.0 * sizes.len() as f64,
        disk: Disk {
            write_bytes_per_second: 1.0,
            read_bytes_per_second: 2.0,
            seconds_per_transfer: 0.0,
            awaited_write_speedup: 1.0,
            awaited_read_speedup: 1.0,
        },
        codec: Codec { encode_bytes_per_second: 1e6, decode_bytes_per_second: 1e6 },
    }
}

#[test]
fn a_plan_is_foreseen_with_the_times_of_another_step() {
    let mut profile = profile(&[(8, 8), (8, 8), (8, 8)]);
    let plan = plan(&profile, 16, Planner::Timeline).unwrap();
    assert_eq!(plan.foresee(&profile), Some(plan.predicted));
    profile.disk.read_bytes_per_second = 1.0;
    let slower = plan.foresee(&profile).unwrap();
    let places: Vec<_> = plan.choices.iter().map(|choice| choice.place).collect();
    assert_eq!(slower, simulate(&profile, &places, 16).unwrap().prediction);
    assert!(slower.backward_stall > plan.predicted.backward_stall);
    profile.tensors.pop();
    assert_eq!(plan.foresee(&profile), None);
}

#[test]
fn phase_one_takes_the_first_until_the_rest_fits() {
    let mut profile = profile(&[(2, 2), (1, 1), (2, 2), (3, 3)]);
    profile.disk.write_bytes_per_second = 10.0;
    let paper = plan(&profile, 5, Planner::Paper).unwrap();
    assert_eq!(paper.places(), [RAW, RAW, Place::Keep, Place::Keep]);
    assert_eq!(paper.choices[0].why, "phase 1: among the first, until the rest fits");
}

#[test]
fn phase_two_gives_up_the_last_that_can_not_be_encoded_for_those_that_get_smallest() {
    // Eight bytes too much, and eight seconds to write the first two: with the third, it is five.
    let profile = profile(&[(4, 4), (4, 4), (4, 1), (4, 4), (4, 4)]);
    let paper = plan(&profile, 12, Planner::Paper).unwrap();
    let kept = Place::Keep;
    assert_eq!(paper.places(), [RAW, kept, ENCODED, kept, kept]);
    let why = "phase 2: gets 4.00 times smaller, instead of one that does not";
    assert_eq!(paper.choices[2].why, why);
}

#[test]
fn a_late_tensor_is_kept_and_an_early_one_leaves() {
    let profile = profile(&[(3, 3), (3, 3), (3, 3), (3, 3), (3, 3), (3, 3)]);
    let plan = plan(&profile, 15, Planner::Timeline).unwrap();
    assert!(plan.predicted.stall() < ROUNDING);
    assert_eq!(plan.predicted.written_bytes, 3);
    assert_eq!(plan.places()[5], Place::Keep);
    assert_eq!(plan.fetch_order.len(), 1);
}

#[test]
fn what_fits_is_kept() {
    let profile = profile(&[(3, 1), (4, 1)]);
    for planner in Planner::ALL {
        let plan = plan(&profile, 7, planner).unwrap();
        assert_eq!(plan.places(), [Place::Keep; 2]);
        assert_eq!((plan.predicted.written_bytes, plan.predicted.peak_bytes), (0, 7));
    }
}

#[test]
fn a_step_without_tensors_has_a_plan() {
    let plan = plan(&profile(&[]), 0, Planner::Timeline).unwrap();
    assert_eq!((plan.choices.len(), plan.predicted), (0, Prediction::default()));
}

#[test]
fn a_budget_that_is_too_small_is_an_error_that_states_the_least() {
    // Backward holds the last two at once.
    let mut profile = profile(&[(300, 300), (500, 500), (1000, 1000)]);
    profile.uses[0].until = 3.0;
    assert_eq!(minimum_budget(&profile), 1500);
    assert!(plan(&profile, 1500, Planner::Paper).is_ok());
    let error = plan(&profile, 1499, Planner::Timeline).unwrap_err();
    assert_eq!(error.kind(), Kind::InvalidInput);
    assert_eq!(
        error.to_string(),
        "a budget of 1.46 KiB is too small for this step, which needs 1.46 KiB (1500 bytes) at one \
         moment even if everything is offloaded; give at least that"
    );
}

#[test]
fn a_bad_profile_is_an_error_that_says_what_and_where() {
    let good = serde_json::to_string(&profile(&[(4, 2), (4, 4)])).unwrap();
    assert!(Profile::parse(&good).is_ok());
    for (from, to, error) in [
        ("{", "[", "this is no profile of activations: "),
        ("\"uses\"", "\"used\"", "this is no profile of activations: unknown field `used`"),
        (
            "\"version\":1",
            "\"version\":2",
            "the profile has version 2, not 1; profile a step again",
        ),
        ("\"bytes\":4", "\"bytes\":-4", "this is no profile of activations: invalid value"),
        (
            "\"encoded_bytes\":2",
            "\"encoded_bytes\":5",
            "a tensor of 4 bytes has 5 when encoded; where encoding does not pay, both are the same \
             (tensor: 0, name: \"t0\")",
        ),
        (
            "\"bytes\":4",
            "\"bytes\":18446744073709551615",
            "a tensor has 18446744073709551615 bytes; at most 8796093022208 can be (tensor: 0",
        ),
        (
            "\"saved_at\":0.0",
            "\"saved_at\":1.5",
            "a tensor was saved at 1 s, after one at 1.5 s; list them in order of time (tensor: 1",
        ),
        (
            "\"saved_at\":1.0",
            "\"saved_at\":9",
            "the time at which a tensor was saved is 9; it lies between 0 and 2 (tensor: 1",
        ),
        ("\"tensor\":1", "\"tensor\":2", "tensor 2 is used, and there are 2 (use: 0)"),
        ("\"at\":2.0", "\"at\":-2", "the time of a use is -2; it lies between 0 and 4 (use: 1)"),
        ("\"until\":4.0", "\"until\":1", "a use at 2 s ends before it begins, at 1 s (use: 1)"),
        (
            "\"forward_seconds\":2.0",
            "\"forward_seconds\":1e16",
            "the seconds of forward is 10000000000000000; it lies between 0 and 1000000000000000",
        ),
        (
            "\"awaited_write_speedup\":1.0",
            "\"awaited_write_speedup\":0",
            "writes are 0 times as fast while compute waits; it lies between 0.1 and 100",
        ),
        (
            "\"awaited_read_speedup\":1.0",
            "\"awaited_read_speedup\":1e3",
            "reads are 1000 times as fast while compute waits; it lies between 0.1 and 100",
        ),
        (
            "\"write_bytes_per_second\":1.0",
            "\"write_bytes_per_second\":0",
            "the disk writes 0 bytes a second; it lies between 1 and 1000000000000000",
        ),
    ] {
        let bad = good.replacen(from, to, 1);
        assert_ne!(bad, good, "{from}");
        let said = Profile::parse(&bad).unwrap_err();
        assert_eq!(said.kind(), Kind::Corrupt);
        assert!(said.to_string().starts_with(error), "{said}");
    }
    let mut profile = profile(&[(4, 4)]);
    profile.codec.decode_bytes_per_second = f64::NAN;
    let said = plan(&profile, 4, Planner::Paper).unwrap_err().to_string();
    assert!(said.starts_with("the codec decodes NaN bytes a second"), "{said}");
}

#[test]
fn a_plan_for_another_step_is_refused() {
    let here = profile(&[(4, 4), (4, 4), (4, 4)]);
    let plan = plan(&here, 8, Planner::Timeline).unwrap();
    let json = serde_json::to_string(&plan).unwrap();
    assert_eq!(Plan::parse(&json, &here).unwrap(), plan);
    let said = Plan::parse(&json, &profile(&[(4, 4)])).unwrap_err().to_string();
    let error =
        "the plan is for 3 tensors, the profile has 1; make the plan again from this profile";
    assert_eq!(said, error);
    let order = format!("\"fetch_order\":[{}]", plan.fetch_order[0]);
    let said = Plan::parse(&json.replace(&order, "\"fetch_order\":[]"), &here).unwrap_err();
    assert!(said.to_string().starts_with("the plan fetches in another order"), "{said}");
}

#[test]
fn a_plan_is_explained_tensor_by_tensor() {
    let mut profile = profile(&[(2 << 20, 1 << 20), (1 << 20, 1 << 20)]);
    profile.tensors[1].name = "evil\u{1b}[2J".into();
    profile.disk.write_bytes_per_second = 1e7;
    profile.disk.read_bytes_per_second = 1e7;
    profile.codec = Codec { encode_bytes_per_second: 1e9, decode_bytes_per_second: 1e9 };
    let plan = plan(&profile, 2 << 20, Planner::Timeline).unwrap();
    assert_eq!(
        plan.explain(&profile),
        "tensor          size  place           why\n\
         t0             2 MiB  disk, 1/2.00    keeping it would leave too little room for the others\n\
         evil\u{fffd}[2J       1 MiB  memory          offloading it would stall for 104.86 ms longer\n\
         \n\
         timeline: 1 of 2 tensors to disk, 2 MiB of 3 MiB\n\
         written 1 MiB, read 1 MiB; at most 2 MiB in memory, budget 2 MiB\n\
         predicted 6.105 s a step: 6.000 s of compute, waiting 0.000 s in forward and 104.86 ms in \
         backward\n"
    );
}

#[test]
fn planners_are_known_by_name() {
    assert_eq!("paper".parse::<Planner>().unwrap(), Planner::Paper);
    let error = "best".parse::<Planner>().unwrap_err().to_string();
    assert_eq!(error, "\"best\" is no planner; choose \"timeline\" or \"paper\"");
}
