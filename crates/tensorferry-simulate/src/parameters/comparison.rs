//! All planners over many made-up iterations, beside the best there is.

use std::fmt;

use serde::Serialize;
use tensorferry::plan::parameters::simulate::simulate;
use tensorferry::plan::parameters::{Mode, Planner, Prediction, places, plan};
use tensorferry::{Error, Result};

use super::cases::{Case, case};
use super::exhaustive;
use crate::quantiles::quantiles;

/// Layers of the made-up iterations, at the least.
pub const LAYERS_MIN: usize = 2;
/// Parts by which two predictions may differ and still be the same.
const SAME: f64 = 1e-9;

/// What the planners came to.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// Iterations.
    pub cases: u64,
    /// The seed of the first; the others follow.
    pub seed: u64,
    /// Layers, at least and at most.
    pub layers: (usize, usize),
    /// Whether all plans were tried.
    pub exhaustive: bool,
    /// Iterations in which the exact planner is as fast as the best of all plans.
    pub best: usize,
    /// Slower than the best: none, or the promise is broken.
    pub slower_than_best: usize,
    /// Which it did not prove to be the best.
    pub unproven: usize,
    /// Iterations in which it is slower than the paper's planner: none, or the promise is broken.
    pub slower_than_paper: usize,
    /// Faster.
    pub faster_than_paper: usize,
    /// The paper's seconds over ours: quartiles, 90 % and the most.
    pub over_paper: [f64; 5],
    /// The all-copy schedule's seconds over ours, whether or not it fits.
    pub over_copy: [f64; 5],
    /// The most that a plan may be slower than the best, as it says itself, in parts.
    pub gap_most: f64,
}

/// Plans `cases` made-up iterations of up to `layers` layers with all planners, and tries all plans if there
/// are few enough. `fixed` makes all of them that long. `progress` is told which part is done.
pub fn compare(
    cases: u64,
    seed: u64,
    (layers, fixed): (usize, bool),
    mut progress: impl FnMut(f64),
) -> Result<Comparison> {
    if layers < LAYERS_MIN {
        return Err(Error::invalid(format!("{layers} layers; choose at least {LAYERS_MIN}")));
    }
    let least = if fixed { layers } else { LAYERS_MIN };
    let exhaustive = layers <= exhaustive::LAYERS_MAX;
    let mut came = Vec::new();
    for number in 0..cases {
        let seed = seed.wrapping_add(number);
        let count = least + (seed % (layers - least + 1) as u64) as usize;
        came.push(One::new(&case(seed, count), exhaustive)?);
        progress((number + 1) as f64 / cases as f64);
    }
    let count = |is_so: fn(&One) -> bool| came.iter().filter(|one| is_so(one)).count();
    Ok(Comparison {
        cases,
        seed,
        layers: (least, layers),
        exhaustive,
        best: count(|one| one.best.is_some_and(|best| one.exact <= best * (1.0 + SAME))),
        slower_than_best: count(|one| one.best.is_some_and(|best| one.exact > best * (1.0 + SAME))),
        unproven: count(|one| one.gap > 0.0),
        slower_than_paper: count(|one| one.exact > one.paper * (1.0 + SAME)),
        faster_than_paper: count(|one| one.exact < one.paper * (1.0 - SAME)),
        over_paper: quantiles(came.iter().map(|one| one.paper / one.exact)),
        over_copy: quantiles(came.iter().map(|one| one.copy / one.exact)),
        gap_most: came.iter().map(|one| one.gap).fold(0.0, f64::max),
    })
}

/// Seconds of one iteration.
struct One {
    exact: f64,
    paper: f64,
    copy: f64,
    best: Option<f64>,
    gap: f64,
}

impl One {
    fn new(case: &Case, exhaustive: bool) -> Result<Self> {
        let Case { profile, budget, gradient_reserve } = case;
        let ask = |planner| plan(profile, *budget, *gradient_reserve, planner);
        let (ours, paper) = (ask(Planner::Exact)?, ask(Planner::Paper)?);
        let gradients = places(profile, *gradient_reserve);
        let copied = vec![Mode::Gfgb; profile.layers.len()];
        let Prediction { seconds: copy, .. } = simulate(profile, &copied, &gradients)?.prediction;
        let exact = ours.predicted.seconds;
        let gap = ours.gap_seconds.unwrap_or(0.0) / exact.max(f64::MIN_POSITIVE);
        let try_all = || exhaustive::best_seconds(profile, *gradient_reserve, *budget);
        let best = exhaustive.then(try_all).transpose()?;
        Ok(Self { exact, paper: paper.predicted.seconds, copy, best, gap })
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cases, seed, layers: (least, most), .. } = self;
        writeln!(f, "{cases} made-up iterations of {least} to {most} layers, seed {seed}\n")?;
        if self.exhaustive {
            let Self { best, slower_than_best, .. } = self;
            writeln!(
                f,
                "beside all plans there are: as fast as the best in {best}, slower in {slower_than_best}"
            )?;
        }
        let (unproven, gap) = (self.unproven, 100.0 * self.gap_most);
        writeln!(
            f,
            "not proven to be the best: {unproven}; by its own bound at most {gap:.3} % slower"
        )?;
        let same = self.cases as usize - self.faster_than_paper - self.slower_than_paper;
        let Self { faster_than_paper, slower_than_paper, .. } = self;
        write!(
            f,
            "beside the paper's planner: faster in {faster_than_paper}, as fast in {same}, "
        )?;
        writeln!(f, "slower in {slower_than_paper}")?;
        for (name, [low, median, high, ninety, max]) in
            [("paper", self.over_paper), ("all copied", self.over_copy)]
        {
            write!(f, "\n{name} over exact: {low:.3}, {median:.3}, {high:.3} (quartiles), ")?;
            write!(f, "{ninety:.3} (90 %), {max:.3} (the most)")?;
        }
        Ok(())
    }
}
