//! An iteration under the plan that was asked for, beside the others'.

use std::fmt;

use serde::Serialize;
use tensorferry::plan::parameters::simulate::{Outcome, Timeline, simulate};
use tensorferry::plan::parameters::{
    Mode, Plan, Planner, Prediction, Profile, minimum_budget, places, plan,
};
use tensorferry::{Result, Size};

/// What the planners came to.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    /// Where the profile comes from.
    pub(super) source: String,
    pub(super) plan: Plan,
    pub(super) timeline: Timeline,
    /// The same iteration with every layer copied, whether or not that fits.
    pub(super) all_copied: Other,
    /// The paper's planner; nothing where it needs more memory.
    pub(super) paper: Option<Other>,
    #[serde(skip)]
    text: String,
}

/// What the plan is compared with.
#[derive(Debug, Serialize)]
pub(super) struct Other {
    pub(super) predicted: Prediction,
    pub(super) fits: bool,
    pub(super) timeline: Timeline,
}

impl Report {
    pub(super) fn new(
        profile: &Profile,
        budget: u64,
        reserve: u64,
        planner: Planner,
    ) -> Result<Self> {
        let asked = plan(profile, budget, reserve, planner)?;
        let timeline = simulate(profile, &asked.modes(), &asked.gradients())?.timeline;
        let copied = vec![Mode::Gfgb; profile.layers.len()];
        let all_copied = Other::new(profile, &copied, (budget, reserve))?;
        let has_paper = budget >= minimum_budget(profile, reserve, Planner::Paper);
        let theirs = has_paper.then(|| plan(profile, budget, reserve, Planner::Paper));
        let paper = |plan: Plan| Other::new(profile, &plan.modes(), (budget, reserve));
        let paper = theirs.transpose()?.map(paper).transpose()?;
        let (text, source) = (asked.explain(profile), profile.source.clone());
        Ok(Self { source, plan: asked, timeline, all_copied, paper, text })
    }
}

impl Other {
    fn new(profile: &Profile, modes: &[Mode], (budget, reserve): (u64, u64)) -> Result<Self> {
        let gradients = places(profile, reserve);
        let Outcome { prediction: predicted, timeline } = simulate(profile, modes, &gradients)?;
        Ok(Self { predicted, fits: predicted.device_bytes <= budget, timeline })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.text)?;
        write!(f, "{:12}{:>14}{:>9}", "planner", "iteration, s", "speedup")?;
        write!(f, "{:>16}{:>17}{:>10}", "forward waits", "backward waits", "tail")?;
        write!(f, "{:>8}{:>12}", "idle", "device")?;
        row(f, self.plan.planner.name(), &self.plan.predicted, self)?;
        match &self.paper {
            _ if self.plan.planner == Planner::Paper => {}
            Some(paper) => row(f, "paper", &paper.predicted, self)?,
            None => write!(f, "\n{:12}  does not fit", "paper")?,
        }
        row(f, "all copied", &self.all_copied.predicted, self)?;
        if !self.all_copied.fits {
            write!(f, "  does not fit")?;
        }
        Ok(())
    }
}

fn row(f: &mut fmt::Formatter<'_>, name: &str, came: &Prediction, report: &Report) -> fmt::Result {
    let Prediction { seconds, forward_wait, backward_wait, tail_seconds, .. } = *came;
    let copied = report.all_copied.predicted.seconds;
    let speedup = if seconds > 0.0 { copied / seconds } else { 1.0 };
    write!(f, "\n{name:12}{seconds:>14.6}{speedup:>9.3}")?;
    write!(f, "{forward_wait:>16.6}{backward_wait:>17.6}{tail_seconds:>10.6}")?;
    let (idle, device) = (100.0 * came.idle_share(), Size(came.device_bytes).to_string());
    write!(f, "{:>8}{device:>12}", format!("{idle:.1} %"))
}
