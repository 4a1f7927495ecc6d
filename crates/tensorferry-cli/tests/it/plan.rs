//! `tensorferry plan`: what it prints, and what it refuses.

use std::fs;

use serde_json::Value;

use crate::{Ended, run};

/// A table that takes 8 s to copy and is read in a moment, and three layers that are quick on the device.
fn profile() -> String {
    let layer = |name: &str, bytes: u64, direct: f64| {
        let read = if direct < 2.0 { 0 } else { bytes };
        format!(
            r#"{{"name": "{name}", "parameter_bytes": {bytes}, "gradient_bytes": {bytes},
               "forward_seconds": 1, "backward_seconds": 2,
               "direct_forward_seconds": {direct}, "direct_backward_seconds": {},
               "direct_forward_bytes": {read}, "direct_backward_bytes": {read},
               "direct_gradient_seconds": 1, "update_seconds": 0.5}}"#,
            direct + 1.0
        )
    };
    let layers = [
        layer("table", 8_000_000, 1.0),
        layer("first", 2_000_000, 6.0),
        layer("second", 2_000_000, 6.0),
        layer("third", 2_000_000, 6.0),
    ];
    let direction = r#"{"bytes_per_second": 1e6, "latency_seconds": 0}"#;
    format!(
        r#"{{"version": 1, "source": "made up", "layers": [{}], "work_bytes": 1000000,
           "link": {{"inwards": {direction}, "outwards": {direction},
                     "direct_slowdown": 1, "direct_shares": true}}}}"#,
        layers.join(", ")
    )
}

fn plan(profile: &str, more: &[&str]) -> Ended {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("profile.json");
    fs::write(&file, profile).unwrap();
    let ended = run(&[&["plan", "parameters", file.to_str().unwrap()], more].concat());
    let stderr = ended.stderr.replace(file.to_str().unwrap(), "PROFILE");
    Ended { stderr, ..ended }
}

#[test]
fn a_plan_says_why_and_stands_beside_copying_everything() {
    let ended = plan(&profile(), &["--budget", "30MB"]);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    let text = &ended.stdout;
    assert!(text.starts_with("made up\n\nlayer   parameters  mode  gradient  why\n"), "{text}");
    let table = text.lines().find(|line| line.starts_with("table")).unwrap();
    assert!(table.contains("  DHA   device    GFGB takes 8.000 s longer"), "{table}");
    let seconds = |planner: &str| {
        let row = text.lines().rfind(|line| line.starts_with(planner)).unwrap();
        row.trim_start_matches(planner).split_whitespace().next().unwrap().parse::<f64>().unwrap()
    };
    assert!(seconds("exact") <= seconds("paper"), "{text}");
    assert!(seconds("exact") < seconds("all copied"), "{text}");
    let copy = plan(&profile(), &["--budget", "30MB", "--planner", "copy"]);
    assert!(copy.stdout.contains("\ncopy: 4 GFGB"), "{}", copy.stdout);
}

#[test]
fn less_reserve_leaves_fewer_gradients_on_the_device() {
    // A share, and bytes.
    for reserve in ["0.3", "4200kB"] {
        let more = ["--budget", "30MB", "--gradient-reserve", reserve, "--json"];
        let ended = plan(&profile(), &more);
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
        let report: Value = serde_json::from_str(&ended.stdout).unwrap();
        let choices = report["plan"]["choices"].as_array().unwrap();
        let gradients: Vec<_> = choices.iter().map(|choice| choice["gradient"].as_str()).collect();
        assert_eq!(gradients, [Some("host"), Some("host"), Some("device"), Some("device")]);
        assert_eq!(report["plan"]["gap_seconds"], 0.0);
        assert_eq!(report["timeline"]["spans"][0]["doing"]["forward"], 0);
        assert!(report["all_copied"]["predicted"]["seconds"].as_f64().is_some());
    }
}

#[test]
fn the_iteration_is_drawn_with_every_lane_and_the_budget() {
    let directory = tempfile::tempdir().unwrap();
    let figure = directory.path().join("iteration.svg");
    let ended = plan(&profile(), &["--budget", "30MB", "--plot", figure.to_str().unwrap()]);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    let drawn = fs::read_to_string(&figure).unwrap();
    for text in ["compute", "link in", "link out", "update", "budget 28.61 MiB"] {
        assert_eq!(drawn.matches(&format!(">{text}</text>")).count(), 2, "{text}: {drawn}");
    }
    assert!(drawn.contains(">made up</text>"), "{drawn}");
}

