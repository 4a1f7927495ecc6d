//! The simulator beside the rules.

use super::*;
use crate::plan::parameters::{Direction, Layer, Link, VERSION, copy_order};

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

fn spans(outcome: &Outcome, lane: Lane) -> Vec<(Doing, f64, f64)> {
    outcome.timeline.lane(lane).map(|span| (span.doing, span.from, span.until)).collect()
}

#[test]
fn forward_waits_for_copies_gradients_leave_behind_backward_and_updates_follow() {
    let profile = profile(vec![layer(3), layer(5)]);
    let outcome = simulate(&profile, &[Mode::Gfgb; 2], &[Gradient::Device; 2]).unwrap();
    let compute = [
        (Doing::Wait(0), 0.0, 3.0),
        (Doing::Forward(0), 3.0, 4.0),
        (Doing::Wait(1), 4.0, 8.0),
        (Doing::Forward(1), 8.0, 9.0),
        (Doing::Backward(1), 9.0, 11.0),
        (Doing::Backward(0), 11.0, 13.0),
    ];
    assert_eq!(spans(&outcome, Lane::Compute), compute);
    assert_eq!(spans(&outcome, Lane::In), [(Doing::Copy(0), 0.0, 3.0), (Doing::Copy(1), 3.0, 8.0)]);
    let out = [(Doing::Gradient(1), 11.0, 16.0), (Doing::Gradient(0), 16.0, 19.0)];
    assert_eq!(spans(&outcome, Lane::Out), out);
    let update = [(Doing::Update(1), 16.0, 17.0), (Doing::Update(0), 19.0, 20.0)];
    assert_eq!(spans(&outcome, Lane::Update), update);
    let expected = Prediction {
        seconds: 20.0,
        compute_seconds: 6.0,
        forward_wait: 7.0,
        backward_wait: 0.0,
        tail_seconds: 7.0,
        device_bytes: 116,
        copied_bytes: 8,
        direct_bytes: 0,
    };
    assert_eq!(outcome.prediction, expected);
    assert!((outcome.prediction.idle_share() - 0.7).abs() < 1e-12);
}

#[test]
fn a_kernel_in_place_reads_first_and_the_copy_goes_on_behind_it() {
    let profile = profile(vec![layer(3), layer(5)]);
    let outcome = simulate(&profile, &[Mode::Dha, Mode::Gfgb], &[Gradient::Device; 2]).unwrap();
    let link =
        [(Doing::Read(0), 0.0, 1.0), (Doing::Copy(1), 1.0, 6.0), (Doing::Read(0), 9.0, 10.0)];
    assert_eq!(spans(&outcome, Lane::In), link);
    assert_eq!(spans(&outcome, Lane::Compute)[1], (Doing::Wait(1), 2.0, 6.0));
    let mut alone = profile.clone();
    alone.link.direct_shares = false;
    let alone = simulate(&alone, &[Mode::Dha, Mode::Gfgb], &[Gradient::Device; 2]).unwrap();
    assert_eq!(spans(&alone, Lane::In), [(Doing::Copy(1), 0.0, 5.0)]);
    let Prediction { copied_bytes, direct_bytes, device_bytes, .. } = outcome.prediction;
    assert_eq!((copied_bytes, direct_bytes, device_bytes), (5, 2, 113));
}

#[test]
fn a_layer_used_in_place_by_forward_is_copied_for_backward_behind_the_others() {
    let profile = profile(vec![layer(2), layer(1), layer(3)]);
    let modes = [Mode::Dfgb, Mode::Dfgb, Mode::Gfgb];
    assert_eq!(copy_order(&profile, &modes), [2, 1, 0]);
    let outcome = simulate(&profile, &modes, &[Gradient::Device; 3]).unwrap();
    // Forward reads a second in each of the first two layers.
    let link = [
        (Doing::Read(0), 0.0, 1.0),
        (Doing::Copy(2), 1.0, 2.0),
        (Doing::Read(1), 2.0, 3.0),
        (Doing::Copy(2), 3.0, 5.0),
        (Doing::Copy(1), 5.0, 6.0),
        (Doing::Copy(0), 6.0, 8.0),
    ];
    assert_eq!(spans(&outcome, Lane::In), link);
    assert!(outcome.prediction.backward_wait.abs() < 1e-12);
}

#[test]
fn a_gradient_written_in_place_holds_its_kernel_up_behind_copies() {
    let profile = profile(vec![layer(4), layer(6)]);
    let gradients = [Gradient::Host, Gradient::Device];
    let outcome = simulate(&profile, &[Mode::Dha; 2], &gradients).unwrap();
    // Backward of the second ends at 8, its gradient leaves until 14, that of the first until 18.
    let out = [(Doing::Gradient(1), 8.0, 14.0), (Doing::Gradient(0), 14.0, 18.0)];
    assert_eq!(spans(&outcome, Lane::Out), out);
    let backward = spans(&outcome, Lane::Compute)[3];
    assert_eq!(backward, (Doing::Backward(0), 8.0, 13.0), "a second longer than in place");
    assert!((outcome.prediction.backward_wait - 5.0).abs() < 1e-12);
    assert!((outcome.prediction.seconds - 19.0).abs() < 1e-12);
    assert_eq!(outcome.prediction.device_bytes, 106);
}

#[test]
fn layers_without_parameters_or_gradients_wait_for_nothing() {
    let mut frozen = layer(5);
    frozen.gradient_bytes = 0;
    let between = Layer { parameter_bytes: 0, gradient_bytes: 0, ..layer(0) };
    let profile = profile(vec![between, frozen]);
    let gradients = [Gradient::None; 2];
    for mode in Mode::ALL {
        let outcome = simulate(&profile, &[mode, Mode::Gfgb], &gradients).unwrap();
        assert_eq!(spans(&outcome, Lane::Compute)[0], (Doing::Forward(0), 0.0, 1.0));
        assert!(spans(&outcome, Lane::Out).is_empty());
        assert_eq!(outcome.prediction.device_bytes, 105);
    }
}

#[test]
fn what_does_not_fit_the_profile_is_an_error_that_says_so() {
    let profile = profile(vec![layer(3)]);
    let said = simulate(&profile, &[], &[Gradient::Device]).unwrap_err().to_string();
    let error = "0 modes and 1 places of gradients for 1 layers; give one of each for each";
    assert_eq!(said, error);
    let said = simulate(&profile, &[Mode::Dha], &[Gradient::None]).unwrap_err().to_string();
    let error = "give a gradient a place where there is one, and nowhere else (layer: 0)";
    assert_eq!(said, error);
}
