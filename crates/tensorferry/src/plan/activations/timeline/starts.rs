//! Where the search starts.

use super::super::paper;
use super::super::plan::Place;
use super::super::profile::Profile;
use super::form;
use crate::plan::activations::simulate::Simulator;

/// Parts of the budget up to which an order keeps tensors.
const PARTS: u64 = 16;

/// The paper's plan, everything offloaded in either form, and what simple orders keep.
pub(super) fn all(profile: &Profile, budget: u64, simulator: &mut Simulator) -> Vec<Vec<Place>> {
    let paper = paper::choose(profile, budget, simulator);
    let mut starts = vec![paper.into_iter().map(|choice| choice.place).collect()];
    let everything: Vec<Place> =
        (0..profile.tensors.len()).map(|tensor| form(profile, tensor)).collect();
    for order in orders(profile) {
        for part in 1..=PARTS {
            let room = (u128::from(budget) * u128::from(part) / u128::from(PARTS)) as u64;
            starts.push(keep(profile, &everything, &order, room));
        }
    }
    starts.push(everything);
    starts.push(vec![Place::Offload { encoded: false }; profile.tensors.len()]);
    starts.dedup();
    starts
}

/// Whatever fits in `room`, in that order.
fn keep(profile: &Profile, everything: &[Place], order: &[usize], room: u64) -> Vec<Place> {
    let mut places = everything.to_vec();
    let mut left = room;
    for tensor in order {
        let bytes = profile.tensors[*tensor].bytes;
        if bytes <= left {
            left -= bytes;
            places[*tensor] = Place::Keep;
        }
    }
    places
}

/// In which tensors may be kept: last saved, first saved, first needed, largest, smallest, slowest to move
/// for their size.
fn orders(profile: &Profile) -> Vec<Vec<usize>> {
    let count = profile.tensors.len();
    let mut first_needed = vec![f64::INFINITY; count];
    for use_ in profile.uses.iter().rev() {
        first_needed[use_.tensor] = use_.at;
    }
    let bytes = |tensor: usize| profile.tensors[tensor].bytes as f64;
    let slowness = |tensor: usize| {
        let encoded = form(profile, tensor).is_encoded();
        let seconds =
            profile.write_seconds(tensor, encoded) + profile.read_seconds(tensor, encoded);
        seconds / bytes(tensor).max(1.0)
    };
    let by = |key: &dyn Fn(usize) -> f64| {
        let mut order: Vec<usize> = (0..count).rev().collect();
        order.sort_by(|a, b| key(*a).total_cmp(&key(*b)));
        order
    };
    vec![
        by(&|_| 0.0),
        by(&|tensor| tensor as f64),
        by(&|tensor| first_needed[tensor]),
        by(&|tensor| -bytes(tensor)),
        by(&bytes),
        by(&|tensor| -slowness(tensor)),
    ]
}
