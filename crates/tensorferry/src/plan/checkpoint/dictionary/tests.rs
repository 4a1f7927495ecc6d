//! What dictionaries promise, whatever decides.

use proptest::prelude::*;

use super::*;
use crate::error::Kind;
use crate::plan::checkpoint::ask::Situation;
use crate::plan::checkpoint::tool::Tools;

fn save(size: u64) -> Save {
    Save { size, writing: Writing::Durable, reading: Reading::Cold, eligible: Tools::ALL }
}

fn observed(situation: Situation, tool: Tool, size: u64, seconds: f64) -> Observed {
    Observed { situation, tool, size, seconds, cpu_seconds: seconds / 10.0 }
}

/// Saves and loads once, as `times` (seconds of each tool) has it.
fn once(dictionary: &mut Dictionary, size: u64, eligible: Tools, times: [f64; 5]) -> (Tool, Tool) {
    let (writing, reading) = (Writing::Durable, Reading::Cold);
    let writer = dictionary.choose_write(&Save { size, writing, reading, eligible }).unwrap();
    let write = observed(Situation::Durable, writer, size, times[writer.number()]);
    dictionary.record(&write).unwrap();
    let load = Load { size, reading, written_with: writer, eligible };
    let reader = dictionary.choose_read(&load).unwrap();
    let read = observed(Situation::Cold, reader, size, times[reader.number()]);
    dictionary.record(&read).unwrap();
    (writer, reader)
}

