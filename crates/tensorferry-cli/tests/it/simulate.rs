//! `tensorferry simulate`: what it prints, and what it refuses.

use std::fs;

use serde_json::Value;

use crate::{Ended, run};

/// Two sizes and two phases; direct is best, but in the second phase for the small one.
fn trace() -> String {
    let step = |number: usize| {
        let phase = if number < 60 { "idle" } else { "busy" };
        let size = [4096, 1 << 20][number % 2];
        let direct = if number >= 60 && size == 4096 { 0.009 } else { 0.001 };
        format!(
            r#"{{"phase": "{phase}", "size": {size}, "situation": ["durable", "cold"],
               "write": {{"direct": {direct}, "buffered": 0.002, "torch": 0.004, "numpy": 0.003}},
               "read": {{"direct": 0.001, "buffered": 0.002, "mapped": 0.0015, "torch": 0.004,
                         "numpy": 0.003}}}}"#
        )
    };
    let steps: Vec<_> = (0..120).map(step).collect();
    let steps = steps.join(",");
    format!(r#"{{"machine": "a machine", "phases": ["idle", "busy"], "steps": [{steps}]}}"#)
}

fn simulate(trace: &str, more: &[&str]) -> Ended {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("trace.json");
    fs::write(&file, trace).unwrap();
    let ended = run(&[&["simulate", "tools", file.to_str().unwrap()], more].concat());
    let stderr = ended.stderr.replace(file.to_str().unwrap(), "TRACE");
    Ended { stderr, ..ended }
}

#[test]
fn every_policy_stands_beside_the_oracles() {
    let ended = simulate(&trace(), &["--goal", "w+r"]);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    assert!(ended.stdout.starts_with("a machine\n120 steps, goal w+r, phases: idle, busy\n"));
    for name in ["bandit", "paper, updated every 1000", "paper, first dictionary", "always mapped"]
    {
        assert!(ended.stdout.lines().any(|line| line.starts_with(name)), "{}", ended.stdout);
    }
    // Without noise the two oracles are one.
    let seconds: Vec<_> = ["informed oracle", "hindsight"]
        .map(|name| ended.stdout.lines().find(|line| line.starts_with(name)).unwrap())
        .map(|line| line.split_whitespace().last().unwrap().to_owned())
        .to_vec();
    assert_eq!(seconds[0], seconds[1]);
}

#[test]
fn the_document_holds_shares_for_each_size() {
    let ended = simulate(&trace(), &["--json", "--update-every", "50"]);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    let report: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(report["goal"], "w");
    let direct = report["policies"].as_array().unwrap().iter();
    let direct = direct.clone().find(|policy| policy["name"] == "always direct").unwrap();
    assert_eq!(direct["sizes"]["1048576"]["informed"].as_f64().map(f64::round), Some(1.0));
    // 60 ms at best, half of it slow: 30 + 60 over 30 + 270.
    let share = direct["sizes"]["4096"]["informed"].as_f64().unwrap();
    assert!((share - 0.3).abs() < 1e-9, "{share}");
}

#[test]
fn a_bad_trace_is_an_error_that_names_file_and_step() {
    let good = trace();
    for (bad, error) in [
        ("{".to_owned(), "error: this is no trace (file: TRACE): EOF while parsing"),
        (
            good.replacen("4096", "-4096", 1),
            "error: a step is not as it must be (step: 0, file: TRACE): invalid value: integer \
             `-4096`, expected u64",
        ),
        (
            good.replacen("\"torch\": 0.004", "\"tape\": 0.004", 1),
            "error: a step is not as it must be (step: 0, file: TRACE): unknown variant `tape`",
        ),
        (
            good.replacen("\"phase\": \"busy\"", "\"phase\": \"asleep\"", 1),
            "error: the phase \"asleep\" is not one of the trace's (step: 60, file: TRACE)",
        ),
        (
            good.replacen("\"direct\": 0.001", "\"direct\": 0", 1),
            "error: the seconds to write with direct are 0 (step: 0, file: TRACE)",
        ),
    ] {
        let ended = simulate(&bad, &[]);
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), ""));
        assert!(ended.stderr.starts_with(error), "{}", ended.stderr);
    }
}

#[test]
fn arguments_that_make_no_sense_are_errors_that_say_what_would() {
    let ended = simulate(&trace(), &["--update-every", "0"]);
    assert_eq!(ended.code, Some(1));
    assert!(ended.stderr.starts_with("error: an update after every 0 operations"));
    let ended = simulate(&trace(), &["--goal", "fast"]);
    assert_eq!(ended.code, Some(2));
    let error = "error: invalid value 'fast' for '--goal <GOAL>': \"fast\" is no goal; choose \"w\", \
                 \"r\" or \"w+r\"\n";
    assert!(ended.stderr.starts_with(error), "{}", ended.stderr);
    let ended = run(&["simulate", "tools", "/nonexistent"]);
    assert_eq!(
        ended.stderr,
        "error: can't read the trace (file: /nonexistent): No such file or directory (os error 2)\n"
    );
}
