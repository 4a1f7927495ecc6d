//! Policies compared over a recorded trace that mixes situations.
//!
//! At each step a policy chooses a tool to write with, pays the recorded time, and, where the goal
//! counts reading, chooses a tool to read with among those of the format, and pays that. It learns only
//! from what it paid, with a dictionary for each file system. What counts are the seconds of the goal.
//!
//! Beside the policies stand the single tools, each used for everything. A *situation* is a file system,
//! how is written and read there, and a size. In each, a share is the seconds of the tool that is best
//! there, over the policy's; over the mixture, those of the single tool that is best for all of it. The
//! *informed oracle* knows what to expect of each tool (the median for that situation within its phase):
//! who can't see the noise ahead does no better.

#[cfg(test)]
mod cases;
mod comparison;
mod oracle;
#[cfg(test)]
mod tests;
mod trace;

use std::collections::BTreeMap;

pub use self::comparison::{Comparison, Policy, Situated};
pub use self::trace::{Step, Times, Trace};
use tensorferry::error::{Error, Kind, Result};
use tensorferry::plan::checkpoint::Tool;
use tensorferry::plan::checkpoint::{Dictionary, Explore};
use tensorferry::plan::checkpoint::{Goal, Load, Observed, Save, Situation};

/// How often the paper's dictionaries are flushed, in operations, unless the user says otherwise.
pub const PAPER_UPDATE_EVERY: u64 = 1000;

/// The policy that is ours.
pub const ADAPTING: &str = "adapting";

/// Replays every policy, from a dictionary that knows nothing.
pub fn compare(trace: &Trace, goal: Goal, paper_update_every: u64) -> Result<Comparison> {
    compare_after(None, trace, goal, paper_update_every)
}

/// Replays every policy with the dictionaries that it has after an earlier trace, of which no second counts:
/// they are kept for each mount, so only the first run there knows nothing.
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
    let single = |tool: Tool| -> Result<Option<(Tool, Vec<f64>)>> {
        let choices = always(tool, trace, goal);
        choices.map(|choices| Ok((tool, paid(&choices)?))).transpose()
    };
    let tools: Result<Vec<_>> =
        Tool::ALL.into_iter().filter_map(|tool| single(tool).transpose()).collect();
    let tools = tools?;
    let oracle = paid(&oracle::informed(trace, goal))?;
    let earlier_steps = earlier.map_or(0, |earlier| earlier.steps.len());
    let mut comparison = Comparison::new(trace, goal, earlier_steps, &tools, &oracle);
    let paper = Dictionary::aware(Explore::Paper, goal);
    for (name, fresh) in [
        (ADAPTING.to_owned(), Dictionary::aware(Explore::Rule, goal)),
        ("paper".to_owned(), paper.clone()),
        (format!("paper/{paper_update_every}"), paper.update_every(Some(paper_update_every))?),
    ] {
        let mut player = Player::new(fresh);
        if let Some(earlier) = earlier {
            player.replay(earlier, goal).map_err(|error| error.with("trace", "earlier"))?;
        }
        comparison.add(name, &player.replay(trace, goal)?);
    }
    for (tool, paid) in tools {
        comparison.add(tool.name().to_owned(), &paid);
    }
    Ok(comparison)
}

/// One policy: a dictionary for each file system.
#[derive(Debug)]
pub struct Player {
    fresh: Dictionary,
    by_mount: BTreeMap<String, Dictionary>,
}

impl Player {
    /// One that begins on every file system with this dictionary.
    pub fn new(fresh: Dictionary) -> Self {
        Self { fresh, by_mount: BTreeMap::new() }
    }

    /// Seconds of the goal at each step, as the dictionaries choose.
    pub fn replay(&mut self, trace: &Trace, goal: Goal) -> Result<Vec<f64>> {
        trace.check_goal(goal)?;
        let one = |(number, step): (usize, &Step)| {
            let fresh = || self.fresh.clone();
            let dictionary = self.by_mount.entry(step.mount.clone()).or_insert_with(fresh);
            play(dictionary, step, goal).map_err(|error| error.with("step", number))
        };
        trace.steps.iter().enumerate().map(one).collect()
    }
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
