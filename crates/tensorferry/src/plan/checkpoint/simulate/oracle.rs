//! The best that could have been done: with knowledge of what to expect, and with hindsight.

use std::collections::BTreeMap;

use super::trace::{Step, Times, Trace};
use crate::plan::checkpoint::ask::{Goal, Reading, Writing};
use crate::plan::checkpoint::tool::Tool;

/// Which tools to write and to read with.
pub(super) type Choice = (Tool, Tool);

/// At each step, the tools with the least median in that phase, for that size and situation. Nobody who
/// can't see the noise ahead does better.
pub(super) fn informed(trace: &Trace, goal: Goal) -> Vec<Choice> {
    let expected = expected(trace);
    let choice = |(write, read): &(Times, Times)| least(write, read, goal);
    let choices: BTreeMap<_, _> = expected.iter().map(|(key, both)| (key, choice(both))).collect();
    trace.steps.iter().map(|step| choices[&group(step)]).collect()
}

/// Seconds that the informed oracle would lose at each step if it had to use each tool once at each size,
/// in the phase where that is expected to cost least. Who must look to know can't expect to lose less.
pub(super) fn looks(trace: &Trace, goal: Goal) -> Vec<f64> {
    let mut cheapest: BTreeMap<_, (f64, Group)> = BTreeMap::new();
    for (key, (write, read)) in expected(trace) {
        let (writer, reader) = least(&write, &read, goal);
        let best = counted(&write, &read, goal, (writer, reader)).unwrap_or(0.0);
        for tool in key.3.clone() {
            let writer = if tool.writes() { tool } else { writer_of(tool, &write) };
            let Some(seconds) = counted(&write, &read, goal, (writer, tool)) else { continue };
            let look = (seconds - best, key.clone());
            let kept = cheapest.entry((key.1, key.2, tool)).or_insert_with(|| look.clone());
            if look.0 < kept.0 {
                *kept = look;
            }
        }
    }
    let mut extra: BTreeMap<Group, f64> = BTreeMap::new();
    for (seconds, key) in cheapest.into_values() {
        *extra.entry(key).or_default() += seconds;
    }
    trace.steps.iter().map(|step| extra.remove(&group(step)).unwrap_or(0.0)).collect()
}

/// Seconds that the informed oracle would lose at each step if it saw only by an operation that things are
/// not as they were: the first of each size in a phase is done as was best in the phase before.
pub(super) fn late(trace: &Trace, goal: Goal) -> Vec<f64> {
    let expected = expected(trace);
    let mut before: BTreeMap<_, Group> = BTreeMap::new();
    let mut lost = Vec::with_capacity(trace.steps.len());
    for step in &trace.steps {
        let now = group(step);
        let alike = (now.1, now.2, now.3.clone());
        let then = before.insert(alike, now.clone()).unwrap_or_else(|| now.clone());
        let (write, read) = &expected[&now];
        let seconds = |(then_write, then_read): &(Times, Times)| {
            counted(write, read, goal, least(then_write, then_read, goal)).unwrap_or(0.0)
        };
        lost.push(seconds(&expected[&then]) - seconds(&expected[&now]));
    }
    lost
}

/// Medians to write and to read of steps that are alike.
fn expected(trace: &Trace) -> BTreeMap<Group<'_>, (Times, Times)> {
    let mut groups: BTreeMap<Group, Vec<&Step>> = BTreeMap::new();
    for step in &trace.steps {
        groups.entry(group(step)).or_default().push(step);
    }
    let both = |steps: Vec<&Step>| {
        let medians = |times: fn(&Step) -> &Times| medians(steps.iter().map(|step| times(step)));
        (medians(|step| &step.write), medians(|step| &step.read))
    };
    groups.into_iter().map(|(key, steps)| (key, both(steps))).collect()
}

/// Seconds of a choice that the goal counts, where they are known.
fn counted(write: &Times, read: &Times, goal: Goal, (writer, reader): Choice) -> Option<f64> {
    let write = if goal.writes() { *write.get(&writer)? } else { 0.0 };
    let read = if goal.reads() { *read.get(&reader)? } else { 0.0 };
    Some(write + read)
}

/// The fastest way to write what a tool reads.
fn writer_of(reader: Tool, write: &Times) -> Tool {
    let writers = write.iter().filter(|(writer, _)| writer.format() == reader.format());
    writers.min_by(|(_, a), (_, b)| a.total_cmp(b)).map_or(reader, |(writer, _)| *writer)
}

/// At each step, the tools with the least time, noise and all.
pub(super) fn hindsight(trace: &Trace, goal: Goal) -> Vec<Choice> {
    trace.steps.iter().map(|step| least(&step.write, &step.read, goal)).collect()
}

type Group<'a> = (&'a str, u64, (Writing, Reading), Vec<Tool>);

/// Steps that are alike; those in which other tools can be used are not.
fn group(step: &Step) -> Group<'_> {
    let tools = step.write.keys().chain(step.read.keys()).copied().collect();
    (&step.phase, step.size, step.situation, tools)
}

