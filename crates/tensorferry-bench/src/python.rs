//! A Python process that speaks in lines of JSON.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde::Deserialize;
use tensorferry::{Error, Kind, Result};

/// A cold start of Python and torch from a slow disk takes tens of seconds.
pub(crate) const HELLO_LIMIT: Duration = Duration::from_mins(2);
/// Removing what was written takes a moment.
const END_LIMIT: Duration = Duration::from_mins(1);
/// All answers of one process together.
const ANSWERS_BYTES_MAX: u64 = 16 << 20;
/// What is kept of its complaints.
const STDERR_BYTES_MAX: u64 = 64 << 10;

/// How the directory is called that such a process makes for its files.
pub(crate) const DIRECTORY_PREFIX: &str = ".tensorferry-bench-";

/// The process and its pipes. Dropped, its input is closed, upon which it ends.
pub(crate) struct Python {
    child: Child,
    requests: Option<ChildStdin>,
    answers: Receiver<String>,
    complaints: Option<JoinHandle<String>>,
}

impl Python {
    /// Starts a module of the package.
    pub(crate) fn start(
        python: &Path,
        module: &str,
        arguments: impl IntoIterator<Item: AsRef<OsStr>>,
    ) -> Result<Self> {
        let mut child = Command::new(python)
            // Without the working directory on its search path, where anything may lie.
            .args(["-P", "-m", module])
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| {
                let message =
                    "can't run Python; install Python 3.11 or newer, torch and tensorferry";
                Error::from_io(error, message).with("python", python.display())
            })?;
        let requests = child.stdin.take();
        let (answers, complaints) = listen(&mut child);
        Ok(Self { child, requests, answers, complaints })
    }

    /// Writes a line. One that is gone has told why on its standard error, and is heard out when an
    /// answer is waited for.
    pub(crate) fn send(&mut self, line: &[u8]) {
        let _ = self.requests.as_mut().map(|pipe| pipe.write_all(line).and_then(|()| pipe.flush()));
    }

    /// Waits for the first line.
    pub(crate) fn greet<T: for<'a> Deserialize<'a>>(&mut self, python: &Path) -> Result<T> {
        self.receive(HELLO_LIMIT).map_err(|error| {
            let message =
                "this Python can't measure; from a clone: pip install torch ./python ./benches";
            Error::new(Kind::Unsupported, message).with("python", python.display()).caused_by(error)
        })
    }

    /// Waits for a line.
    pub(crate) fn receive<T: for<'a> Deserialize<'a>>(&mut self, limit: Duration) -> Result<T> {
        match self.answers.recv_timeout(limit) {
            Ok(line) => serde_json::from_str(&line).map_err(|error| {
                Error::new(Kind::Internal, "Python's answer makes no sense").caused_by(error)
            }),
            Err(RecvTimeoutError::Timeout) => {
                let message = format!("no answer from Python within {} s", limit.as_secs());
                Err(Error::new(Kind::Timeout, message))
            }
            Err(RecvTimeoutError::Disconnected) => Err(self.died()),
        }
    }

    fn died(&mut self) -> Error {
        let status = self.end();
        let said = self.complaints.take().and_then(|thread| thread.join().ok()).unwrap_or_default();
        let last = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or(&status);
        Error::new(Kind::Io, "Python ended early").caused_by(last.trim().to_owned())
    }

    /// Closes its input and waits for its end, which comes by force if it has to.
    pub(crate) fn end(&mut self) -> String {
        drop(self.requests.take());
        let start = Instant::now();
        while start.elapsed() < END_LIMIT {
            match self.child.try_wait() {
                Ok(Some(status)) => return status.to_string(),
                Ok(None) => thread::sleep(Duration::from_millis(5)),
                Err(error) => return error.to_string(),
            }
        }
        // It has ended in between, or it does now.
        let _ = self.child.kill();
        self.child.wait().map_or_else(|error| error.to_string(), |status| status.to_string())
    }
}

impl Drop for Python {
    fn drop(&mut self) {
        self.end();
    }
}

/// Removes what a process has left that was killed; only a directory of such a process's making.
pub(crate) fn sweep(directory: &Path) {
    let name = directory.file_name().unwrap_or_default().to_string_lossy();
    if name.starts_with(DIRECTORY_PREFIX) {
        // Usually it is gone already.
        let _ = std::fs::remove_dir_all(directory);
    }
}

/// Threads that read, because a pipe has no time limit; they end with the child.
fn listen(child: &mut Child) -> (Receiver<String>, Option<JoinHandle<String>>) {
    let (sender, receiver) = mpsc::channel();
    if let Some(output) = child.stdout.take() {
        thread::spawn(move || {
            let lines = BufReader::new(output.take(ANSWERS_BYTES_MAX)).lines();
            // Until it closes its output, or nobody listens.
            lines.map_while(std::result::Result::ok).try_for_each(|line| sender.send(line)).ok()
        });
    }
    let complaints = child.stderr.take().map(|mut errors| {
        thread::spawn(move || {
            let mut text = Vec::new();
            let _ = errors.by_ref().take(STDERR_BYTES_MAX).read_to_end(&mut text);
            // What is more than that is read too: a full pipe would stop the worker.
            let _ = std::io::copy(&mut errors, &mut std::io::sink());
            String::from_utf8_lossy(&text).into_owned()
        })
    });
    (receiver, complaints)
}
