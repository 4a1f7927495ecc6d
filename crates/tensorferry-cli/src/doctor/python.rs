//! Python and its torch, asked in a process of their own.
//!
//! torch can't be looked at from the outside: whether it sees a GPU is known only after importing
//! it, which takes seconds and can crash or hang on a broken driver. So another interpreter does
//! it, under a time limit, and answers with one line of JSON.
//!
//! That interpreter must not run files that happen to lie in the working directory. Python looks
//! there first when it is given a program as text, so the question's first line stops that before
//! anything else is imported. The flags for it would do too much or too little: `-I` also hides
//! the user's own packages, where torch may be, and `-P` is not known before Python 3.11.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use serde::Deserialize;

use super::finding::{Finding, Status};

/// A cold import of torch from a slow disk takes tens of seconds.
const TIME_LIMIT: Duration = Duration::from_mins(1);
const ANSWER_BYTES_MAX: u64 = 1 << 20;

const QUESTION: &str = r#"
import sys; sys.path[:] = [entry for entry in sys.path if entry]
import importlib.util, json
answer = {"python": "%d.%d.%d" % sys.version_info[:3], "path": sys.path}
try:
    if importlib.util.find_spec("torch"):
        import torch
        answer["torch"] = str(torch.__version__)
        answer["cuda_built"] = torch.version.cuda
        answer["devices"] = torch.cuda.device_count() if torch.cuda.is_available() else 0
except BaseException as error:
    answer["error"] = "%s: %s" % (type(error).__name__, error)
print("\n" + json.dumps(answer))
"#;

/// What the other interpreter says.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct Answer {
    python: String,
    /// Where that interpreter looks for packages.
    pub(super) path: Vec<PathBuf>,
    torch: Option<String>,
    cuda_built: Option<String>,
    devices: u64,
    error: Option<String>,
}

/// Asks `python`. The error is a reason in words.
pub(super) fn ask(python: &Path) -> Result<Answer, String> {
    ask_within(python, TIME_LIMIT)
}

fn ask_within(python: &Path, limit: Duration) -> Result<Answer, String> {
    let mut command = Command::new(python);
    command.args(["-c", QUESTION]);
    answer(command, limit)
}

/// Runs the command and takes its last line as the answer.
fn answer(mut command: Command, limit: Duration) -> Result<Answer, String> {
    let python = PathBuf::from(command.get_program());
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| format!("can't run {}: {error}", python.display()))?;
    let said = listen(&mut child, limit);
    // It has answered, or it never will. A process that already ended keeps its exit status.
    let _ = child.kill();
    let ended = child.wait();
    let text = said.ok_or_else(|| format!("no answer within {} s", limit.as_secs_f32()))?;
    text.lines().last().and_then(|line| serde_json::from_str(line).ok()).ok_or_else(|| {
        let status = ended.map_or_else(|error| error.to_string(), |status| status.to_string());
        format!("{} gave no answer ({status})", python.display())
    })
}

/// Everything the child prints until it closes its output; `None` if that takes too long.
fn listen(child: &mut Child, limit: Duration) -> Option<String> {
    let output = child.stdout.take()?;
    let (sender, receiver) = mpsc::channel();
    // A thread, because a pipe has no time limit. It ends when the child is killed.
    thread::spawn(move || {
        let mut text = Vec::new();
        let _ = output.take(ANSWER_BYTES_MAX).read_to_end(&mut text);
        let _ = sender.send(text);
    });
    let text = receiver.recv_timeout(limit).ok()?;
    Some(String::from_utf8_lossy(&text).into_owned())
}

pub(super) fn describe(answer: &Result<Answer, String>) -> Finding {
    const INSTALL: &str = "pip install torch";
    let finding = |status, value: String| Finding::new("torch", status, value);
    let answer = match answer {
        Ok(answer) => answer,
        Err(reason) => {
            return finding(Status::Missing, reason.clone())
                .means("The command line works without Python, the package does not.")
                .remedy("install Python 3.11 or newer, and torch");
        }
    };
    let found = match (&answer.torch, &answer.error) {
        (_, Some(error)) => finding(Status::Error, format!("import failed: {error}"))
            .means("torch is installed but can't be used.")
            .remedy("reinstall it: pip install --force-reinstall torch"),
        (None, None) => finding(Status::Missing, format!("not in Python {}", answer.python))
            .means("Tensors need it; arrays, bytes and this command do not.")
            .remedy(INSTALL),
        (Some(torch), None) => with_torch(answer, torch),
    };
    found
        .fact("python", answer.python.as_str())
        .fact("version", answer.torch.as_deref())
        .fact("cuda_built", answer.cuda_built.as_deref())
        .fact("devices", answer.devices)
}

