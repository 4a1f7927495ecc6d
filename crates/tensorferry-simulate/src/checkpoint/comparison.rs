//! What each policy took beside single tools, by situation and over the mixture: as data and as tables.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use super::trace::{Step, Trace};
use tensorferry::plan::checkpoint::Tool;
use tensorferry::plan::checkpoint::{Goal, Reading, Situation, Writing};
use tensorferry::size::Size;

/// Every policy beside the single tools and the oracle.
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
    pub oracle_seconds: f64,
    /// In which situations the steps were.
    pub situations: Vec<Situated>,
    /// One for each.
    pub policies: Vec<Policy>,
    /// Of the best single tool over the mixture.
    tool_seconds: f64,
    /// The number of each step's situation.
    #[serde(skip)]
    of_step: Vec<usize>,
}

/// A situation.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Situated {
    /// The file system.
    pub mount: String,
    /// How is written there.
    pub writing: Writing,
    /// How is read.
    pub reading: Reading,
    /// Bytes of an object.
    pub size: u64,
    /// How many steps were in it.
    pub steps: usize,
    /// The single tool that is best in it.
    pub tool: Option<Tool>,
    /// Its seconds, of all steps.
    pub tool_seconds: f64,
}

/// What one policy took. A share is a tool's seconds over the policy's: above one, the policy is faster.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Policy {
    /// What it is called.
    pub name: String,
    /// Seconds of all steps.
    pub seconds: f64,
    /// Over the mixture: of the single tool that is best for all of it.
    pub of_tool: f64,
    /// The same of the informed oracle.
    pub of_oracle: f64,
    /// In each situation, of the tool that is best there.
    pub situations: Vec<f64>,
}

impl Policy {
    /// Geometric mean over the situations.
    pub fn mean(&self) -> f64 {
        let logarithms = self.situations.iter().map(|share| share.ln());
        (logarithms.sum::<f64>() / self.situations.len() as f64).exp()
    }

    /// In the situation where it is the furthest behind.
    pub fn worst(&self) -> f64 {
        self.situations.iter().copied().fold(f64::INFINITY, f64::min)
    }
}

impl Comparison {
    pub(super) fn new(
        trace: &Trace,
        goal: Goal,
        earlier_steps: usize,
        tools: &[(Tool, Vec<f64>)],
        oracle: &[f64],
    ) -> Self {
        let mut keys: Vec<_> = trace.steps.iter().map(key).collect();
        keys.sort_unstable();
        keys.dedup();
        let numbers: BTreeMap<_, _> = keys.iter().zip(0..).collect();
        let of_step: Vec<usize> = trace.steps.iter().map(|step| numbers[&key(step)]).collect();
        let sums: Vec<_> =
            tools.iter().map(|(tool, paid)| (*tool, sums(paid, &of_step, keys.len()))).collect();
        let situated = |(number, (mount, (writing, reading), size)): (usize, &Key<'_>)| {
            let here = sums.iter().map(|(tool, sums)| (*tool, sums[number]));
            let best = here.min_by(|(_, a), (_, b)| a.total_cmp(b));
            Situated {
                mount: (*mount).to_owned(),
                writing: *writing,
                reading: *reading,
                size: *size,
                steps: of_step.iter().filter(|of| **of == number).count(),
                tool: best.map(|(tool, _)| tool),
                tool_seconds: best.map_or(f64::NAN, |(_, seconds)| seconds),
            }
        };
        let totals = tools.iter().map(|(_, paid)| paid.iter().sum::<f64>());
        Self {
            machine: trace.machine.clone(),
            goal,
            steps: trace.steps.len(),
            earlier_steps,
            phases: trace.phases.clone(),
            oracle_seconds: oracle.iter().sum(),
            situations: keys.iter().enumerate().map(situated).collect(),
            policies: Vec::new(),
            tool_seconds: totals.fold(f64::INFINITY, f64::min),
            of_step,
        }
    }

    /// Adds a policy that took so long at each step.
    pub(super) fn add(&mut self, name: String, paid: &[f64]) {
        let seconds = paid.iter().sum::<f64>();
        let sums = sums(paid, &self.of_step, self.situations.len());
        let shares = self.situations.iter().zip(sums);
        self.policies.push(Policy {
            name,
            seconds,
            of_tool: self.tool_seconds / seconds,
            of_oracle: self.oracle_seconds / seconds,
            situations: shares.map(|(here, own)| here.tool_seconds / own).collect(),
        });
    }

    /// The policy of this name.
    pub fn policy(&self, name: &str) -> Option<&Policy> {
        self.policies.iter().find(|policy| policy.name == name)
    }
}

type Key<'a> = (&'a str, (Writing, Reading), u64);

fn key(step: &Step) -> Key<'_> {
    (&step.mount, step.situation, step.size)
}

/// Seconds by situation.
fn sums(paid: &[f64], of_step: &[usize], situations: usize) -> Vec<f64> {
    let mut sums = vec![0.0; situations];
    for (seconds, number) in paid.iter().zip(of_step) {
        sums[*number] += seconds;
    }
    sums
}

/// Widths of the columns of names and of numbers.
const NAME: usize = 34;
const NUMBER: usize = 11;

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.machine)?;
        write!(f, "{} steps, goal {}, phases: ", self.steps, self.goal)?;
        writeln!(f, "{}", self.phases.join(", "))?;
        if self.earlier_steps > 0 {
            writeln!(f, "dictionaries kept from {} earlier steps", self.earlier_steps)?;
        }
        write!(f, "\n{:NAME$}", "over the mixture")?;
        for column in ["seconds", "of a tool", "of oracle", "mean", "worst"] {
            write!(f, "{column:>NUMBER$}")?;
        }
        self.policies.iter().try_for_each(|policy| write!(f, "\n{policy}"))?;
        f.write_str(
            "\n\nof a tool: its seconds over these, for the single tool that is best over all; ",
        )?;
        f.write_str("mean, worst: over the situations,\nfor the tool that is best in each\n")?;
        write!(f, "\n{:NAME$}{:>NUMBER$}", "by situation", "best tool")?;
        self.policies.iter().try_for_each(|policy| write!(f, "{:>NUMBER$}", policy.name))?;
        self.situations.iter().enumerate().try_for_each(|(number, here)| {
            let tool = here.tool.map_or("-", Tool::name);
            write!(f, "\n{:NAME$}{tool:>NUMBER$}", here.to_string())?;
            let shares = self.policies.iter().map(|policy| policy.situations[number]);
            shares.into_iter().try_for_each(|share| write!(f, "{share:>NUMBER$.3}"))
        })
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:NAME$}{:>NUMBER$.3}", self.name, self.seconds)?;
        let shares = [self.of_tool, self.of_oracle, self.mean(), self.worst()];
        shares.iter().try_for_each(|share| write!(f, "{share:>NUMBER$.3}"))
    }
}

impl fmt::Display for Situated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let situations = [Situation::from(self.writing), Situation::from(self.reading)];
        let mount = if self.mount.is_empty() { String::new() } else { format!("{} ", self.mount) };
        let text = format!("{mount}{} {} {}", situations[0], situations[1], Size(self.size));
        f.pad(&text)
    }
}
