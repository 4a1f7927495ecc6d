//! The command as its users run it: one binary, one module per subcommand.
#![allow(clippy::unwrap_used, reason = "clippy knows test functions, not their helpers")]

mod bench;
mod doctor;
mod frame;
mod inspect;
mod plan;
mod simulate;

use std::path::Path;
use std::process::Command;

/// The command without Python on its search path, which would take seconds to import torch.
fn tensorferry(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tensorferry"));
    command.args(args).env("PATH", "/nonexistent");
    command
}

/// How a command ended.
#[derive(Debug)]
struct Ended {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

fn ended(mut command: Command) -> Ended {
    let output = command.output().unwrap();
    Ended {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

fn run(args: &[&str]) -> Ended {
    ended(tensorferry(args))
}

/// Runs `doctor` on `path`, which must fail, and gives what it says.
fn doctor_fails_on(path: &Path) -> String {
    let ended = run(&["doctor", "--path", path.to_str().unwrap()]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), ""), "{ended:?}");
    ended.stderr
}
