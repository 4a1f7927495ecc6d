"""No process outlives the test that started it, whatever becomes of the test."""

from __future__ import annotations

import subprocess
import sys

import children
import pytest

SLEEP = (sys.executable, "-c", "import time; time.sleep(1000)")


def test_a_process_is_gone_when_its_test_fails() -> None:
    processes: list[subprocess.Popen[str]] = []

    def fails() -> None:
        with children.started(*SLEEP) as process:
            processes.append(process)
            assert process.pid in children.living()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert processes[0].returncode == -9
    assert processes[0].pid not in children.living()


def test_a_process_that_a_test_leaves_behind_is_told_and_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = children.living()
    with subprocess.Popen(SLEEP) as process:
        monkeypatch.setattr(children, "GOING_SECONDS", 0)
        (told,) = children.end_those_left(before)
        assert told.startswith(f"{process.pid} ")
    assert process.returncode == -9


def test_a_process_that_was_there_before_or_has_ended_is_nobodys_fault() -> None:
    with subprocess.Popen([sys.executable, "-c", ""], stdin=subprocess.PIPE) as ends:
        before = children.living() - {ends.pid}
        assert children.end_those_left(before) == [], "it was waited for"
    with children.started(*SLEEP):
        assert children.end_those_left(children.living()) == []