fn medians<'a>(all: impl Iterator<Item = &'a Times>) -> Times {
    let mut samples: BTreeMap<Tool, Vec<f64>> = BTreeMap::new();
    for (tool, seconds) in all.flatten() {
        samples.entry(*tool).or_default().push(*seconds);
    }
    samples.into_iter().map(|(tool, samples)| (tool, median(samples))).collect()
}

fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_unstable_by(f64::total_cmp);
    let half = samples.len() / 2;
    if samples.len() % 2 == 1 {
        samples[half]
    } else {
        f64::midpoint(samples[half - 1], samples[half])
    }
}

/// The tools with the fewest seconds by the goal; equals by the seconds to write.
fn least(write: &Times, read: &Times, goal: Goal) -> Choice {
    let fastest = |writer: Tool| {
        let readers = read.iter().filter(|(reader, _)| reader.format() == writer.format());
        readers.min_by(|(_, a), (_, b)| a.total_cmp(b))
    };
    let cost = |(writer, seconds): (&Tool, &f64)| {
        let (reader, reading) =
            fastest(*writer).map_or((*writer, 0.0), |(tool, time)| (*tool, *time));
        let counted = if goal.writes() { *seconds } else { 0.0 };
        let counted = counted + if goal.reads() { reading } else { 0.0 };
        ((counted, *seconds), (*writer, reader))
    };
    let order = |((a, a_write), _): &((f64, f64), Choice),
                 ((b, b_write), _): &((f64, f64), Choice)| {
        a.total_cmp(b).then(a_write.total_cmp(b_write))
    };
    let best = write.iter().map(cost).min_by(order);
    best.map_or((Tool::Direct, Tool::Direct), |(_, choice)| choice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_choice_counts_what_the_goal_counts() {
        let write = Times::from([(Tool::Direct, 2.0), (Tool::Buffered, 1.0), (Tool::Torch, 3.0)]);
        let read = Times::from([(Tool::Direct, 4.0), (Tool::Mapped, 3.5), (Tool::Torch, 1.0)]);
        assert_eq!(least(&write, &read, Goal::Write).0, Tool::Buffered);
        assert_eq!(least(&write, &read, Goal::Read), (Tool::Torch, Tool::Torch));
        assert_eq!(least(&write, &read, Goal::Both), (Tool::Torch, Tool::Torch));
        let read = Times::from([(Tool::Mapped, 0.5), (Tool::Torch, 1.0)]);
        assert_eq!(least(&write, &read, Goal::Read), (Tool::Buffered, Tool::Mapped));
    }

    #[test]
    fn a_look_at_each_tool_costs_what_it_takes_longer_where_that_is_least() {
        let step = |phase: &str, direct: f64, torch: f64| Step {
            phase: phase.into(),
            size: 1,
            write: Times::from([(Tool::Direct, 1.0), (Tool::Torch, 2.0)]),
            read: Times::from([(Tool::Direct, direct), (Tool::Mapped, 3.0), (Tool::Torch, torch)]),
            situation: (Writing::Durable, Reading::Cold),
        };
        let steps = vec![step("a", 2.0, 6.0), step("b", 2.5, 4.0), step("b", 2.5, 4.0)];
        let phases = vec!["a".into(), "b".into()];
        let trace = Trace { machine: String::new(), phases, steps };
        // Torch in either phase by its writes, in the second by its reads, as is the mapping.
        assert_eq!(looks(&trace, Goal::Write), [1.0, 0.0, 0.0]);
        assert_eq!(looks(&trace, Goal::Read), [0.0, 2.0, 0.0]);
        assert_eq!(looks(&trace, Goal::Both), [0.0, 3.0, 0.0]);
    }

    #[test]
    fn who_is_late_uses_what_was_best_before_once_at_each_size() {
        let step = |phase: &str, size: u64, direct: f64| Step {
            phase: phase.into(),
            size,
            write: Times::from([(Tool::Direct, direct), (Tool::Torch, 2.0)]),
            read: Times::new(),
            situation: (Writing::Durable, Reading::Cold),
        };
        let (a, b) = (|size| step("a", size, 1.0), |size| step("b", size, 5.0));
        let steps = vec![a(1), a(2), a(1), b(1), b(1), b(2), a(1), a(1)];
        let trace = Trace { machine: String::new(), phases: vec!["a".into(), "b".into()], steps };
        assert_eq!(late(&trace, Goal::Write), [0.0, 0.0, 0.0, 3.0, 0.0, 3.0, 1.0, 0.0]);
    }

    #[test]
    fn a_median_lies_in_the_middle() {
        assert!((median(vec![9.0, 1.0, 2.0]) - 2.0).abs() < 1e-12);
        assert!((median(vec![9.0, 1.0, 2.0, 4.0]) - 3.0).abs() < 1e-12);
    }
}
