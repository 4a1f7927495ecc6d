//! Why each layer has its mode: what the iteration would come to if it alone had another.

use super::plan::{Mode, Planner};
use crate::plan::parameters::simulate::Simulator;
use crate::plan::text::duration;

/// Steps of simulated layers that are spent on reasons; of the layers beyond, it is only said who decided.
const STEPS_MAX: usize = 1 << 17;

/// The reasons.
pub(super) fn explain(
    simulator: &Simulator,
    modes: &[Mode],
    budget: u64,
    planner: Planner,
) -> Vec<String> {
    let tried = STEPS_MAX / (4 * modes.len()).max(1);
    let seconds = simulator.seconds(modes);
    let mut other = modes.to_vec();
    let mut reason = |(layer, mode): (usize, &Mode)| {
        if simulator.costs()[layer].copy.is_none() {
            return "it has no parameters".to_owned();
        }
        if planner == Planner::Copy {
            return "every layer is copied".to_owned();
        }
        if layer >= tried {
            return format!("part of the plan that the {planner} planner found");
        }
        let mut instead = Vec::new();
        for alternative in Mode::ALL.into_iter().filter(|alternative| alternative != mode) {
            other[layer] = alternative;
            let fits = simulator.device_bytes(&other) <= budget;
            instead.push((alternative, fits.then(|| simulator.seconds(&other) - seconds)));
        }
        other[layer] = *mode;
        compare(&instead)
    };
    modes.iter().enumerate().map(&mut reason).collect()
}

fn compare(instead: &[(Mode, Option<f64>)]) -> String {
    let parts = instead.iter().map(|(mode, longer)| match longer {
        None => format!("{mode} does not fit"),
        // Below a nanosecond it is rounding.
        Some(longer) if *longer > 1e-9 => format!("{mode} takes {} longer", duration(*longer)),
        Some(longer) if *longer < -1e-9 => format!("{mode} would save {}", duration(-longer)),
        Some(_) => format!("{mode} gains nothing"),
    });
    parts.collect::<Vec<_>>().join(", ")
}
