"""The ``tensorferry`` command as the wheel installs it."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import sysconfig
import threading
import time
from pathlib import Path

import pytest
from children import HANG_SECONDS

import tensorferry as ferry
from tensorferry import _lib

SCRIPT = Path(sysconfig.get_path("scripts")) / "tensorferry"


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, capture_output=True, text=True, timeout=HANG_SECONDS, check=False
    )


@pytest.fixture
def sleeper(tmp_path: Path) -> Path:
    """An interpreter that never answers; the file beside it says that it has started."""
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\n: > {tmp_path}/started\nexec sleep 50\n")
    program.chmod(0o755)
    return program


def wait_for(file: Path) -> None:
    deadline = time.monotonic() + HANG_SECONDS
    while not file.exists():
        assert time.monotonic() < deadline, f"{file} never came"
        time.sleep(0.01)


@pytest.mark.parametrize("command", [(SCRIPT,), (sys.executable, "-m", "tensorferry")])
def test_script_and_module_are_the_same_command(command: tuple[str | Path, ...]) -> None:
    done = run(*command, "--version")
    assert (done.returncode, done.stdout, done.stderr) == (
        0,
        f"tensorferry {ferry.__version__}\n",
        "",
    )


def test_verifying_a_large_file_shows_how_far_it_is_on_a_terminal(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    file = tmp_path / "large"
    ferry.save({"a": torch.zeros(80 << 20)}, file)
    terminal, its_end = os.openpty()
    with subprocess.Popen(
        [SCRIPT, "inspect", file], stdout=subprocess.PIPE, stderr=its_end, text=True
    ) as command:
        os.close(its_end)
        shown = b""
        with contextlib.suppress(OSError):  # how a terminal ends
            while more := os.read(terminal, 4096):
                shown += more
        os.close(terminal)
        listed = command.communicate()[0]
    assert "checksums: verified" in listed
    assert re.search(rb"verified [0-9.]+ MiB of 320 MiB", shown), shown
    assert run(SCRIPT, "inspect", file).stderr == "", "no terminal, no bar"


def test_mistakes_end_with_their_exit_codes() -> None:
    done = run(SCRIPT, "docter")
    assert done.returncode == 2
    assert done.stderr.startswith("error: unrecognized subcommand 'docter'\n")
    done = run(SCRIPT, "doctor", "--path", "/nonexistent")
    assert done.returncode == 1
    assert done.stderr == (
        "error: can't look at --path (path: /nonexistent): No such file or directory (os error 2)\n"
    )


def test_doctor_asks_the_interpreter_that_runs_it(tmp_path: Path) -> None:
    import torch

    done = run(SCRIPT, "doctor", "--json", "--path", tmp_path)
    report = json.loads(done.stdout)
    (found,) = [finding for finding in report["findings"] if finding["name"] == "torch"]
    assert found["facts"]["version"] == torch.__version__
    assert found["facts"]["python"] == ".".join(map(str, sys.version_info[:3]))


def test_arguments_that_are_not_unicode_arrive_as_they_are() -> None:
    done = subprocess.run(
        [os.fsencode(SCRIPT), b"doctor", b"--path", b"/nonexistent/\xff"],
        capture_output=True,
        timeout=HANG_SECONDS,
        check=False,
    )
    assert done.returncode == 1
    assert b"No such file or directory" in done.stderr


def test_ctrl_c_ends_the_command_while_rust_works(sleeper: Path) -> None:
    code = (
        "import sys\n"
        "from tensorferry.__main__ import main\n"
        f"sys.executable, sys.argv = {str(sleeper)!r}, ['tensorferry', 'doctor']\n"
        "sys.exit(main())\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], start_new_session=True) as process:
        try:
            wait_for(sleeper.with_name("started"))
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=HANG_SECONDS) == -signal.SIGINT
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def test_other_python_threads_run_while_rust_works(
    sleeper: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    go = sleeper.with_name("go")
    waiting = f"while ! [ -e {go} ]; do sleep 0.01; done"
    sleeper.write_text(sleeper.read_text().replace("exec sleep 50", waiting))
    codes: list[int] = []
    thread = threading.Thread(
        target=lambda: codes.append(_lib.cli_main(["tensorferry", "doctor"], str(sleeper)))
    )
    thread.start()
    wait_for(sleeper.with_name("started"))
    go.touch()  # This thread got the GIL while the command waits.
    thread.join(timeout=HANG_SECONDS)
    assert codes == [0]
    assert "gave no answer" in capfd.readouterr().out
