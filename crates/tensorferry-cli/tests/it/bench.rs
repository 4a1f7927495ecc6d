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

/// Puts a program into a directory.
fn add_program(directory: &Path, name: &str, script: &str) {
    let file = directory.join(name);
    fs::write(&file, script).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
}

/// A directory with a program called `fio` that does nothing but report.
fn pretended_fio() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let [read, write] = RIVAL;
    let report = format!(
        r#"{{"fio version":"fio-9.9","jobs":[{{"read":{{"bw_bytes":{read}}},"write":{{"bw_bytes":{write}}}}}]}}"#
    );
    let script = format!(
        "#!/bin/sh\ncase \" $* \" in\n*' --version '*) echo fio-9.9 ;;\n*) echo '{report}' ;;\nesac\n"
    );
    add_program(directory.path(), "fio", &script);
    directory
}

/// A worker that measures nothing: saves take 0.5 s, what torch does takes 1 s, and safetensors is
/// not installed. It leaves its directory behind, as one does that is killed.
const PRETENDED_WORKER: &str = r#"#!/bin/sh
directory="$5"
if [ "$4" = --under ]; then directory="$5/.tensorferry-bench-x"; /bin/mkdir "$directory"; fi
echo '{"directory":"'"$directory"'","files":{},"versions":{"python":"3.99","torch":"9.8"}}'
while read -r line; do
    case "$line" in
    *safetensors*) echo '{"error":"ModuleNotFoundError: no safetensors"}' ;;
    *count*) echo '{"seconds":2,"count":1000000}' ;;
    *torch*) echo '{"seconds":1,"cpu_seconds":0.75,"bytes":1048576,"extra_bytes":3145728}' ;;
    *async*) echo '{"seconds":0.5,"total_seconds":4.5,"bytes":1048576}' ;;
    *) echo '{"seconds":0.5,"cpu_seconds":0.25,"bytes":1048576,"extra_bytes":1048576}' ;;
    esac
done
"#;

/// Runs `bench checkpoint` on a small state, with programs from `programs` only.
fn bench_checkpoint(directory: &Path, programs: &Path, more: &[&str]) -> Ended {
    let mut command = tensorferry(&["bench", "checkpoint", "--size", "1MiB", "--samples", "2"]);
    command.arg("--path").arg(directory).args(more).env("PATH", programs);
    ended(command)
}

/// The rows of a contest, by name.
fn rows(report: &Value, contest: &str) -> serde_json::Map<String, Value> {
    let tables = report["measured"][0]["tables"].as_array().unwrap();
    let table = tables.iter().find(|table| table["name"] == contest).unwrap();
    let named = |row: &Value| (row["name"].as_str().unwrap().to_owned(), row.clone());
    table["rows"].as_array().unwrap().iter().map(named).collect()
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
fn checkpoints_stand_beside_every_rival_that_is_there() {
    let (directory, programs) = (tempfile::tempdir().unwrap(), pretended_fio());
    add_program(programs.path(), "python3", PRETENDED_WORKER);
    let report = document(&bench_checkpoint(directory.path(), programs.path(), &["--json"]));
    assert_is_machine(&report["machine"]);
    assert_eq!(report["versions"]["torch"], "9.8");
    assert!(report["fio"].as_str().unwrap().starts_with("fio-9.9"), "{report}");
    let saved = rows(&report, "save, synced");
    assert_eq!(saved["tensorferry"]["rate"]["raw"].as_array().unwrap().len(), 2);
    assert_eq!(saved["torch.save"]["ratio"], 2.0);
    assert_eq!(saved["torch.save"]["cpu_seconds"]["median"], 0.75);
    assert_eq!(saved["torch.save"]["extra_bytes"], 3 << 20);
    assert_eq!(saved["fio, new file"]["rate"]["median"], RIVAL[1]);
    assert_eq!(saved["safetensors"]["absent"], "ModuleNotFoundError: no safetensors");
    assert!(saved["safetensors"]["rate"].is_null());
    let counted = rows(&report, "a Python loop meanwhile");
    assert_eq!(counted["alone"]["rate"]["median"], 500_000.0);
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0, "something was left behind");
}

