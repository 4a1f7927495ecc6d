//! How long the exact planner takes.

use std::fmt;
use std::time::Instant;

use serde::Serialize;
use tensorferry::Result;
use tensorferry::plan::parameters::{Planner, Profile, plan};
use tensorferry_simulate::parameters::cases::{Case, case};
use tensorferry_simulate::parameters::modelled::{self, Hardware, Shape};

/// Seconds to plan, and how far from the best the plans may be.
#[derive(Debug, Serialize)]
pub(super) struct Timing {
    layers: usize,
    seed: u64,
    made_up: Sample,
    /// Every modelled network, its blocks repeated until there are that many layers.
    modelled: Sample,
}

#[derive(Debug, Serialize)]
struct Sample {
    seconds: Vec<f64>,
    gaps: Vec<f64>,
}

impl Timing {
    /// Plans `cases` made-up iterations of `layers` layers, and every modelled network stretched to them.
    pub(super) fn new(cases: u64, seed: u64, layers: usize) -> Result<Self> {
        let made_up = (0..cases).map(|number| {
            let Case { profile, budget, gradient_reserve } =
                case(seed.wrapping_add(number), layers);
            time(&profile, budget, gradient_reserve)
        });
        let made_up = Sample::of(made_up.collect::<Result<_>>()?);
        let mut stretched = Vec::new();
        for shape in Shape::ALL {
            for hardware in Hardware::ALL {
                let mut profile = modelled::profile(&shape, &hardware, modelled::BATCH)?;
                let block: Vec<_> = profile.layers[1..profile.layers.len() - 1].to_vec();
                let more = block.into_iter().cycle();
                profile.layers.truncate(1);
                profile.layers.extend(more.take(layers.saturating_sub(1)));
                let reserve = profile.reserve(0.5)?;
                let budget = profile.work_bytes + reserve + profile.parameter_bytes() / 2;
                stretched.push(time(&profile, budget, reserve)?);
            }
        }
        Ok(Self { layers, seed, made_up, modelled: Sample::of(stretched) })
    }
}

fn time(profile: &Profile, budget: u64, reserve: u64) -> Result<(f64, f64)> {
    let began = Instant::now();
    let plan = plan(profile, budget, reserve, Planner::Exact)?;
    let seconds = began.elapsed().as_secs_f64();
    Ok((seconds, plan.gap_seconds.unwrap_or(0.0) / plan.predicted.seconds))
}

impl Sample {
    fn of(pairs: Vec<(f64, f64)>) -> Self {
        let (mut seconds, mut gaps): (Vec<f64>, Vec<f64>) = pairs.into_iter().unzip();
        seconds.sort_by(f64::total_cmp);
        gaps.sort_by(f64::total_cmp);
        Self { seconds, gaps }
    }
}

/// The median, 90 % and the most.
fn quantiles(sorted: &[f64]) -> [f64; 3] {
    [0.5, 0.9, 1.0].map(|part| {
        let place = (part * sorted.len().saturating_sub(1) as f64).round() as usize;
        sorted.get(place).copied().unwrap_or(0.0)
    })
}

impl fmt::Display for Timing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { layers, seed, made_up, modelled } = self;
        write!(f, "the exact planner, {layers} layers: median, 90 %, the most")?;
        let made_up_name = format!("{} made-up iterations, seed {seed}", made_up.seconds.len());
        let modelled_name = format!(
            "{} modelled networks, stretched, half of what they need",
            modelled.seconds.len()
        );
        for (name, sample) in [(made_up_name, made_up), (modelled_name, modelled)] {
            let [median, ninety, most] = quantiles(&sample.seconds).map(|seconds| 1e3 * seconds);
            write!(f, "\n{name}\n    planned in {median:.2}, {ninety:.2}, {most:.2} ms")?;
            let [median, ninety, most] = quantiles(&sample.gaps).map(|gap| 100.0 * gap);
            write!(
                f,
                "\n    no plan is faster by more than {median:.3}, {ninety:.3}, {most:.3} %"
            )?;
        }
        Ok(())
    }
}
