//! A test of this program in a process of its own, to be killed at any moment.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A process that works for ever; killed when dropped.
struct Victim(Child);

/// Runs the ignored test `name` with `directory` in the environment as `variable`, and kills it
/// `moment` after it has said `word` for the first time.
pub(crate) fn start_and_kill(
    name: &str,
    (variable, directory): (&str, &Path),
    word: &str,
    moment: Duration,
) {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--ignored", "--nocapture"])
        .env(variable, directory)
        .stdout(Stdio::piped())
        .spawn();
    let mut victim = Victim(child.unwrap());
    let lines = BufReader::new(victim.0.stdout.take().unwrap()).lines();
    let said = lines.map(Result::unwrap).find(|line| line.ends_with(word));
    assert!(said.is_some(), "the child has ended by itself");
    std::thread::sleep(moment);
}

impl Drop for Victim {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}
