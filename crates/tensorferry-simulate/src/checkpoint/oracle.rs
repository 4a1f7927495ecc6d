//! The best that could have been done with knowledge of what to expect.

use std::collections::BTreeMap;

use super::trace::{Step, Times, Trace};
use tensorferry::plan::checkpoint::Tool;
use tensorferry::plan::checkpoint::{Goal, Reading, Writing};

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

type Group<'a> = (&'a str, &'a str, u64, (Writing, Reading), Vec<Tool>);

/// Steps that are alike; those in which other tools can be used are not.
fn group(step: &Step) -> Group<'_> {
    let tools = step.write.keys().chain(step.read.keys()).copied().collect();
    (&step.phase, &step.mount, step.size, step.situation, tools)
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
    fn a_median_lies_in_the_middle() {
        assert!((median(vec![9.0, 1.0, 2.0]) - 2.0).abs() < 1e-12);
        assert!((median(vec![9.0, 1.0, 2.0, 4.0]) - 3.0).abs() < 1e-12);
    }
}
