//! Any bytes give a profile of parameters under whose least budget there is a plan, or an error.

use tensorferry::plan::parameters::simulate::simulate;
use tensorferry::plan::parameters::{Plan, Planner, Profile, minimum_budget, plan};

/// Layers of a profile that is planned: more would take the fuzzer's time and show nothing new.
const LAYERS_MAX: usize = 64;

pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(profile) = Profile::parse(text) else { return };
    if profile.layers.len() > LAYERS_MAX {
        return;
    }
    for (planner, share) in [(Planner::Exact, 0.5), (Planner::Paper, 0.0), (Planner::Copy, 1.0)] {
        let reserve = profile.reserve(share).expect("a share");
        let least = minimum_budget(&profile, reserve, planner);
        for budget in [least, least + profile.parameter_bytes() / 2] {
            let plan =
                plan(&profile, budget, reserve, planner).expect("the least budget is enough");
            assert!(plan.predicted.device_bytes <= budget);
            assert!(plan.predicted.seconds.is_finite());
            let outcome =
                simulate(&profile, &plan.modes(), &plan.gradients()).expect("what was planned");
            assert_eq!(outcome.prediction, plan.predicted);
            assert!(!plan.explain(&profile).is_empty());
            let json = plan.to_json().expect("a plan can be written");
            assert_eq!(Plan::parse(&json, &profile).expect("and read"), plan);
        }
        assert!(least == 0 || plan(&profile, least - 1, reserve, planner).is_err());
    }
}