fn modes() -> Vec<Dictionary> {
    let own = Own::parse(r#"{"WDic": {"4096": "torch"}, "RDic": {"4096": "mapped"}}"#).unwrap();
    let mut modes = vec![Dictionary::one(Tool::Numpy), Dictionary::own(own, Goal::Both)];
    for goal in Goal::ALL {
        modes.push(Dictionary::aware(Explore::Paper, goal).update_every(Some(40)).unwrap());
        modes.push(Dictionary::aware(Explore::Rule, goal));
    }
    modes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_run_that_was_kept_and_read_goes_on_as_if_it_had_not_been(
        mode in 0usize..8,
        steps in prop::collection::vec((0u32..40, prop::array::uniform5(1e-6f64..10.0)), 1..60),
        kept in 0usize..60,
    ) {
        let mut straight = modes().swap_remove(mode);
        let mut broken = straight.clone();
        for (number, (power, times)) in steps.into_iter().enumerate() {
            if number == kept {
                broken = Dictionary::from_json(&broken.to_json().unwrap()).unwrap();
            }
            let chosen = once(&mut straight, 1 << power, Tools::ALL, times);
            prop_assert_eq!(once(&mut broken, 1 << power, Tools::ALL, times), chosen);
        }
        prop_assert_eq!(straight.to_json().unwrap(), broken.to_json().unwrap());
        prop_assert_eq!(broken, straight);
    }

    #[test]
    fn a_choice_is_eligible_and_reads_what_was_written(
        mode in 2usize..8,
        steps in prop::collection::vec(
            (any::<u64>(), prop::sample::subsequence(Tool::ALL.to_vec(), 1..=5)),
            1..40,
        ),
    ) {
        let mut dictionary = modes().swap_remove(mode);
        for (number, (size, eligible)) in steps.into_iter().enumerate() {
            let eligible: Tools = eligible.into_iter().collect();
            if eligible.writing().is_empty() {
                let error = dictionary.choose_write(&Save { eligible, ..save(size) }).unwrap_err();
                prop_assert_eq!(error.kind(), Kind::InvalidInput);
                continue;
            }
            let times = [1.0, 2.0, 3.0, 4.0, 5.0].map(|time| time * (1 + number % 3) as f64);
            let (writer, reader) = once(&mut dictionary, size >> (number % 64), eligible, times);
            prop_assert!(eligible.contains(writer) && writer.writes());
            prop_assert!(eligible.contains(reader) && reader.format() == writer.format());
        }
    }
}

#[test]
fn one_tool_writes_everything_and_reads_what_it_can() {
    let mut torch = Dictionary::one(Tool::Torch);
    assert_eq!(torch.choose_write(&save(1)).unwrap(), Tool::Torch);
    let load =
        |written_with| Load { size: 1, reading: Reading::Warm, written_with, eligible: Tools::ALL };
    assert_eq!(torch.choose_read(&load(Tool::Torch)).unwrap(), Tool::Torch);
    assert_eq!(torch.choose_read(&load(Tool::Numpy)).unwrap(), Tool::Numpy, "another one's file");
    let error = Dictionary::one(Tool::Mapped).choose_write(&save(1)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "mapped can't write this object (eligible: direct, buffered, torch, numpy)"
    );
}

#[test]
fn an_update_flushes_after_that_many_operations_and_never_unless_asked() {
    let writers = Tools::ALL.writing();
    let run = |every: Option<u64>| {
        let mut paper = Dictionary::aware(Explore::Paper, Goal::Write).update_every(every).unwrap();
        let mut choices = Vec::new();
        for _ in 0..12 {
            let tool = paper.choose_write(&Save { eligible: writers, ..save(8) }).unwrap();
            let write = observed(Situation::Durable, tool, 8, 1.0 + f64::from(tool.number() as u8));
            paper.record(&write).unwrap();
            choices.push(tool);
        }
        choices
    };
    let [d, n, t, b] = super::super::paper::ORDER;
    assert_eq!(run(None), [d, n, t, b, d, d, d, d, d, d, d, d]);
    assert_eq!(run(Some(6)), [d, n, t, b, d, d, d, n, t, b, d, d]);
    let error = Dictionary::one(d).update_every(Some(0)).unwrap_err();
    assert!(error.to_string().starts_with("an update after every 0 operations"), "{error}");
}

#[test]
fn tables_have_the_papers_shape_and_can_be_given_back_as_ones_own() {
    for explore in [Explore::Paper, Explore::Rule] {
        let mut dictionary = Dictionary::aware(explore, Goal::Both);
        for _ in 0..40 {
            once(&mut dictionary, 1 << 20, Tools::ALL, [1.0, 2.0, 0.5, 4.0, 3.0]);
        }
        let tables = dictionary.tables();
        let json = serde_json::to_value(&tables).unwrap();
        for table in ["WDic", "RDic", "WRDic"] {
            assert!(json[table]["1048576"]["times"]["direct"].is_f64(), "{table}: {json}");
        }
        assert_eq!(json["WDic"]["1048576"]["best"], "direct", "{explore:?}: {json}");
        let own = Own::parse(&json.to_string()).unwrap();
        let mut own = Dictionary::own(own, Goal::Both);
        assert_eq!(own.choose_write(&save(1 << 22)).unwrap(), Tool::Direct);
    }
}

#[test]
fn a_report_counts_what_was_done_and_prints_well() {
    let mut dictionary = Dictionary::one(Tool::Direct);
    assert_eq!(dictionary.report().to_string(), "nothing was saved or loaded yet");
    for _ in 0..4 {
        dictionary.record(&observed(Situation::Durable, Tool::Direct, 1 << 20, 0.5)).unwrap();
    }
    dictionary.record(&observed(Situation::Durable, Tool::Torch, 1 << 20, 1.0)).unwrap();
    let report = dictionary.report();
    let row = &report.rows[0];
    assert_eq!((row.situation, row.size, row.operations), (Situation::Durable, 1 << 20, 5));
    assert_eq!((row.best, row.tools[&Tool::Direct].operations), (Tool::Direct, 4));
    // Five objects in three seconds, of which the best would have taken two and a half.
    let close = |a: f64, b: f64| (a / b - 1.0).abs() < 1e-9;
    assert!(close(row.oracle_share_estimated, 2.5 / 3.0), "{row:?}");
    assert!(close(row.bandwidth, f64::from(5 << 20) / 3.0), "{row:?}");
    assert!(close(row.utilisation, 0.1), "{row:?}");
    assert!(close(row.io_ef.unwrap(), row.bandwidth / 0.1), "{row:?}");
    let lines = report.to_string();
    let line = lines.lines().nth(1).unwrap();
    assert_eq!(
        line,
        "durable         1 MiB       5  direct      83.3 %      1.7   0.10     17.5  \
         direct 500.000 (4) torch 1000.000 (1)"
    );
}

#[test]
fn a_state_that_makes_no_sense_is_an_error_that_says_why() {
    let mut rule = Dictionary::aware(Explore::Rule, Goal::Write);
    rule.record(&observed(Situation::Durable, Tool::Direct, 4096, 1.0)).unwrap();
    let mut paper = Dictionary::aware(Explore::Paper, Goal::Write);
    once(&mut paper, 4096, Tools::ALL, [1.0; 5]);
    let (rule, paper) = (rule.to_json().unwrap(), paper.to_json().unwrap());
    for (json, kind, text) in [
        ("{".to_owned(), Kind::Corrupt, "this is no dictionary's state: EOF"),
        ("{}".to_owned(), Kind::Corrupt, "this is no dictionary's state: missing field `version`"),
        (
            rule.replace("\"version\":5", "\"version\":9"),
            Kind::Unsupported,
            "the state is of another version; start a new dictionary (version: 9, known: 5)",
        ),
        (
            rule.replace("direct", "tape"),
            Kind::Corrupt,
            "this is no dictionary's state: \"tape\" is no tool; choose direct, buffered, mapped",
        ),
        (
            rule.replacen("\"weight\":", "\"weight\":-", 1),
            Kind::Corrupt,
            "this is no dictionary's state: what is remembered of a size is out of bounds (cell: 0)",
        ),
        (
            rule.replacen("\"tools\":{\"direct\"", "\"tools\":{\"mapped\"", 1),
            Kind::Corrupt,
            "this is no dictionary's state: mapped does not write (cell: 0)",
        ),
        (
            rule.replacen("\"seconds\":1.0", "\"seconds\":-1.0", 1),
            Kind::Corrupt,
            "this is no dictionary's state: what is remembered of a size is out of bounds (cell: 0)",
        ),
        (
            paper.replacen("[1.0,\"direct\"]", "[1.0,\"mapped\"]", 1),
            Kind::Corrupt,
            "a speed list holds a time or a tool that can't be (in: WDic, size: 4096)",
        ),
        (
            paper.replacen("[[1.0,\"direct\"]]", "[[1.0,\"direct\"],[1.0,\"direct\"]]", 1),
            Kind::Corrupt,
            "a speed list holds a tool twice (in: WDic, size: 4096)",
        ),
        (
            paper.replacen("\"best\":null", "\"best\":\"numpy\"", 1),
            Kind::Corrupt,
            "the best tool of a speed list is not in it (in: WDic, size: 4096)",
        ),
        (
            rule.replacen("\"update_every\":null", "\"update_every\":0", 1),
            Kind::InvalidInput,
            "an update after every 0 operations",
        ),
    ] {
        let error = Dictionary::from_json(&json).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().starts_with(text), "{error}");
    }
}
