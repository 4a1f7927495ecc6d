//! A step under the plan that was asked for, beside the other planner's.

use std::fmt;

use serde::Serialize;
use tensorferry::plan::activations::simulate::{Timeline, simulate};
use tensorferry::plan::activations::{Plan, Planner, Prediction, Profile, plan};
use tensorferry::{Result, Size};

/// What both planners came to.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    /// The planner that was asked for comes first.
    pub(super) plans: Vec<Replayed>,
    #[serde(skip)]
    text: String,
}

/// One planner's.
#[derive(Debug, Serialize)]
pub(super) struct Replayed {
    pub(super) plan: Plan,
    pub(super) timeline: Timeline,
}

impl Report {
    pub(super) fn new(profile: &Profile, budget: u64, asked: Planner) -> Result<Self> {
        let others = Planner::ALL.into_iter().filter(|planner| *planner != asked);
        let planners = std::iter::once(asked).chain(others);
        let plans: Vec<Replayed> = planners
            .map(|planner| Replayed::new(profile, budget, planner))
            .collect::<Result<_>>()?;
        let text = plans[0].plan.explain(profile);
        Ok(Self { plans, text })
    }
}

impl Replayed {
    fn new(profile: &Profile, budget: u64, planner: Planner) -> Result<Self> {
        let plan = plan(profile, budget, planner)?;
        let timeline = simulate(profile, &plan.places(), budget)?.timeline;
        Ok(Self { plan, timeline })
    }
}

/// Width of the column of names.
const NAME: usize = 10;

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.text)?;
        write!(
            f,
            "{:NAME$}{:>12}{:>16}{:>17}",
            "planner", "step, s", "forward waits", "backward waits"
        )?;
        write!(f, "{:>12}{:>12}{:>12}", "peak", "written", "read")?;
        self.plans.iter().try_for_each(|replayed| {
            f.write_str("\n")?;
            row(f, &replayed.plan)
        })
    }
}

fn row(f: &mut fmt::Formatter<'_>, plan: &Plan) -> fmt::Result {
    let Prediction { forward_stall, backward_stall, seconds, .. } = plan.predicted;
    let planner = plan.planner;
    write!(f, "{planner:NAME$}{seconds:>12.4}{forward_stall:>16.4}{backward_stall:>17.4}")?;
    let Prediction { peak_bytes, written_bytes, read_bytes, .. } = plan.predicted;
    [peak_bytes, written_bytes, read_bytes]
        .iter()
        .try_for_each(|bytes| write!(f, "{:>12}", Size(*bytes).to_string()))
}
