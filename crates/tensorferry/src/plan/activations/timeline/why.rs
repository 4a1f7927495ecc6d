//! Why each tensor is where it is: what the step would come to if it alone were elsewhere.

use super::super::plan::{Choice, Place, Prediction};
use super::super::profile::Profile;
use super::form;
use crate::plan::activations::simulate::Simulator;
use crate::plan::text::duration;

/// The reasons; the first `tried` tensors are tried elsewhere.
pub(super) fn explain(
    profile: &Profile,
    places: &[Place],
    simulator: &mut Simulator,
    tried: usize,
) -> Vec<Choice> {
    let all_fits = !places.iter().any(|place| place.is_offloaded());
    let came = simulator.predict(places).unwrap_or_default();
    let mut other = places.to_vec();
    let mut choice = |(tensor, place): (usize, &Place)| {
        let why = if all_fits {
            "everything fits".to_owned()
        } else if tensor >= tried {
            "part of the best plan that was found".to_owned()
        } else {
            let elsewhere = if place.is_offloaded() { Place::Keep } else { form(profile, tensor) };
            other[tensor] = elsewhere;
            let instead = simulator.predict(&other);
            other[tensor] = *place;
            reason(*place, &came, instead.as_ref())
        };
        Choice { place: *place, why }
    };
    places.iter().enumerate().map(&mut choice).collect()
}

fn reason(place: Place, came: &Prediction, instead: Option<&Prediction>) -> String {
    let Some(instead) = instead else {
        return "keeping it would leave too little room for the others".into();
    };
    let longer = instead.stall() - came.stall();
    // Below a nanosecond it is rounding.
    let costs = longer > 1e-9;
    match (place.is_offloaded(), costs) {
        (true, true) => format!("keeping it would stall for {} longer", duration(longer)),
        (true, false) => "on its way while compute goes on".into(),
        (false, true) => format!("offloading it would stall for {} longer", duration(longer)),
        (false, false) => "there is room; offloading it would gain nothing".into(),
    }
}