fn with_torch(answer: &Answer, torch: &str) -> Finding {
    let built = answer.cuda_built.as_ref().map_or_else(
        || "built without CUDA".to_owned(),
        |version| format!("built for CUDA {version}"),
    );
    let value = format!("{torch} on Python {}, {built}, {} GPUs", answer.python, answer.devices);
    let meaning = if answer.devices == 0 {
        "torch runs on the CPU here, and the engine reads and writes its tensors."
    } else {
        "torch sees a GPU. This version reads and writes tensors in host memory only."
    };
    Finding::new("torch", Status::Ok, value).means(meaning)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::time::Instant;

    fn pretender(script: &str) -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("python");
        fs::write(&file, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        (directory, file)
    }

    fn asked(script: &str, limit: Duration) -> Result<Answer, String> {
        let (_directory, file) = pretender(script);
        ask_within(&file, limit)
    }

    const LONG: Duration = Duration::from_secs(30);

    #[test]
    fn the_last_line_is_the_answer_whatever_torch_prints_before() {
        let answer = asked(r#"echo warning; echo '{"python":"3.12.1","devices":2}'"#, LONG);
        assert_eq!(
            answer,
            Ok(Answer { python: "3.12.1".to_owned(), devices: 2, ..Answer::default() })
        );
    }

    #[test]
    fn an_interpreter_that_hangs_is_given_up_and_ended() {
        let before = Instant::now();
        let answer = asked("exec sleep 60", Duration::from_millis(200));
        assert_eq!(answer, Err("no answer within 0.2 s".to_owned()));
        assert!(before.elapsed() < LONG);
    }

    #[test]
    fn an_interpreter_that_crashes_is_named_with_its_signal() {
        let reason = asked("kill -SEGV $$", LONG).unwrap_err();
        assert!(reason.contains("gave no answer (signal: 11"), "{reason}");
        let reason = ask_within(Path::new("/nonexistent/python"), LONG).unwrap_err();
        assert_eq!(reason, "can't run /nonexistent/python: No such file or directory (os error 2)");
    }

    #[test]
    fn files_in_the_working_directory_are_not_run_and_installed_packages_are_found() {
        let (here, packages) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for name in ["json", "importlib", "torch", "sys"] {
            let trap = "open('trapped', 'w').close()\n";
            fs::write(here.path().join(name).with_extension("py"), trap).unwrap();
        }
        let torch = "class version: cuda = None\nclass cuda: is_available = lambda: False\n";
        let torch = format!("__version__ = '9.9'\n{torch}");
        fs::write(packages.path().join("torch.py"), torch).unwrap();
        let mut command = Command::new("python3");
        command.args(["-c", QUESTION]).current_dir(here.path()).env("PYTHONPATH", packages.path());
        match answer(command, LONG) {
            Err(reason) if reason.starts_with("can't run") => {} // No Python here.
            answer => assert_eq!(answer.unwrap().torch.as_deref(), Some("9.9")),
        }
        assert!(!here.path().join("trapped").exists());
    }

    #[test]
    fn each_answer_has_its_status_and_its_remedy() {
        let answer = |torch: Option<&str>, error: Option<&str>| {
            let owned = |text: Option<&str>| text.map(str::to_owned);
            let python = "3.11.7".to_owned();
            Ok(Answer { python, torch: owned(torch), error: owned(error), ..Answer::default() })
        };
        for (answer, status, value) in [
            (
                answer(Some("2.13.0"), None),
                Status::Ok,
                "2.13.0 on Python 3.11.7, built without CUDA, 0 GPUs",
            ),
            (answer(None, None), Status::Missing, "not in Python 3.11.7"),
            (answer(None, Some("OSError: x")), Status::Error, "import failed: OSError: x"),
            (Err("can't run python3".to_owned()), Status::Missing, "can't run python3"),
        ] {
            let finding = describe(&answer);
            assert_eq!((finding.status, finding.value.as_str()), (status, value));
            assert_eq!(finding.remedy.is_none(), status == Status::Ok);
        }
    }
}