#[test]
fn the_table_and_the_figure_of_checkpoints_name_everybody() {
    let (directory, programs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    add_program(programs.path(), "python3", PRETENDED_WORKER);
    let figure = programs.path().join("figure.svg");
    let plot = ["--plot", figure.to_str().unwrap()];
    let ended = bench_checkpoint(directory.path(), programs.path(), &plot);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    let drawing = fs::read_to_string(&figure).unwrap();
    for text in [
        "save, synced",
        "tensorferry",
        "torch.save",
        "absent: ModuleNotFoundError: no safetensors",
        "absent: install fio to compare; Debian package: fio",
    ] {
        assert!(ended.stdout.contains(text), "{text}: {}", ended.stdout);
        assert!(drawing.contains(text), "{text}: {drawing}");
    }
    assert!(ended.stdout.contains("1 MiB in 16 tensors, medians of 2, samples in turn\n"));
    assert!(ended.stdout.contains("(the whole save: 4.50 s)\n"), "{}", ended.stdout);
    assert!(ended.stdout.lines().all(|line| line.trim_end() == line), "{}", ended.stdout);
}

#[test]
fn a_python_that_cannot_measure_is_an_error_that_says_what_to_install() {
    let install = "this Python can't measure; from a clone: pip install torch ./python ./benches (python: python3)";
    for (script, error) in [
        (
            None,
            "can't run Python; install Python 3.11 or newer, torch and tensorferry (python: \
             python3): No such file or directory (os error 2)"
                .to_owned(),
        ),
        (
            Some("#!/bin/sh\necho 'No module named tensorferry' >&2\nexit 1\n"),
            format!("{install}: Python ended early: No module named tensorferry"),
        ),
        (Some("#!/bin/sh\nexit 3\n"), format!("{install}: Python ended early: exit status: 3")),
        (
            Some(
                "#!/bin/sh\necho '{\"directory\":\"/x\",\"files\":{},\"versions\":{\"torch\":null}}'\n",
            ),
            "torch is missing; pip install torch (python: python3)".to_owned(),
        ),
    ] {
        let (directory, programs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        if let Some(script) = script {
            add_program(programs.path(), "python3", script);
        }
        let ended = bench_checkpoint(directory.path(), programs.path(), &[]);
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), ""), "{script:?}");
        assert_eq!(ended.stderr, format!("error: {error}\n"), "{script:?}");
    }
}

#[test]
fn a_worker_that_dies_in_between_ends_the_run_and_leaves_nothing() {
    let (directory, programs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let dying =
        PRETENDED_WORKER.replace("while read -r line; do", "read -r line\nexit 7\nif true; then");
    add_program(programs.path(), "python3", &dying.replace("\ndone\n", "\nfi\n"));
    let ended = bench_checkpoint(directory.path(), programs.path(), &[]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), ""));
    let error = "error: Python ended early (case: ferry.save): exit status: 7\n";
    assert_eq!(ended.stderr, error);
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0, "something was left behind");
}

/// With the interpreter that the build uses, where it has torch and the package is built.
#[test]
fn a_tiny_state_is_saved_and_loaded_by_real_rivals() {
    let Some(python) = std::env::var_os("PYO3_PYTHON") else { return };
    let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../python");
    let mut probe = std::process::Command::new(&python);
    probe.args(["-c", "import torch, tensorferry"]).env("PYTHONPATH", &package);
    if !probe.output().is_ok_and(|output| output.status.success()) {
        return;
    }
    let (directory, programs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let python = Path::new(&python).display();
    let package = package.display();
    let script = format!("#!/bin/sh\nPYTHONPATH='{package}' exec '{python}' \"$@\"\n");
    add_program(programs.path(), "python3", &script);
    let more = ["--samples", "1", "--no-memory", "--json"];
    let mut command = tensorferry(&["bench", "checkpoint", "--size", "1MiB", "--path"]);
    command.arg(directory.path()).args(more).env("PATH", programs.path());
    let report = document(&ended(command));
    for (contest, rival) in
        [("save, synced", "torch.save"), ("load from the page cache", "torch.load")]
    {
        let row = &rows(&report, contest)[rival];
        assert!(row["rate"]["median"].as_f64() > Some(0.0), "{row}");
        assert!(row["cpu_seconds"]["median"].as_f64() > Some(0.0), "{row}");
    }
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0, "something was left behind");
}

