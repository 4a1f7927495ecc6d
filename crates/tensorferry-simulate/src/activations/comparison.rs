//! Both planners over many made-up steps.

use std::fmt;

use serde::Serialize;
use tensorferry::Result;
use tensorferry::plan::activations::{Planner, Prediction, plan};

use super::cases::{Case, case};
use crate::quantiles::quantiles;

/// Tensors of the made-up steps: at least, and at most.
pub const TENSORS: (usize, usize) = (2, 96);
/// Seconds by which two predictions may differ and still be the same.
const SAME: f64 = 2e-9;

/// What the planners came to.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// Steps.
    pub cases: u64,
    /// The seed of the first; the others follow.
    pub seed: u64,
    /// Steps in which the timeline planner waits less.
    pub better: usize,
    /// As long.
    pub same: usize,
    /// Longer: none, or the promise is broken.
    pub worse: usize,
    /// The paper's planner.
    pub paper: Total,
    /// The timeline planner.
    pub timeline: Total,
    /// The paper's seconds of a step over the timeline's: quartiles, 90 % and the most.
    pub speedups: [f64; 5],
}

/// All steps of one planner.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Total {
    /// Steps that never wait.
    pub without_stall: usize,
    /// Mean over the steps of waiting over compute.
    pub mean_stall_share: f64,
    /// The most of any step.
    pub max_stall_share: f64,
    /// Bytes written over bytes saved, mean over the steps.
    pub mean_written_share: f64,
}

/// Plans `cases` made-up steps with both planners. `progress` is told which part is done.
pub fn compare(cases: u64, seed: u64, mut progress: impl FnMut(f64)) -> Result<Comparison> {
    let (mut paper, mut timeline) = (Total::default(), Total::default());
    let (mut better, mut worse) = (0, 0);
    let mut speedups = Vec::new();
    for number in 0..cases {
        let seed = seed.wrapping_add(number);
        let (least, most) = TENSORS;
        let Case { profile, budget } = case(seed, least + seed as usize % (most - least + 1));
        let ask = |planner| plan(&profile, budget, planner).map(|plan| plan.predicted);
        let (theirs, ours) = (ask(Planner::Paper)?, ask(Planner::Timeline)?);
        let shares = (profile.seconds(), profile.bytes() as f64);
        paper.add(&theirs, shares);
        timeline.add(&ours, shares);
        better += usize::from(ours.seconds < theirs.seconds - SAME);
        worse += usize::from(ours.seconds > theirs.seconds + SAME);
        speedups.push(theirs.seconds / ours.seconds);
        progress((number + 1) as f64 / cases as f64);
    }
    let same = cases as usize - better - worse;
    let speedups = quantiles(speedups.into_iter());
    let (paper, timeline) = (paper.mean(cases), timeline.mean(cases));
    Ok(Comparison { cases, seed, better, same, worse, paper, timeline, speedups })
}

impl Total {
    fn add(&mut self, came: &Prediction, (seconds, bytes): (f64, f64)) {
        let share = came.stall() / seconds;
        self.without_stall += usize::from(came.stall() < SAME);
        self.mean_stall_share += share;
        self.max_stall_share = self.max_stall_share.max(share);
        self.mean_written_share += came.written_bytes as f64 / bytes.max(1.0);
    }

    fn mean(mut self, cases: u64) -> Self {
        let cases = cases.max(1) as f64;
        self.mean_stall_share /= cases;
        self.mean_written_share /= cases;
        self
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (least, most) = TENSORS;
        writeln!(
            f,
            "{} made-up steps of {least} to {most} tensors, seed {}\n",
            self.cases, self.seed
        )?;
        writeln!(f, "planner    never waits   waits, mean   waits, most   written, mean")?;
        for (planner, total) in [(Planner::Paper, self.paper), (Planner::Timeline, self.timeline)] {
            let shares = [total.mean_stall_share, total.max_stall_share, total.mean_written_share];
            let [mean, max, written] = shares.map(|share| format!("{:.2} %", 100.0 * share));
            writeln!(f, "{planner:9}{:>13}{mean:>14}{max:>14}{written:>16}", total.without_stall)?;
        }
        writeln!(f, "\nwaiting in parts of compute, written in parts of what is saved")?;
        let Self { better, same, worse, .. } = self;
        let waiting = self.cases as usize - self.paper.without_stall;
        writeln!(f, "the paper's plan waits in {waiting} steps")?;
        writeln!(f, "timeline waits less in {better}, as long in {same}, longer in {worse}")?;
        let [low, median, high, ninety, max] = self.speedups;
        write!(f, "its steps are faster by {low:.3}, {median:.3}, {high:.3} (quartiles), ")?;
        write!(f, "{ninety:.3} (90 %), {max:.3} (the most)")
    }
}
