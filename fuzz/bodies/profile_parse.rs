//! Any bytes give a profile of activations under whose least budget there is a plan that can be carried
//! out, or an error.

use tensorferry::plan::activations::simulate::simulate;
use tensorferry::plan::activations::{Plan, Planner, Profile, minimum_budget, plan};

pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(profile) = Profile::parse(text) else { return };
    let least = minimum_budget(&profile);
    for budget in [least, least + profile.bytes() / 2] {
        let plan = plan(&profile, budget, Planner::Paper).expect("the least budget is enough");
        assert!(plan.predicted.peak_bytes <= budget);
        assert!(plan.predicted.seconds.is_finite());
        let outcome = simulate(&profile, &plan.places(), budget).expect("what was planned");
        assert_eq!(outcome.prediction, plan.predicted);
        assert!(!plan.explain(&profile).is_empty());
        let json = plan.to_json().expect("a plan can be written");
        assert_eq!(Plan::parse(&json, &profile).expect("and read"), plan);
    }
    assert!(least == 0 || plan(&profile, least - 1, Planner::Paper).is_err());
}
