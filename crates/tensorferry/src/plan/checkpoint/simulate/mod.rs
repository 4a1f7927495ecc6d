//! Policies compared over a recorded trace.
//!
//! At each step a policy chooses a tool to write with, pays the recorded time, and, where the goal
//! counts reading, chooses a tool to read with among those of the format, and pays that. It learns only
//! from what it paid. What counts are the seconds of the goal.
//!
//! Two oracles stand beside: the *informed* one knows what to expect of each tool (the median for that
//! size within its phase), the one with *hindsight* knows each single time. A share is an oracle's
//! seconds over the policy's. Seconds are those of the largest objects, mostly, so shares are given for
//! each size too, and their geometric mean.
//!
//! Nobody is informed for nothing. [`ONE_LOOK`] is what the informed oracle would reach if it had to use
//! each tool once at each size, where that is expected to cost least: who learns each size by itself
//! can't expect more. A policy that learns one size from another can, and so can one whose dictionary
//! was kept from earlier operations ([`compare_after`]). And nobody is told of a change: [`ONE_LATE`] is
//! the same, if the first operation at each size after a change of phase is done as was best before it.

mod comparison;
mod oracle;
#[cfg(test)]
#[cfg(not(loom))]
pub(super) mod synthetic;
#[cfg(test)]
#[cfg(not(loom))]
mod tests;
mod trace;
#[cfg(test)]
#[cfg(not(loom))]
mod variations;

pub use self::comparison::{Comparison, Policy, Shares};
pub use self::trace::{Step, Times, Trace};
use super::ask::{Goal, Load, Observed, Save, Situation};
use super::dictionary::{Dictionary, Explore};
use super::tool::Tool;
use crate::error::{Error, Kind, Result};

/// How often the paper's dictionaries are flushed, in operations, unless the user says otherwise.
pub const PAPER_UPDATE_EVERY: u64 = 1000;

/// The informed oracle, if it had to use each tool once at each size.
pub const ONE_LOOK: &str = "best with one look at each tool";

/// The same, if it also saw only by an operation of each size that things have changed.
pub const ONE_LATE: &str = "one look, one step late";

/// Replays every policy, from a dictionary that knows nothing.
pub fn compare(trace: &Trace, goal: Goal, paper_update_every: u64) -> Result<Comparison> {
    compare_after(None, trace, goal, paper_update_every)
}

/// Replays every policy with the dictionary that it has after an earlier trace, of which no second counts:
/// dictionaries are kept for each mount, so only the first run there knows nothing.
pub fn compare_after(
    earlier: Option<&Trace>,
    trace: &Trace,
    goal: Goal,
    paper_update_every: u64,
) -> Result<Comparison> {
    trace.check_goal(goal)?;
    let paid = |choices: &[oracle::Choice]| -> Result<Vec<f64>> {
        trace.steps.iter().zip(choices).map(|(step, choice)| pay(step, goal, *choice)).collect()
    };
    let informed = paid(&oracle::informed(trace, goal))?;
    let hindsight = paid(&oracle::hindsight(trace, goal))?;
    let mut comparison = Comparison::new(trace, goal, &informed, &hindsight);
    comparison.earlier_steps = earlier.map_or(0, |earlier| earlier.steps.len());
    let paper = || Dictionary::aware(Explore::Paper, goal);
    for (name, mut dictionary) in [
        ("bandit".to_owned(), Dictionary::aware(Explore::Bandit, goal)),
        (
            format!("paper, updated every {paper_update_every}"),
            paper().update_every(Some(paper_update_every))?,
        ),
        ("paper, first dictionary".to_owned(), paper()),
    ] {
        if let Some(earlier) = earlier {
            replay(&mut dictionary, earlier, goal)
                .map_err(|error| error.with("trace", "earlier"))?;
        }
        comparison.add(name, trace, &replay(&mut dictionary, trace, goal)?);
    }
    let add = |paid: &[f64], lost: Vec<f64>| -> Vec<f64> {
        paid.iter().zip(lost).map(|(paid, lost)| paid + lost).collect()
    };
    let looking = add(&informed, oracle::looks(trace, goal));
    comparison.add(ONE_LOOK.to_owned(), trace, &looking);
    comparison.add(ONE_LATE.to_owned(), trace, &add(&looking, oracle::late(trace, goal)));
    for tool in Tool::ALL {
        if let Some(choices) = always(tool, trace, goal) {
            comparison.add(format!("always {tool}"), trace, &paid(&choices)?);
        }
    }
    Ok(comparison)
}

/// Seconds of the goal at each step, as a dictionary chooses.
pub fn replay(dictionary: &mut Dictionary, trace: &Trace, goal: Goal) -> Result<Vec<f64>> {
    trace.check_goal(goal)?;
    let one = |(number, step)| {
        play(dictionary, step, goal).map_err(|error: Error| error.with("step", number))
    };
    trace.steps.iter().enumerate().map(one).collect()
}

fn play(dictionary: &mut Dictionary, step: &Step, goal: Goal) -> Result<f64> {
    let (size, (writing, reading)) = (step.size, step.situation);
    // A tool that could write and has no time to do so could not move this object.
    let eligible = step.tools().into_iter();
    let eligible =
        eligible.filter(|tool| step.write.contains_key(tool) || !tool.writes()).collect();
    let writer = dictionary.choose_write(&Save { size, writing, reading, eligible })?;
    observe(dictionary, writing.into(), writer, size, &step.write)?;
    if !goal.reads() {
        return pay(step, goal, (writer, writer));
    }
    let load = Load { size, reading, written_with: writer, eligible: step.readers() };
    let reader = dictionary.choose_read(&load)?;
    observe(dictionary, reading.into(), reader, size, &step.read)?;
    pay(step, goal, (writer, reader))
}

fn observe(
    dictionary: &mut Dictionary,
    situation: Situation,
    tool: Tool,
    size: u64,
    times: &Times,
) -> Result<()> {
    let seconds = time(times, tool)?;
    dictionary.record(&Observed { situation, tool, size, seconds, cpu_seconds: 0.0 })
}

fn pay(step: &Step, goal: Goal, (writer, reader): oracle::Choice) -> Result<f64> {
    let write = if goal.writes() { time(&step.write, writer)? } else { 0.0 };
    let read = if goal.reads() { time(&step.read, reader)? } else { 0.0 };
    Ok(write + read)
}

fn time(times: &Times, tool: Tool) -> Result<f64> {
    let missing = || Error::new(Kind::Internal, format!("{tool} was chosen and has no time"));
    times.get(&tool).copied().ok_or_else(missing)
}

/// The same tool at every step, if every step has it.
fn always(tool: Tool, trace: &Trace, goal: Goal) -> Option<Vec<oracle::Choice>> {
    let writer = if tool.writes() { tool } else { tool.format().tool() };
    let fits = |step: &Step| {
        let written = step.write.contains_key(&writer) && (tool.writes() || goal.reads());
        written && (!goal.reads() || step.read.contains_key(&tool))
    };
    trace.steps.iter().all(fits).then(|| vec![(writer, tool); trace.steps.len()])
}
