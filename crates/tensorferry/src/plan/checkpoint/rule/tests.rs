//! What the rule and its memory promise: choices that can be carried out, bounded looks, sizes that learn
//! from one another, changes that are noticed.

use proptest::prelude::*;

use super::*;
use crate::plan::checkpoint::ask::{Reading, Writing};

fn save(size: u64) -> Save {
    Save { size, writing: Writing::Durable, reading: Reading::Cold, eligible: Tools::ALL }
}

fn record(rule: &mut Rule, situation: Situation, tool: Tool, size: u64, seconds: f64) {
    rule.record(&Observed { situation, tool, size, seconds, cpu_seconds: 0.0 }).unwrap();
}

/// Writes `times` times; how often each tool was chosen.
fn write(rule: &mut Rule, size: u64, times: usize, seconds: impl Fn(Tool) -> f64) -> [usize; 5] {
    let mut counts = [0; 5];
    for _ in 0..times {
        let tool = rule.choose_write(Goal::Write, &save(size)).unwrap();
        record(rule, Situation::Durable, tool, size, seconds(tool));
        counts[tool.number()] += 1;
    }
    counts
}

fn of(times: [f64; 5]) -> impl Fn(Tool) -> f64 {
    move |tool| times[tool.number()]
}

proptest! {
    #[test]
    fn looks_never_cost_more_than_their_share_and_the_last_overrun(
        goal in prop::sample::select(Goal::ALL.to_vec()),
        steps in prop::collection::vec((10u32..30, prop::array::uniform5(1e-5f64..1.0)), 1..200),
    ) {
        let mut rule = Rule::default();
        let mut overruns = BTreeMap::<Key, f64>::new();
        for (power, times) in steps {
            let size = 1 << power;
            let writer = rule.choose_write(goal, &save(size)).unwrap();
            record(&mut rule, Situation::Durable, writer, size, times[writer.number()]);
            let load = Load {
                size,
                reading: Reading::Cold,
                written_with: writer,
                eligible: Tools::ALL,
            };
            let reader = rule.choose_read(&load).unwrap();
            record(&mut rule, Situation::Cold, reader, size, times[reader.number()]);
            for (key, cell) in &rule.cells {
                // No single operation took longer than a second.
                let overrun = overruns.entry(*key).or_default();
                *overrun = overrun.max(cell.looked() - (LOOK_SHARE + FIRST_SHARE) * cell.seconds());
                prop_assert!(*overrun <= 1.0, "{key:?}: {cell:?}");
            }
        }
    }

    #[test]
    fn a_first_choice_is_the_rules_whatever_the_machine(size: u64, relaxed: bool, warm: bool) {
        let writing = if relaxed { Writing::Relaxed } else { Writing::Durable };
        let reading = if warm { Reading::Warm } else { Reading::Cold };
        let least = |situation: Situation, tools: Tools| {
            let seconds = |tool: &Tool| expected::ln_seconds(situation, *tool, size);
            tools.into_iter().min_by(|a, b| seconds(a).total_cmp(&seconds(b))).unwrap()
        };
        let mut rule = Rule::default();
        let save = Save { writing, reading, ..save(size) };
        let writer = rule.choose_write(Goal::Write, &save).unwrap();
        prop_assert_eq!(writer, least(writing.into(), Tools::ALL.writing()));
        let load = Load { size, reading, written_with: writer, eligible: Tools::ALL };
        let readers = Tools::ALL.reading(writer.format());
        prop_assert_eq!(rule.choose_read(&load).unwrap(), least(reading.into(), readers));
    }
}

#[test]
fn the_same_operations_give_the_same_choices() {
    let run = || {
        let mut rule = Rule::default();
        let seconds = |tool: Tool| 0.1 + 0.05 * tool.number() as f64;
        (0..300).map(|n| write(&mut rule, 1 << (12 + n % 9), 3, seconds)).collect::<Vec<_>>()
    };
    assert_eq!(run(), run());
}

#[test]
fn a_tool_that_is_surely_several_times_slower_is_all_but_never_looked_at() {
    let counts = write(&mut Rule::default(), 1 << 24, 3000, of([1.0, 1.3, 0.0, 6.0, 2.2]));
    assert!(counts[Tool::Torch.number()] <= 6, "{counts:?}");
    assert!(counts[0] > 2850, "{counts:?}");
}

#[test]
fn what_is_seen_overrules_the_rule() {
    let counts = write(&mut Rule::default(), 1 << 24, 1000, of([5.0, 4.0, 0.0, 3.0, 1.0]));
    assert!(counts[Tool::Numpy.number()] > 900, "{counts:?}");
}

#[test]
fn a_new_size_starts_from_its_neighbours() {
    // The other way round than the rule has it.
    let times = [5.0, 4.0, 0.0, 3.0, 1.0];
    let mut rule = Rule::default();
    write(&mut rule, 1 << 24, 500, of(times));
    assert_eq!(rule.choose_write(Goal::Write, &save(3 << 23)).unwrap(), Tool::Numpy);
    let counts = write(&mut rule, 1 << 25, 20, of(times.map(|time| 2.0 * time)));
    assert!(counts[Tool::Numpy.number()] >= 18, "{counts:?}");
}

