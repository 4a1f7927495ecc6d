//! How much of the oracles each policy reaches, as data and as a table.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use super::trace::Trace;
use crate::plan::checkpoint::ask::Goal;
use crate::size::Size;

/// Every policy beside the two oracles.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// Where the trace was recorded.
    pub machine: String,
    /// Which seconds counted.
    pub goal: Goal,
    /// Steps of the trace.
    pub steps: usize,
    /// Steps of an earlier trace from which the policies have their dictionaries.
    pub earlier_steps: usize,
    /// What the machine did meanwhile.
    pub phases: Vec<String>,
    /// Seconds of the informed oracle.
    pub informed_seconds: f64,
    /// Seconds of the oracle with hindsight.
    pub hindsight_seconds: f64,
    /// One for each.
    pub policies: Vec<Policy>,
    #[serde(skip)]
    informed: Sums,
    #[serde(skip)]
    hindsight: Sums,
}

/// What one policy took.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Policy {
    /// What it is called.
    pub name: String,
    /// Seconds of all steps.
    pub seconds: f64,
    /// Over all seconds.
    pub overall: Shares,
    /// Geometric mean over the sizes.
    pub mean_over_sizes: Shares,
    /// By size in bytes.
    pub sizes: BTreeMap<u64, Shares>,
}

/// An oracle's seconds over the policy's.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Shares {
    /// Of the oracle that knows what to expect. More than one where noise was kind.
    pub informed: f64,
    /// Of the oracle that knows each single time.
    pub hindsight: f64,
}

/// Seconds by size.
type Sums = BTreeMap<u64, f64>;

impl Comparison {
    pub(super) fn new(trace: &Trace, goal: Goal, informed: &[f64], hindsight: &[f64]) -> Self {
        Self {
            machine: trace.machine.clone(),
            goal,
            steps: trace.steps.len(),
            earlier_steps: 0,
            phases: trace.phases.clone(),
            informed_seconds: informed.iter().sum(),
            hindsight_seconds: hindsight.iter().sum(),
            policies: Vec::new(),
            informed: by_size(trace, informed),
            hindsight: by_size(trace, hindsight),
        }
    }

    /// Adds a policy that took so long at each step.
    pub(super) fn add(&mut self, name: String, trace: &Trace, paid: &[f64]) {
        let seconds = paid.iter().sum::<f64>();
        let shares = |(size, seconds): (u64, f64)| {
            let shares = Shares {
                informed: self.informed[&size] / seconds,
                hindsight: self.hindsight[&size] / seconds,
            };
            (size, shares)
        };
        let sizes: BTreeMap<u64, Shares> = by_size(trace, paid).into_iter().map(shares).collect();
        let mean = |share: fn(&Shares) -> f64| {
            (sizes.values().map(|shares| share(shares).ln()).sum::<f64>() / sizes.len() as f64)
                .exp()
        };
        self.policies.push(Policy {
            name,
            seconds,
            overall: Shares {
                informed: self.informed_seconds / seconds,
                hindsight: self.hindsight_seconds / seconds,
            },
            mean_over_sizes: Shares {
                informed: mean(|shares| shares.informed),
                hindsight: mean(|shares| shares.hindsight),
            },
            sizes,
        });
    }

    /// The policy of this name.
    pub fn policy(&self, name: &str) -> Option<&Policy> {
        self.policies.iter().find(|policy| policy.name == name)
    }
}

fn by_size(trace: &Trace, paid: &[f64]) -> Sums {
    let mut sums = Sums::new();
    for (step, seconds) in trace.steps.iter().zip(paid) {
        *sums.entry(step.size).or_default() += seconds;
    }
    sums
}

/// Widths of the columns of names and of numbers.
const NAME: usize = 32;
const NUMBER: usize = 12;

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.machine)?;
        write!(f, "{} steps, goal {}, phases: ", self.steps, self.goal)?;
        writeln!(f, "{}", self.phases.join(", "))?;
        if self.earlier_steps > 0 {
            writeln!(f, "dictionaries kept from {} earlier steps", self.earlier_steps)?;
        }
        writeln!(f)?;
        write!(f, "{:NAME$}{:>NUMBER$}{:>24}{:>24}", "", "", "of informed oracle", "of hindsight")?;
        write!(f, "\n{:NAME$}{:>NUMBER$}", "policy", "seconds")?;
        for column in ["by seconds", "by size", "by seconds", "by size"] {
            write!(f, "{column:>NUMBER$}")?;
        }
        for (name, seconds) in
            [("informed oracle", self.informed_seconds), ("hindsight", self.hindsight_seconds)]
        {
            write!(f, "\n{name:NAME$}{seconds:>NUMBER$.3}")?;
        }
        self.policies.iter().try_for_each(|policy| write!(f, "\n{policy}"))?;
        f.write_str("\n\nof the informed oracle, for each size:\n")?;
        write!(f, "{:NAME$}", "policy")?;
        self.informed.keys().try_for_each(|size| write!(f, "{:>10}", Size(*size).to_string()))?;
        self.policies.iter().try_for_each(|policy| {
            write!(f, "\n{:NAME$}", policy.name)?;
            policy
                .sizes
                .values()
                .try_for_each(|shares| write!(f, "{:>10}", percent(shares.informed)))
        })
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:NAME$}{:>NUMBER$.3}", self.name, self.seconds)?;
        let Self { overall, mean_over_sizes: mean, .. } = self;
        for share in [overall.informed, mean.informed, overall.hindsight, mean.hindsight] {
            write!(f, "{:>NUMBER$}", percent(share))?;
        }
        Ok(())
    }
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}
