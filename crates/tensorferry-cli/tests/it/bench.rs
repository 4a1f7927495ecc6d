//! `tensorferry bench`, as short as it gets: that it runs, what it prints, and what it refuses. How
//! fast anything is, no test says.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::Value;

use crate::{Ended, ended, run, tensorferry};

/// Bytes a second that the pretended fio reports, for reads and for writes.
const RIVAL: [f64; 2] = [4e9, 2e9];

/// Runs `bench io` on `directory`, as short as it gets, with programs from `path` only.
fn bench_io(directory: &Path, path: &Path, more: &[&str]) -> Ended {
    let mut command = tensorferry(&["bench", "io", "--backend", "threads", "--size", "64MiB"]);
    command.args(["--seconds", "0.05", "--samples", "1", "--path"]).arg(directory).args(more);
    command.env("PATH", path);
    ended(command)
}

/// The document, from a command that went well and said nothing else.
fn document(ended: &Ended) -> Value {
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{}", ended.stdout);
    serde_json::from_str(&ended.stdout).unwrap()
}

fn assert_is_machine(machine: &Value) {
    assert!(machine["processor"].is_string(), "{machine}");
    assert!(machine["processors"].as_u64() > Some(0), "{machine}");
    assert_eq!(machine["tensorferry"], env!("CARGO_PKG_VERSION"));
}

/// A directory with a program called `fio` that does nothing but report.
fn pretended_fio() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("fio");
    let [read, write] = RIVAL;
    let report = format!(
        r#"{{"fio version":"fio-9.9","jobs":[{{"read":{{"bw_bytes":{read}}},"write":{{"bw_bytes":{write}}}}}]}}"#
    );
    let script = format!(
        "#!/bin/sh\ncase \" $* \" in\n*' --version '*) echo fio-9.9 ;;\n*) echo '{report}' ;;\nesac\n"
    );
    fs::write(&file, script).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    directory
}

#[test]
fn io_alone_measures_every_case_and_leaves_no_file() {
    let directory = tempfile::tempdir().unwrap();
    let ended = bench_io(directory.path(), "/nonexistent".as_ref(), &["--alone", "--json"]);
    let report = document(&ended);
    assert_is_machine(&report["machine"]);
    assert_eq!(report["engine"]["backend"], "threads");
    assert!(report["fio"].is_null(), "{report}");
    let rows = report["rows"].as_array().unwrap();
    assert!(!rows.is_empty());
    for row in rows {
        assert!(row["ours"]["median"].as_f64() > Some(0.0), "{row}");
        assert_eq!(row["ours"]["raw"].as_array().unwrap().len(), 1, "{row}");
    }
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0, "the benchmark left a file");
}

#[test]
fn io_stands_beside_what_fio_reports() {
    let (directory, programs) = (tempfile::tempdir().unwrap(), pretended_fio());
    let report = document(&bench_io(directory.path(), programs.path(), &["--json"]));
    assert!(report.to_string().contains("fio-9.9"), "{report}");
    for row in report["rows"].as_array().unwrap() {
        let rival = RIVAL[usize::from(row["case"]["write"].as_bool().unwrap())];
        let expected = row["ours"]["median"].as_f64().unwrap() / rival;
        let ratio = row["ratio"].as_f64().unwrap();
        assert!((ratio / expected - 1.0).abs() < 1e-9, "{row}");
    }
}

#[test]
fn io_says_so_when_there_is_no_rival() {
    let directory = tempfile::tempdir().unwrap();
    let ended = bench_io(directory.path(), "/nonexistent".as_ref(), &[]);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    assert!(ended.stdout.contains("engine: threads (asked for)\n"), "{}", ended.stdout);
    assert!(ended.stdout.contains("rival: none"), "{}", ended.stdout);
}

#[test]
fn codecs_are_measured_at_the_size_asked_for() {
    let ended = run(&["bench", "codec", "--samples", "1", "--size", "64KiB", "--json"]);
    let report = document(&ended);
    assert_is_machine(&report["machine"]);
    assert_eq!(report["rounds"], 1);
    let rows = report["rows"].as_array().unwrap();
    assert_eq!((&rows[0]["codec"], &rows[0]["ratio_to_copy"]), (&"copy".into(), &1.0.into()));
    for row in rows {
        assert_eq!(row["input_bytes"], 64 << 10, "{row}");
        assert!(row["gb_per_s"]["median"].as_f64() > Some(0.0), "{row}");
        assert_eq!(row["gb_per_s"]["raw"].as_array().unwrap().len(), 1, "{row}");
    }
}

#[test]
fn the_table_of_the_codecs_names_machine_and_columns() {
    let ended = run(&["bench", "codec", "--samples", "1", "--size", "4KiB"]);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    let lines: Vec<_> = ended.stdout.lines().collect();
    assert!(lines[0].contains(" processors, Linux "), "{}", ended.stdout);
    assert_eq!(lines[1], "codecs, one thread, GB/s of input, median of 1 rounds");
    assert!(lines[3].starts_with("4 KiB "), "{}", ended.stdout);
    assert!(lines.iter().any(|line| line.starts_with("crc32c      sum         crc-fast")));
}

#[test]
fn arguments_that_make_no_sense_are_errors_that_say_what_would() {
    for (args, error) in [
        (&["io", "--seconds", "-1"][..], "--seconds is -1, it must be a length of time"),
        (&["io", "--seconds", "nan"], "--seconds is NaN, it must be a length of time"),
        (&["io", "--seconds", "0"], "a benchmark needs at least one sample of some length"),
        (&["io", "--samples", "0"], "a benchmark needs at least one sample of some length"),
        (&["io", "--size", "1MiB"], "a file of 1 MiB is too small; 64 MiB is the least"),
        (
            &["io", "--path", "/nonexistent"],
            "the directory to measure does not exist (directory: /nonexistent)",
        ),
        (&["codec", "--samples", "0"], "a benchmark needs at least one sample"),
        (&["codec", "--size", "1"], "--size is 1 B, it must be from 4 KiB to 4 GiB"),
        (&["codec", "--size", "1TiB"], "--size is 1 TiB, it must be from 4 KiB to 4 GiB"),
    ] {
        let ended = run(&[&["bench"], args].concat());
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), ""), "{args:?}");
        assert_eq!(ended.stderr, format!("error: {error}\n"), "{args:?}");
    }
}

#[test]
fn arguments_that_cannot_be_read_are_usage_errors_that_name_them() {
    let not_a_size = "\"lots\" is not a size; write a whole number of bytes or a number with a unit \
                      such as \"8GiB\", \"500MB\" or \"1.5TiB\"";
    for (args, error) in [
        (
            &["io", "--size", "lots"][..],
            format!("invalid value 'lots' for '--size <SIZE>': {not_a_size}"),
        ),
        (
            &["io", "--backend", "tapes"],
            "invalid value 'tapes' for '--backend <BACKEND>': \"tapes\" is no backend; choose \
             auto, ring, threads or memory"
                .to_owned(),
        ),
        (
            &["codec", "--size", "lots"],
            format!("invalid value 'lots' for '--size <SIZE>': {not_a_size}"),
        ),
    ] {
        let ended = run(&[&["bench"], args].concat());
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{args:?}");
        assert!(ended.stderr.starts_with(&format!("error: {error}\n")), "{}", ended.stderr);
    }
}
