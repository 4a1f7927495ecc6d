//! `tensorferry doctor` on the machine at hand, whatever it has.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;

use serde_json::Value;

use crate::{doctor_fails_on, ended, run, tensorferry};

/// Each thing looked at, in the order shown. Programs rely on the names.
const NAMES: [&str; 14] = [
    "kernel",
    "io_uring",
    "direct I/O",
    "file system",
    "memory",
    "memory lock",
    "huge pages",
    "cores",
    "cpu features",
    "torch",
    "CUDA driver",
    "cuFile",
    "UCX",
    "etcd",
];

/// Belongs to nobody, on every Linux.
const NOBODY: u32 = 65534;

#[test]
fn the_text_shows_every_finding_and_what_will_be_used() {
    let directory = tempfile::tempdir().unwrap();
    let ended = run(&["doctor", "--path", directory.path().to_str().unwrap()]);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    for name in NAMES {
        let column = |line: &str| line.get(11..).is_some_and(|rest| rest.starts_with(name));
        assert!(ended.stdout.lines().any(column), "{name} is not in\n{}", ended.stdout);
    }
    assert!(ended.stdout.contains("\nengine: "), "{}", ended.stdout);
    assert!(ended.stdout.contains("has been tested on GPU hardware"), "{}", ended.stdout);
    assert!(!ended.stdout.contains('\x1b'), "colours go to terminals only");
    let longest = ended.stdout.lines().map(|line| line.chars().count()).max();
    assert!(longest <= Some(96), "{}", ended.stdout);
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0, "the probe left a file");
}

#[test]
fn the_document_keeps_its_names() {
    let ended = run(&["doctor", "--json"]);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    let report: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(report["schema"], 1);
    assert_eq!(report["version"], env!("CARGO_PKG_VERSION"));
    for choice in ["engine", "files", "codec"] {
        assert!(report["summary"][choice]["name"].is_string(), "{report}");
    }
    let findings = report["findings"].as_array().unwrap();
    let names: Vec<_> = findings.iter().map(|finding| finding["name"].as_str().unwrap()).collect();
    assert_eq!(names, NAMES);
    for finding in findings {
        let status = finding["status"].as_str().unwrap();
        assert!(["ok", "limited", "missing", "unused", "error"].contains(&status), "{finding}");
        assert!(!finding["value"].as_str().unwrap().is_empty(), "{finding}");
        assert!(!finding["meaning"].as_str().unwrap().is_empty(), "{finding}");
        assert!(status != "missing" || finding["remedy"].is_string(), "{finding}");
        assert!(finding["facts"].is_object(), "{finding}");
    }
}

#[test]
fn a_path_that_does_not_exist_is_an_error() {
    let stderr = doctor_fails_on("/nonexistent/scratch".as_ref());
    let expected = "error: can't look at --path (path: /nonexistent/scratch): \
                    No such file or directory (os error 2)\n";
    assert_eq!(stderr, expected);
}

#[test]
fn a_path_that_is_a_file_is_an_error() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let expected = format!(
        "error: --path is not a directory; name the one where checkpoints or data will lie \
         (path: {})\n",
        file.path().display()
    );
    assert_eq!(doctor_fails_on(file.path()), expected);
}

#[test]
fn an_empty_path_is_a_usage_error() {
    let ended = run(&["doctor", "--path", ""]);
    let expected = "error: a value is required for '--path <DIRECTORY>' but none was supplied\n";
    assert!(ended.stderr.starts_with(expected), "{ended:?}");
    assert_eq!(ended.code, Some(2));
}

#[test]
fn a_path_behind_a_closed_directory_is_an_error() {
    let outer = tempfile::tempdir().unwrap();
    let inner = outer.path().join("inner");
    fs::create_dir(&inner).unwrap();
    fs::set_permissions(outer.path(), fs::Permissions::from_mode(0o000)).unwrap();
    let mut command = tensorferry(&["doctor", "--path", inner.to_str().unwrap()]);
    if rustix::process::geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY); // Nothing is closed to root.
    }
    let output = command.output();
    fs::set_permissions(outer.path(), fs::Permissions::from_mode(0o700)).unwrap();
    let Ok(output) = output else {
        return; // The build directory itself is closed to nobody.
    };
    let expected = format!(
        "error: can't look at --path (path: {}): Permission denied (os error 13)\n",
        inner.display()
    );
    assert_eq!(String::from_utf8(output.stderr).unwrap(), expected);
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn a_directory_that_takes_no_files_is_a_finding_and_not_a_failure() {
    // Not even root can create a file there.
    let ended = run(&["doctor", "--json", "--path", "/sys"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let report: Value = serde_json::from_str(&ended.stdout).unwrap();
    let direct = &report["findings"][2];
    assert_eq!(direct["status"], "error");
    let value = direct["value"].as_str().unwrap();
    assert!(value.starts_with("no file can be created there: "), "{value}");
    assert_eq!(report["summary"]["files"]["name"], "unknown");
}

#[test]
fn a_file_system_in_memory_is_said_to_be_one() {
    if !std::path::Path::new("/dev/shm").is_dir() {
        return;
    }
    let ended = run(&["doctor", "--path", "/dev/shm"]);
    assert!(ended.stdout.contains("Lies in memory"), "{}", ended.stdout);
}

#[test]
fn python_is_looked_for_on_the_search_path() {
    let directory = tempfile::tempdir().unwrap();
    let python = directory.path().join("python3");
    let answer = r#"{"python":"3.12.0","torch":"9.9.9","cuda_built":"13.0","devices":0}"#;
    fs::write(&python, format!("#!/bin/sh\necho '{answer}'\n")).unwrap();
    fs::set_permissions(&python, fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = tensorferry(&["doctor"]);
    command.env("PATH", directory.path());
    let shown = ended(command).stdout;
    let expected = "9.9.9 on Python 3.12.0, built for CUDA 13.0, 0 GPUs";
    assert!(shown.contains(expected), "{shown}");
}
