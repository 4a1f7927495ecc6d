//! Plans beside their promises, and beside the best that can be.

use proptest::prelude::*;

use super::random::{Case, case};
use super::*;
use crate::plan::simulate::activations::simulate;

/// The best of all plans, by trying them.
fn exhaustive(profile: &Profile, budget: u64) -> f64 {
    let mut simulator = Simulator::new(profile, budget);
    let forms = |tensor: &Tensor| {
        let mut forms = vec![Place::Keep, Place::Offload { encoded: false }];
        forms.extend(tensor.is_compressible().then_some(Place::Offload { encoded: true }));
        forms
    };
    let forms: Vec<_> = profile.tensors.iter().map(forms).collect();
    let count: usize = forms.iter().map(Vec::len).product();
    let mut best = f64::INFINITY;
    for number in 0..count {
        let mut rest = number;
        let places: Vec<_> = forms
            .iter()
            .map(|forms| {
                let place = forms[rest % forms.len()];
                rest /= forms.len();
                place
            })
            .collect();
        if let Ok(came) = simulator.run(&places, best, &mut ()) {
            best = best.min(came.stall());
        }
    }
    best + profile.seconds()
}

#[test]
fn small_steps_come_within_a_hundredth_of_the_best_there_is() {
    let mut off: Vec<f64> = Vec::new();
    for seed in 0..400 {
        let Case { profile, budget } = case(seed, 2 + seed as usize % 9);
        let plan = plan(&profile, budget, Planner::Timeline).unwrap();
        let best = exhaustive(&profile, budget);
        let ratio = plan.predicted.seconds / best;
        off.push(ratio);
    }
    off.sort_by(f64::total_cmp);
    println!("{:?}", &off[off.len() - 10..]);
    println!("{:?}", off.iter().filter(|r| **r > 1.0 + 1e-9).count());
    assert!(off.last().unwrap() < &1.01);
}

#[test]
fn cmp() {
    println!("{}", comparison::compare(200, 0, |_| ()).unwrap());
}
#[test]
fn time() {
    for n in [500, 2000] {
        let Case { profile, budget } = case(7, n);
        let t = std::time::Instant::now();
        let a = plan(&profile, budget, Planner::Timeline).unwrap();
        let e = t.elapsed();
        let b = plan(&profile, budget, Planner::Paper).unwrap();
        println!("{n} {e:?} {:?}\n {:?} {}", a.predicted, b.predicted, profile.seconds());
    }
}
