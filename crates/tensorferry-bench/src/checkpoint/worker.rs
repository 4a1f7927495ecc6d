//! A Python process that does one case each time it is asked, by lines of JSON.
//!
//! The first worker owns the directory that files go to and removes it when its input ends,
//! however this process ends: an interrupt reaches both, and a kill closes the pipe. Should that
//! worker be the one that is killed, this side removes the directory.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tensorferry::{Error, Kind, Result};

/// A cold start of Python and torch from a slow disk takes tens of seconds.
const HELLO_LIMIT: Duration = Duration::from_mins(2);
/// A case moves gigabytes, perhaps over a network.
const ANSWER_LIMIT: Duration = Duration::from_mins(30);
/// Removing what was written takes a moment.
const END_LIMIT: Duration = Duration::from_mins(1);
/// All answers of one worker together.
const ANSWERS_BYTES_MAX: u64 = 16 << 20;
/// What is kept of its complaints.
const STDERR_BYTES_MAX: u64 = 64 << 10;

/// How a worker's directory is called.
const DIRECTORY_PREFIX: &str = ".tensorferry-bench-";

pub(super) struct Worker {
    child: Child,
    requests: Option<ChildStdin>,
    answers: Receiver<String>,
    complaints: Option<JoinHandle<String>>,
    hello: Hello,
    owner: bool,
}

/// What a worker says first.
#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct Hello {
    pub(super) directory: PathBuf,
    /// Where each contestant's file lies.
    pub(super) files: BTreeMap<String, PathBuf>,
    /// Of Python and the packages; none for what is not there.
    pub(super) versions: BTreeMap<String, Option<String>>,
}

/// What to do.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Request {
    pub(super) case: &'static str,
    pub(super) bytes: u64,
    pub(super) tensors: u64,
    /// Tell how much more memory was in use at the most.
    pub(super) memory: bool,
}

/// What came of it.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Answer {
    pub(super) seconds: f64,
    pub(super) cpu_seconds: Option<f64>,
    pub(super) bytes: u64,
    pub(super) count: Option<u64>,
    pub(super) total_seconds: Option<f64>,
    pub(super) extra_bytes: Option<u64>,
    pub(super) error: Option<String>,
}

impl Worker {
    /// Starts the worker that makes a directory under `path`, and owns it.
    pub(super) fn under(python: &Path, path: &Path) -> Result<Self> {
        Self::start(python, "--under", path)
    }

    /// Starts another one that works in the directory of the first.
    pub(super) fn beside(python: &Path, owner: &Self) -> Result<Self> {
        Self::start(python, "--in", &owner.hello.directory)
    }

    fn start(python: &Path, option: &str, path: &Path) -> Result<Self> {
        let mut child = Command::new(python)
            // Without the working directory on its search path, where anything may lie.
            .args(["-P", "-m", "tensorferry._bench_checkpoint", option])
            .arg(path)
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
        let (hello, owner) = (Hello::default(), option == "--under");
        let mut worker = Self { child, requests, answers, complaints, hello, owner };
        worker.hello = worker.receive(HELLO_LIMIT).map_err(|error| {
            let message = "this Python can't measure; install torch and tensorferry into it";
            Error::new(Kind::Unsupported, message).with("python", python.display()).caused_by(error)
        })?;
        Ok(worker)
    }

    pub(super) fn hello(&self) -> &Hello {
        &self.hello
    }

    /// Lets the worker do a case.
    pub(super) fn ask(&mut self, request: Request) -> Result<Answer> {
        let mut line = serde_json::to_vec(&request).map_err(|error| {
            Error::new(Kind::Internal, "can't write a request as JSON").caused_by(error)
        })?;
        line.push(b'\n');
        // A worker that is gone has told why on its standard error, and is heard out below.
        let _ =
            self.requests.as_mut().map(|pipe| pipe.write_all(&line).and_then(|()| pipe.flush()));
        self.receive(ANSWER_LIMIT).map_err(|error| error.with("case", request.case))
    }

    fn receive<T: for<'a> Deserialize<'a>>(&mut self, limit: Duration) -> Result<T> {
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

    /// Closes the worker's input and waits for its end, which comes by force if it has to.
    fn end(&mut self) -> String {
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

impl Drop for Worker {
    fn drop(&mut self) {
        self.end();
        let directory = &self.hello.directory;
        let name = directory.file_name().unwrap_or_default().to_string_lossy();
        if self.owner && name.starts_with(DIRECTORY_PREFIX) {
            // Only a worker that was killed has left it.
            let _ = std::fs::remove_dir_all(directory);
        }
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