/// A benchmark of loaders that measures nothing. It leaves its directory behind, as one does that is
/// killed.
const PRETENDED_LOADERS: &str = r#"#!/bin/sh
directory="$5/.tensorferry-bench-x"
/bin/mkdir "$directory"
echo '{"hello":{"directory":"'"$directory"'","versions":{"python":"3.99","torch":"9.8","dali":null}}}'
echo '{"step":{"what":"'"$*"'","done":0.5}}'
echo '{"table":{"name":"images","note":"JPEG","absent":null,
"measures":[{"name":"images","unit":"samples_per_second","better":"more"},
{"name":"CPU an image","unit":"seconds","better":"less"}],
"rows":[{"name":"tensorferry","role":"ours","absent":null,
"values":{"images":[900,1100,1000],"CPU an image":[0.002,0.002,0.002]}},
{"name":"torch DataLoader","role":"rival","absent":null,
"values":{"images":[500],"CPU an image":[0.004]}},
{"name":"DALI","role":"rival","absent":"not installed: no module nvidia","values":{}}]}}' | /bin/tr -d '\n'
echo
echo '{"table":{"name":"consumers","note":"","measures":[],"rows":[],"absent":"pillow is not installed"}}'
echo '{"end":{}}'
"#;

/// Runs `bench data` with programs from `programs` only.
fn bench_data(directory: &Path, programs: &Path, more: &[&str]) -> Ended {
    let mut command = tensorferry(&["bench", "data", "--path"]);
    command.arg(directory).args(more).env("PATH", programs);
    ended(command)
}

#[test]
fn loaders_stand_beside_every_rival_that_is_there() {
    let (directory, programs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    add_program(programs.path(), "python3", PRETENDED_LOADERS);
    let report = document(&bench_data(directory.path(), programs.path(), &["--json"]));
    assert_is_machine(&report["machine"]);
    assert_eq!((&report["set"], &report["versions"]["torch"]), (&"quick".into(), &"9.8".into()));
    let rows = report["tables"][0]["rows"].as_array().unwrap();
    let [speed, cost] = [0, 1].map(|place| &rows[1]["cells"][place]["ratio"]);
    assert_eq!((speed, cost), (&2.0.into(), &0.5.into()));
    let samples = &rows[0]["cells"][0]["samples"];
    assert_eq!(samples["raw"], serde_json::json!([900.0, 1100.0, 1000.0]));
    assert_eq!((&samples["median"], &samples["lower_quartile"]), (&1000.0.into(), &950.0.into()));
    assert_eq!(rows[2]["absent"], "not installed: no module nvidia");
    assert!(rows[2]["cells"][0].is_null());
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0, "something was left behind");
}

#[test]
fn the_table_and_the_figure_of_loaders_name_everybody() {
    let (directory, programs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    add_program(programs.path(), "python3", PRETENDED_LOADERS);
    let figure = programs.path().join("figure.svg");
    let plot = ["--plot", figure.to_str().unwrap()];
    let ended = bench_data(directory.path(), programs.path(), &plot);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    let drawing = fs::read_to_string(&figure).unwrap();
    for text in [
        "dali not installed",
        "images",
        "tensorferry",
        "1000/s",
        "4.00 ms",
        "torch DataLoader",
        "absent: not installed: no module nvidia",
        "absent: pillow is not installed",
    ] {
        assert!(ended.stdout.contains(text), "{text}: {}", ended.stdout);
        assert!(drawing.contains(text), "{text}: {drawing}");
    }
    assert!(ended.stdout.contains("0.50 x"), "{}", ended.stdout);
    assert!(ended.stdout.lines().all(|line| line.trim_end() == line), "{}", ended.stdout);
}

#[test]
fn python_is_told_which_loads_to_measure() {
    let (directory, programs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    add_program(programs.path(), "python3", "#!/bin/sh\necho \"$@\" >&2\nexit 1\n");
    let more = ["--set", "full", "--only", "slow", "--only", "arrays"];
    let ended = bench_data(directory.path(), programs.path(), &more);
    let path = directory.path().display();
    let told = format!("-P -m tensorferry_bench.data --path {path} --set full --only slow");
    assert!(ended.stderr.ends_with(&format!("{told} --only arrays\n")), "{}", ended.stderr);
    assert_eq!(ended.code, Some(1));
}

#[test]
fn a_benchmark_of_loaders_that_dies_in_between_is_an_error_and_leaves_nothing() {
    let (directory, programs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let dying = PRETENDED_LOADERS.replace("echo '{\"end\":{}}'", "echo 'it broke' >&2; exit 7");
    add_program(programs.path(), "python3", &dying);
    let ended = bench_data(directory.path(), programs.path(), &[]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), ""));
    assert_eq!(ended.stderr, "error: Python ended early: it broke\n");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0, "something was left behind");
}