#[test]
fn a_single_outlier_changes_nothing_and_a_few_in_a_row_do() {
    let times = [1.0, 1.5, 0.0, 3.0, 3.0];
    let mut rule = Rule::default();
    write(&mut rule, 1 << 24, 300, of(times));
    record(&mut rule, Situation::Durable, Tool::Direct, 1 << 24, 5.0);
    let counts = write(&mut rule, 1 << 24, 20, of(times));
    assert!(counts[0] >= 18, "{counts:?}");
    let counts = write(&mut rule, 1 << 24, 200, of([5.0, 1.5, 0.0, 3.0, 3.0]));
    assert!(counts[Tool::Buffered.number()] >= 170, "{counts:?}");
}

#[test]
fn a_time_in_which_every_tool_is_slower_makes_no_other_tool_best() {
    let times = [1.0, 1.5, 0.0, 3.0, 2.0];
    let mut rule = Rule::default();
    write(&mut rule, 1 << 24, 300, of(times));
    let counts = write(&mut rule, 1 << 24, 300, of(times.map(|time| 4.0 * time)));
    assert!(counts[0] >= 280, "{counts:?}");
}

#[test]
fn a_tool_that_became_better_unseen_is_found_the_sooner_the_nearer_it_was() {
    for (slower, operations, found) in [(1.6, 4000, 2000), (2.0, 8000, 3000), (3.0, 40_000, 5000)] {
        let mut rule = Rule::default();
        write(&mut rule, 1 << 24, 500, of([1.0, slower, 0.0, 9.0, 9.0]));
        let counts = write(&mut rule, 1 << 24, operations, of([1.0, 0.5, 0.0, 9.0, 9.0]));
        assert!(counts[Tool::Buffered.number()] > found, "{slower} times slower: {counts:?}");
    }
}

#[test]
fn first_looks_come_where_they_are_cheap() {
    let seconds = |size: f64, tool: Tool| size * (1.0 + tool.number() as f64) * 1e-9 + 1e-3;
    let mut rule = Rule::default();
    for _ in 0..400 {
        for power in [12, 30] {
            let size = 1u64 << power;
            let tool = rule.choose_write(Goal::Write, &save(size)).unwrap();
            let is_new =
                |size| rule.known((Situation::Durable, SizeClass::of(size)), tool).is_new();
            let is_first_look = tool != Tool::Direct && is_new(1 << 30);
            assert!(power == 12 || !(is_first_look && is_new(1 << 12)), "{tool}");
            record(&mut rule, Situation::Durable, tool, size, seconds(size as f64, tool));
        }
    }
    let tried =
        |power: u32| rule.cells[&(Situation::Durable, SizeClass::of(1 << power))].tools.len();
    assert_eq!(tried(12), 4);
    assert!(tried(30) > 1);
}

#[test]
fn under_a_goal_of_reading_a_writer_is_judged_by_how_its_format_is_read() {
    let mut rule = Rule::default();
    let (write, read) = ([1.0, 1.2, 0.0, 4.0, 2.0], [3.0, 3.0, 2.5, 4.0, 0.5]);
    let mut counts = [0; 5];
    for _ in 0..800 {
        let writer = rule.choose_write(Goal::Both, &save(1 << 24)).unwrap();
        record(&mut rule, Situation::Durable, writer, 1 << 24, write[writer.number()]);
        let load = Load {
            size: 1 << 24,
            reading: Reading::Cold,
            written_with: writer,
            eligible: Tools::ALL,
        };
        let reader = rule.choose_read(&load).unwrap();
        record(&mut rule, Situation::Cold, reader, 1 << 24, read[reader.number()]);
        counts[writer.number()] += 1;
    }
    // 2.5 seconds for both, against 3.5 at best by direct and mapped.
    assert!(counts[Tool::Numpy.number()] > 500, "{counts:?}");
    let eligible = [Tool::Direct, Tool::Buffered].into_iter().collect();
    let tool = rule.choose_write(Goal::Read, &Save { eligible, ..save(1 << 24) }).unwrap();
    assert_eq!(tool, Tool::Direct, "of two writers of one format, the faster");
}

#[test]
fn a_flush_forgets_what_overruled_the_rule() {
    let mut rule = Rule::default();
    write(&mut rule, 1 << 24, 500, of([5.0, 4.0, 0.0, 3.0, 1.0]));
    assert_eq!(rule.choose_write(Goal::Write, &save(1 << 24)).unwrap(), Tool::Numpy);
    rule.flush();
    assert_eq!(rule.choose_write(Goal::Write, &save(1 << 24)).unwrap(), Tool::Direct);
}

#[test]
fn a_tool_that_was_added_is_tried_and_used_where_it_wins() {
    let added = Tool::add("tape", "tape").unwrap();
    let eligible = Tools::ALL.with(added);
    let seconds = |tool: Tool, size: u64| {
        let wins = tool == added && size == 1 << 24;
        if wins { 0.5 } else { 1.0 + tool.number() as f64 }
    };
    let mut rule = Rule::default();
    let mut counts = BTreeMap::<(u64, Tool), usize>::new();
    for _ in 0..600 {
        for size in [1 << 14, 1 << 24] {
            let tool = rule.choose_write(Goal::Write, &Save { eligible, ..save(size) }).unwrap();
            record(&mut rule, Situation::Durable, tool, size, seconds(tool, size));
            *counts.entry((size, tool)).or_default() += 1;
        }
    }
    assert!(counts[&(1 << 24, added)] > 400, "{counts:?}");
    assert!(counts[&(1 << 14, Tool::Direct)] > 450, "{counts:?}");
    let load = Load { size: 1, reading: Reading::Cold, written_with: added, eligible };
    assert_eq!(rule.choose_read(&load).unwrap(), added, "nobody else reads its format");
}
