//! `tensorferry simulate`: what it prints, and what it refuses.

use std::fs;

use serde_json::Value;

use crate::{Ended, run};

/// Two sizes, two phases and two situations; direct is best where writes are durable, but in the second phase
/// for the small one, and buffered where they are not.
fn trace() -> String {
    let step = |number: usize| {
        let phase = if number < 60 { "idle" } else { "busy" };
        let size = [4096, 1 << 20][number % 2];
        let (direct, buffered, situation) = match number / 2 % 2 {
            0 if number >= 60 && size == 4096 => (0.009, 0.002, r#"["durable", "cold"]"#),
            0 => (0.001, 0.002, r#"["durable", "cold"]"#),
            _ => (0.003, 0.001, r#"["relaxed", "warm"]"#),
        };
        format!(
            r#"{{"phase": "{phase}", "mount": "disk", "size": {size}, "situation": {situation},
               "write": {{"direct": {direct}, "buffered": {buffered}, "torch": 0.004, "numpy": 0.003}},
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
fn every_policy_stands_beside_every_single_tool_over_the_mixture_and_by_situation() {
    let ended = simulate(&trace(), &["--goal", "w+r"]);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    assert!(ended.stdout.starts_with("a machine\n120 steps, goal w+r, phases: idle, busy\n"));
    for name in [
        "adapting",
        "paper/1000",
        "paper ",
        "direct",
        "mapped",
        "numpy",
        "disk durable cold 4 KiB",
        "disk relaxed warm 1 MiB",
    ] {
        assert!(ended.stdout.lines().any(|line| line.starts_with(name)), "{}", ended.stdout);
    }
}

/// The figures in the line of a policy: seconds, and shares of a tool, of the oracle, the mean, the worst.
fn figures(told: &str, name: &str) -> Vec<f64> {
    let line = told.lines().find(|line| line.starts_with(name)).unwrap();
    line[name.len()..].split_whitespace().map(|figure| figure.parse().unwrap()).collect()
}

#[test]
fn a_kept_dictionary_knows_more_than_a_new_one() {
    let directory = tempfile::tempdir().unwrap();
    let earlier = directory.path().join("earlier.json");
    // Nothing is as the rule has it.
    let odd = trace().replace("\"torch\": 0.004", "\"torch\": 0.0001");
    fs::write(&earlier, &odd).unwrap();
    let adapting = |more: &[&str]| {
        let ended = simulate(&odd, more);
        let seconds = figures(&ended.stdout, "adapting")[0];
        (ended.stdout, seconds)
    };
    let (told, fresh) = adapting(&[]);
    assert!(!told.contains("kept"), "{told}");
    let (told, kept) = adapting(&["--after", earlier.to_str().unwrap()]);
    assert!(told.contains("\ndictionaries kept from 120 earlier steps\n"), "{told}");
    assert!(kept < fresh, "{kept} / {fresh}");
    let ended = simulate(&trace(), &["--after", "/nonexistent"]);
    assert!(ended.stderr.starts_with("error: can't read the trace (file: /nonexistent)"));
}

#[test]
fn a_longer_trace_has_all_phases_longer_and_what_is_learned_pays_longer() {
    let told = |more: &[&str]| simulate(&trace(), more).stdout;
    let (short, long) = (told(&[]), told(&["--longer", "20"]));
    assert!(long.starts_with("a machine\n2400 steps, goal w, phases: idle, busy\n"), "{long}");
    let of_oracle = |told: &str| figures(told, "adapting")[2];
    assert!(of_oracle(&long) > of_oracle(&short), "{short}\n{long}");
    assert_eq!(simulate(&trace(), &["--longer", "0"]).code, Some(2));
}

#[test]
fn another_order_is_the_same_work_for_whoever_never_learns() {
    let told = |more: &[&str]| simulate(&trace(), more).stdout;
    let (recorded, other) = (told(&[]), told(&["--order", "3"]));
    for name in ["direct", "buffered"] {
        assert_eq!(figures(&other, name), figures(&recorded, name));
    }
    assert_eq!(told(&["--order", "3"]), other);
}

#[test]
fn the_document_holds_shares_for_each_situation() {
    let ended = simulate(&trace(), &["--json", "--update-every", "50"]);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    let report: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(report["goal"], "w");
    let named = |list: &Value, name: &str| {
        let found = list.as_array().unwrap().iter().find(|one| one["name"] == name);
        found.unwrap().clone()
    };
    let mut situations = report["situations"].as_array().unwrap().iter();
    let small =
        situations.position(|one| one["writing"] == "durable" && one["size"] == 4096).unwrap();
    assert_eq!(report["situations"][small]["tool"], "buffered");
    // 30 steps of 2 ms at best; direct takes 1 ms in half of them, and 9 in the others.
    let direct = named(&report["policies"], "direct")["situations"][small].as_f64().unwrap();
    assert!((direct - 60.0 / 150.0).abs() < 1e-9, "{direct}");
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
            "error: a step is not as it must be (step: 0, file: TRACE): \"tape\" is no tool; choose \
             direct, buffered, mapped, torch or numpy",
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

/// 4,000 samples on four machines with two GPUs each, of which each caches a twentieth.
const CLUSTER: [&str; 12] = [
    "--samples",
    "4000",
    "--mean-bytes",
    "100KB",
    "--nodes",
    "4",
    "--gpus",
    "2",
    "--cache",
    "20MB",
    "--batch",
    "10",
];

fn simulate_cache(more: &[&str]) -> Ended {
    run(&[&["simulate", "cache"], &CLUSTER[..], more].concat())
}

#[test]
fn every_cache_policy_stands_beside_the_lower_bound() {
    let ended = simulate_cache(&["--peers", "--epochs", "4", "--seed", "3"]);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    let heading = "4000 samples, 381.47 MiB, all alike\n4 nodes with 2 GPUs, batches of 10, 50 \
                   iterations\ncache of 19.07 MiB a node (5.0 % of the dataset), read by all nodes\n\
                   mean of epochs 2 to 4, seed 3\n\npolicy";
    assert!(ended.stdout.starts_with(heading), "{}", ended.stdout);
    let row = |name: &str| {
        let line = ended.stdout.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    for name in ["lru", "never-evict", "nopfs", "lobster", "belady"] {
        assert_eq!(row(name).len(), 8, "{}", ended.stdout);
    }
    // The caches together hold a fifth, and Belady reads the rest.
    assert_eq!(row("lower bound")[2..], ["305.18", "MiB"]);
    assert_eq!(row("belady")[3..6], ["305.18", "MiB", "1.0000"]);
}

#[test]
fn the_document_holds_every_epoch_of_the_policy_asked_for() {
    let ended =
        simulate_cache(&["--json", "--policy", "belady", "--epochs", "3", "--spread", "0.5"]);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    let report: Value = serde_json::from_str(&ended.stdout).unwrap();
    let policies = report["policies"].as_array().unwrap();
    assert_eq!((policies.len(), policies[0]["policy"].as_str()), (1, Some("belady")));
    assert_eq!(policies[0]["epochs"].as_array().unwrap().len(), 3);
    assert_eq!(report["sizes_differ"], true);
    assert_eq!(policies[0]["epochs"][0]["backend_bytes"], report["bytes"]);
    let of_bound = policies[0]["of_bound"].as_f64().unwrap();
    assert!((1.0..1.05).contains(&of_bound), "{of_bound}");
}

#[test]
fn a_cluster_that_makes_no_sense_is_an_error_that_says_what_would() {
    for (arguments, code, error) in [
        (&["--nodes", "0"][..], 1, "error: 0 nodes can't be simulated; choose 1 to 4096\n"),
        (&["--epochs", "0"], 1, "error: 0 epochs can't be simulated; choose 1 to 1048575\n"),
        (
            &["--mean-bytes", "5GiB"],
            1,
            "error: samples of 5368709120 bytes can't be simulated; choose 1 to 4294967295\n",
        ),
        (
            &["--backend-bandwidth", "0"],
            1,
            "error: a backend bandwidth of 0 bytes a second moves nothing; choose at least 1\n",
        ),
        (
            &["--policy", "fifo"],
            2,
            "error: invalid value 'fifo' for '--policy <POLICY>': \"fifo\" is no policy; choose all, \
             lru, never-evict, nopfs, lobster or belady\n",
        ),
    ] {
        let given: Vec<_> = CLUSTER.chunks(2).filter(|pair| pair[0] != arguments[0]).collect();
        let ended = run(&[&["simulate", "cache"], given.concat().as_slice(), arguments].concat());
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(code), ""));
        assert!(ended.stderr.starts_with(error), "{}", ended.stderr);
    }
    let ended = run(&["simulate", "cache", "--cache", "1GiB"]);
    let error = "error: which dataset? give --samples and --mean-bytes, or --dataset imagenet-1k\n";
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(1), error));
}

/// Six tensors of 3 MB, a second apart, of which the second half gets smaller; 1 MB a second to disk.
fn profile() -> String {
    let tensor = |number: u32| {
        let encoded = if number < 3 { 3_000_000 } else { 1_000_000 };
        format!(
            r#"{{"name": "layer {number}", "bytes": 3000000, "encoded_bytes": {encoded}, "saved_at": {number}}}"#
        )
    };
    let needed = |number: u32| {
        let (at, tensor) = (2 * number, 5 - number);
        format!(r#"{{"tensor": {tensor}, "at": {at}, "until": {}}}"#, at + 2)
    };
    let [tensors, uses] = [
        (0..6).map(tensor).collect::<Vec<_>>().join(", "),
        (0..6).map(needed).collect::<Vec<_>>().join(", "),
    ];
    format!(
        r#"{{"version": 1, "tensors": [{tensors}], "uses": [{uses}],
           "forward_seconds": 6, "backward_seconds": 12,
           "disk": {{"write_bytes_per_second": 1e6, "read_bytes_per_second": 2e6,
                     "seconds_per_transfer": 0}},
           "codec": {{"encode_bytes_per_second": 1e9, "decode_bytes_per_second": 1e9}}}}"#
    )
}

fn simulate_activations(profile: &str, more: &[&str]) -> Ended {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("profile.json");
    fs::write(&file, profile).unwrap();
    let ended = run(&[&["simulate", "activations", file.to_str().unwrap()], more].concat());
    let stderr = ended.stderr.replace(file.to_str().unwrap(), "PROFILE");
    Ended { stderr, ..ended }
}

#[test]
fn a_step_is_explained_and_both_planners_stand_side_by_side() {
    let ended = simulate_activations(&profile(), &["--budget", "9MB"]);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    let text = &ended.stdout;
    assert!(text.starts_with("tensor         size  place           why\nlayer 0"), "{text}");
    let waits = |planner: &str| {
        let row = text.lines().rfind(|line| line.starts_with(planner)).unwrap();
        let cells: Vec<_> = row.split_whitespace().collect();
        cells[2].parse::<f64>().unwrap() + cells[3].parse::<f64>().unwrap()
    };
    assert!(waits("timeline") <= waits("paper"), "{text}");
    let paper = simulate_activations(&profile(), &["--budget", "9MB", "--planner", "paper"]);
    assert!(paper.stdout.contains("phase 1: among the first"), "{}", paper.stdout);
    assert!(paper.stdout.contains("\npaper: "), "{}", paper.stdout);
}

#[test]
fn the_document_holds_the_plan_and_what_happened_when() {
    let ended = simulate_activations(&profile(), &["--budget", "9MB", "--json"]);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    let report: Value = serde_json::from_str(&ended.stdout).unwrap();
    let plans = report["plans"].as_array().unwrap();
    assert_eq!((&plans[0]["plan"]["planner"], plans.len()), (&"timeline".into(), 2));
    assert_eq!(plans[0]["plan"]["choices"].as_array().unwrap().len(), 6);
    assert!(plans[0]["plan"]["predicted"]["peak_bytes"].as_u64() <= Some(9_000_000));
    assert_eq!(plans[0]["timeline"]["spans"][0]["doing"], "forward");
    assert_eq!(plans[0]["timeline"]["memory"][0][1], 3_000_000);
}

#[test]
fn the_step_is_drawn_with_every_lane_and_the_budget() {
    let directory = tempfile::tempdir().unwrap();
    let figure = directory.path().join("step.svg");
    let ended =
        simulate_activations(&profile(), &["--budget", "9MB", "--plot", figure.to_str().unwrap()]);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    let drawn = fs::read_to_string(&figure).unwrap();
    for text in ["compute", "writes", "reads", "memory", "budget 8.58 MiB"] {
        assert_eq!(drawn.matches(&format!(">{text}</text>")).count(), 2, "{text}: {drawn}");
    }
    assert!(drawn.contains("prefers-color-scheme: dark"));
    let ended =
        simulate_activations(&profile(), &["--budget", "9MB", "--plot", "/nonexistent/step.svg"]);
    assert!(ended.stderr.starts_with("error: can't write the figure"), "{}", ended.stderr);
}

#[test]
fn planners_are_compared_over_made_up_steps() {
    let ended = run(&["simulate", "activations", "--random", "4", "--seed", "5", "--json"]);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    let report: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!((&report["cases"], &report["worse"]), (&4.into(), &0.into()));
    let ended = run(&["simulate", "activations", "--random", "4"]);
    assert!(ended.stdout.starts_with("4 made-up steps of 2 to 96 tensors, seed 0\n"));
}

#[test]
fn a_step_that_can_not_be_planned_is_an_error_that_says_why() {
    for (bad, more, error) in [
        (
            "{".to_owned(),
            &["--budget", "1GB"][..],
            "error: this is no profile of activations (file: PROFILE): EOF",
        ),
        (
            profile().replace("\"tensor\": 5", "\"tensor\": 6"),
            &["--budget", "1GB"],
            "error: tensor 6 is used, and there are 6 (use: 0, file: PROFILE)\n",
        ),
        (
            profile(),
            &["--budget", "1MB"],
            "error: a budget of 976.56 KiB is too small for this step, which needs 2.86 MiB \
             (3000000 bytes) at one moment even if everything is offloaded; give at least that \
             (file: PROFILE)\n",
        ),
    ] {
        let ended = simulate_activations(&bad, more);
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), ""));
        assert!(ended.stderr.starts_with(error), "{}", ended.stderr);
    }
    let ended = simulate_activations(&profile(), &["--budget", "9MB", "--planner", "best"]);
    let error = "error: invalid value 'best' for '--planner <PLANNER>': \"best\" is no planner; \
                 choose \"timeline\" or \"paper\"\n";
    assert!(ended.stderr.starts_with(error), "{}", ended.stderr);
    let ended = simulate_activations(&profile(), &[]);
    assert_eq!(ended.code, Some(2));
    assert!(ended.stderr.contains("--budget <SIZE>"), "{}", ended.stderr);
    let ended = run(&["simulate", "activations", "/nonexistent", "--budget", "9MB"]);
    let error = "error: can't read the profile (file: /nonexistent): No such file or directory (os \
                 error 2)\n";
    assert_eq!(ended.stderr, error);
}
