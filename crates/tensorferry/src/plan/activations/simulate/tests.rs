//! The simulator beside the rules.

use super::*;
use crate::error::Kind;
use crate::plan::activations::{Codec, Disk, Tensor, Use, VERSION};

const RAW: Place = Place::Offload { encoded: false };
const ENCODED: Place = Place::Offload { encoded: true };

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

fn spans(outcome: &Outcome) -> Vec<(Doing, f64, f64)> {
    let mut spans: Vec<_> =
        outcome.timeline.spans.iter().map(|span| (span.doing, span.from, span.until)).collect();
    spans.sort_by(|a, b| (a.0.is_transfer(), a.1).partial_cmp(&(b.0.is_transfer(), b.1)).unwrap());
    spans
}

#[test]
fn a_tensor_is_written_as_soon_as_it_is_saved_and_read_as_soon_as_backward_begins() {
    let profile = profile(vec![tensor(4, 1.0)], vec![use_(0, 6.0, 8.0)]);
    let outcome = simulate(&profile, &[RAW], 4).unwrap();
    let expected = [
        (Doing::Forward, 0.0, 10.0),
        (Doing::Backward, 10.0, 20.0),
        (Doing::Write(0), 1.0, 5.0),
        (Doing::Read(0), 10.0, 14.0),
    ];
    assert_eq!(spans(&outcome), expected);
    assert_eq!(outcome.timeline.memory, [(1.0, 4), (5.0, 0), (10.0, 4), (18.0, 0)]);
    let Prediction { seconds, peak_bytes, written_bytes, read_bytes, .. } = outcome.prediction;
    assert_eq!((peak_bytes, written_bytes, read_bytes), (4, 4, 4));
    assert!((seconds - 20.0).abs() < 1e-12);
}

#[test]
fn forward_waits_until_a_write_completes_and_backward_until_a_read_does() {
    let tensors = vec![tensor(4, 1.0), tensor(6, 2.0)];
    let profile = profile(tensors, vec![use_(1, 1.0, 2.0), use_(0, 3.0, 4.0)]);
    let outcome = simulate(&profile, &[RAW, Place::Keep], 6).unwrap();
    let expected = [
        (Doing::Forward, 0.0, 2.0),
        (Doing::Stall, 2.0, 5.0),
        (Doing::Forward, 5.0, 13.0),
        (Doing::Backward, 13.0, 16.0),
        // The second is freed at 15, and the first can come back only then.
        (Doing::Stall, 16.0, 19.0),
        (Doing::Backward, 19.0, 26.0),
        (Doing::Write(0), 1.0, 5.0),
        (Doing::Read(0), 15.0, 19.0),
    ];
    assert_eq!(spans(&outcome), expected);
    let expected = Prediction {
        forward_stall: 3.0,
        backward_stall: 3.0,
        seconds: 26.0,
        peak_bytes: 6,
        written_bytes: 4,
        read_bytes: 4,
    };
    assert_eq!(outcome.prediction, expected);
}

#[test]
fn what_is_needed_before_it_was_written_is_used_where_it_lies() {
    let tensors = vec![tensor(20, 9.0), tensor(5, 9.0)];
    let profile = profile(tensors, vec![use_(1, 1.0, 2.0), use_(0, 3.0, 4.0)]);
    let outcome = simulate(&profile, &[RAW, RAW], 25).unwrap();
    assert!(outcome.prediction.stall().abs() < 1e-12);
    // The second write never began, the first owns its memory until it ends.
    let Prediction { written_bytes, read_bytes, .. } = outcome.prediction;
    assert_eq!((written_bytes, read_bytes), (20, 0));
    assert_eq!(outcome.timeline.memory, [(9.0, 25), (12.0, 20)]);
}

#[test]
fn encoding_shortens_transfers_until_the_codec_is_the_slower_one() {
    let mut profile = profile(vec![tensor(8, 0.0)], vec![use_(0, 0.0, 1.0)]);
    profile.tensors[0].encoded_bytes = 2;
    let waits = |profile: &Profile, seconds: f64| {
        let prediction = simulate(profile, &[ENCODED], 8).unwrap().prediction;
        assert_eq!((prediction.written_bytes, prediction.read_bytes), (2, 2));
        (prediction.backward_stall - seconds).abs() < 1e-9
    };
    assert!(waits(&profile, 2.0));
    profile.codec.decode_bytes_per_second = 2.0;
    assert!(waits(&profile, 4.0));
    profile.disk.seconds_per_transfer = 0.5;
    assert!(waits(&profile, 4.5));
}

#[test]
fn what_is_left_of_a_transfer_is_faster_while_compute_waits() {
    let mut profile =
        profile(vec![tensor(4, 0.0), tensor(4, 2.0)], vec![use_(1, 1.0, 1.0), use_(0, 2.0, 2.0)]);
    profile.disk.awaited_write_speedup = 2.0;
    profile.disk.awaited_read_speedup = 4.0;
    let prediction = simulate(&profile, &[RAW, RAW], 4).unwrap().prediction;
    // Half of the first write, in half of its time; a second of the first read is hidden, and the other
    // begins when there is room.
    let [forward, backward] = [prediction.forward_stall, prediction.backward_stall];
    assert!((forward - 1.0).abs() < 1e-9, "{forward}");
    assert!((backward - (3.0 / 4.0 + 3.0 / 4.0)).abs() < 1e-9, "{backward}");
}

#[test]
fn what_is_never_used_is_written_and_not_read() {
    let profile = profile(vec![tensor(4, 0.0)], vec![]);
    let prediction = simulate(&profile, &[RAW], 4).unwrap().prediction;
    assert_eq!((prediction.written_bytes, prediction.read_bytes), (4, 0));
}

#[test]
fn a_plan_that_keeps_too_much_is_an_error_that_names_who_has_no_room() {
    let profile = profile(vec![tensor(4, 1.0), tensor(6, 2.0)], vec![]);
    let error = simulate(&profile, &[Place::Keep, RAW], 9).unwrap_err();
    assert_eq!(error.kind(), Kind::InvalidInput);
    assert_eq!(
        error.to_string(),
        "the plan can't be carried out: \"at 2\" with 6 B never gets room in 9 B beside what is \
         kept; offload more, or raise the budget"
    );
    let error = simulate(&profile, &[RAW], 9).unwrap_err().to_string();
    assert_eq!(error, "1 places for 2 tensors; give one for each");
}