/// A benchmark of activations that measures nothing.
const PRETENDED_TRAINING: &str = r#"#!/bin/sh
echo '{"hello":{"directory":"'"$5"'","versions":{"python":"3.99","torch":"9.8"}}}'
echo '{"table":{"name":"mlp","note":"deep","absent":null,
"measures":[{"name":"step","unit":"seconds","better":"less"}],
"findings":[{"what":"ours / plain","value":1.04,"aim":"at most 1.10","met":true},
{"what":"by hand / ours","value":1.2,"aim":"at least 1.30","met":false},
{"what":"memory","value":0.3,"aim":null,"met":null}],
"rows":[{"name":"tensorferry","role":"ours","absent":null,"values":{"step":[2.6]}},
{"name":"plain training","role":"limit","absent":null,"values":{"step":[2.5]}}]}}' | /bin/tr -d '\n'
echo
echo '{"curves":{"name":"loss of each step","note":"noisy","across":"steps","up":"loss",
"curves":[{"name":"half","role":"ours","values":[2.0,1.0,0.5]}]}}' | /bin/tr -d '\n'
echo
echo '{"end":{}}'
"#;

#[test]
fn training_is_told_with_what_it_was_measured_for_and_its_losses_are_drawn() {
    let (directory, programs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    add_program(programs.path(), "python3", PRETENDED_TRAINING);
    let figure = programs.path().join("loss.svg");
    let mut command = tensorferry(&["bench", "activations", "--path"]);
    command.arg(directory.path()).env("PATH", programs.path());
    command.args(["--plot-loss", figure.to_str().unwrap()]);
    let ended = ended(command);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    for text in [
        "set: small",
        "- ours / plain: 1.04 (aim: at most 1.10: met)",
        "- by hand / ours: 1.20 (aim: at least 1.30: missed)",
        "- memory: 0.30\n",
        "half: loss from 2.0000 to 0.5000, 3 of steps",
    ] {
        assert!(ended.stdout.contains(text), "{text}: {}", ended.stdout);
    }
    let drawing = fs::read_to_string(&figure).unwrap();
    for text in ["Activations on disk: loss of each step", "<polyline", ">half<", "steps: 3"] {
        assert!(drawing.contains(text), "{text}: {drawing}");
    }
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
        (&["checkpoint", "--samples", "0"], "a benchmark needs at least one sample"),
        (
            &["checkpoint", "--tensors", "0"],
            "1 GiB in 0 tensors: each tensor needs at least 8 bytes",
        ),
        (
            &["checkpoint", "--size", "7", "--tensors", "1"],
            "7 B in 1 tensor: each tensor needs at least 8 bytes",
        ),
        (
            &["checkpoint", "--path", "/nonexistent"],
            "the directory to measure does not exist (directory: /nonexistent)",
        ),
        (
            &["data", "--path", "/nonexistent"],
            "the directory to measure does not exist (directory: /nonexistent)",
        ),
        (
            &["parameters", "--path", "/nonexistent"],
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
            &["checkpoint", "--set", "full", "--tensors", "2"],
            "the argument '--set <SET>' cannot be used with '--tensors <TENSORS>'".to_owned(),
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