#[test]
fn a_modelled_network_is_said_to_be_modelled_and_its_profile_can_be_kept() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("profile.json");
    let args = ["plan", "parameters", "--model", "bert-base", "--on", "v100-pcie3"];
    let ended = run(&[&args[..], &["--save-profile", file.to_str().unwrap()]].concat());
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    let source = "modelled, not measured: bert-base, batches of 8 with 512 tokens, on v100-pcie3\n";
    assert!(ended.stdout.starts_with(source), "{}", ended.stdout);
    let again = run(&["plan", "parameters", file.to_str().unwrap(), "--budget", "32GiB"]);
    assert_eq!(again.stdout, ended.stdout);
}

#[test]
fn planners_are_compared_with_all_plans_over_made_up_iterations() {
    let args = ["plan", "parameters", "--random", "20", "--seed", "5", "--layers", "5"];
    let ended = run(&[&args[..], &["--json"]].concat());
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    let report: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!((&report["best"], &report["slower_than_paper"]), (&20.into(), &0.into()));
    let ended = run(&args);
    let heading = "20 made-up iterations of 2 to 5 layers, seed 5\n\nbeside all plans there \
                   are: as fast as the best in 20, slower in 0\n";
    assert!(ended.stdout.starts_with(heading), "{}", ended.stdout);
    let ended = run(&[&args[..], &["--time"]].concat());
    assert!(ended.stdout.starts_with("the exact planner, 5 layers: "), "{}", ended.stdout);
}

#[test]
fn a_plan_is_shown_also_where_the_papers_planner_has_none() {
    let ended = plan(&profile(), &["--budget", "1MB"]);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    assert!(ended.stdout.contains("\nexact: 0 GFGB (0 B), 4 DHA"), "{}", ended.stdout);
    assert!(ended.stdout.contains("\npaper         does not fit\n"), "{}", ended.stdout);
    let ended = plan(&profile(), &["--budget", "1MB", "--json"]);
    let report: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert!(report["paper"].is_null() && report["plan"]["predicted"]["device_bytes"] == 1_000_000);
    let fits = plan(&profile(), &["--budget", "15MB", "--json"]);
    let report: Value = serde_json::from_str(&fits.stdout).unwrap();
    assert_eq!(report["paper"]["fits"], true);
}

#[test]
fn the_papers_figures_are_drawn_from_modelled_profiles() {
    let directory = tempfile::tempdir().unwrap();
    let folder = directory.path().join("figures");
    let ended = run(&["plan", "parameters", "--figures", folder.to_str().unwrap()]);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    for number in ["9", "10a", "10b", "11", "12", "13a", "13b", "14a", "14b"] {
        let drawn = fs::read_to_string(folder.join(format!("figure-{number}.svg"))).unwrap();
        assert!(drawn.contains(">modelled, not measured; "), "{number}");
        assert!(drawn.contains(">the paper: ") && drawn.contains(">here: "), "{number}");
        assert!(ended.stdout.contains(&format!("The paper's figure {number}: ")));
    }
}

#[test]
fn an_iteration_that_can_not_be_planned_is_an_error_that_says_why() {
    for (bad, more, error) in [
        (
            "{".to_owned(),
            &["--budget", "1GB"][..],
            "error: this is no profile of parameters (file: PROFILE): EOF",
        ),
        (
            profile(),
            &["--budget", "900kB"],
            "error: a budget of 878.91 KiB is too small for this iteration, which needs 976.56 KiB \
             (1000000 bytes) on the device: 976.56 KiB of work; give at least that, or make the \
             batch smaller (file: PROFILE)\n",
        ),
        (
            profile(),
            &["--budget", "1MB", "--planner", "paper"],
            "error: a budget of 976.56 KiB is too small for this iteration, which needs 14.31 MiB \
             (15000000 bytes) on the device: 976.56 KiB of work, and the gradients that stay; give \
             at least that, or reserve less for gradients (file: PROFILE)\n",
        ),
        (
            profile(),
            &["--budget", "1GB", "--gradient-reserve", "2"],
            "error: a gradient reserve of 2; write a share from 0 to 1\n",
        ),
    ] {
        let ended = plan(&bad, more);
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), ""));
        assert!(ended.stderr.starts_with(error), "{}", ended.stderr);
    }
    let ended = plan(&profile(), &[]);
    assert_eq!(ended.code, Some(2));
    assert!(ended.stderr.contains("--budget <SIZE>"), "{}", ended.stderr);
    let ended = run(&["plan", "parameters", "--model", "bert", "--on", "v100-pcie3"]);
    assert!(ended.stderr.starts_with("error: no network \"bert\"; choose one of "));
    let ended = run(&["plan", "parameters", "/nonexistent", "--budget", "9MB"]);
    let error = "error: can't read the profile (file: /nonexistent): No such file or directory (os \
                 error 2)\n";
    assert_eq!(ended.stderr, error);
}
