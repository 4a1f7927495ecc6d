"""The worker behind ``tensorferry bench checkpoint``: what it answers, and what it leaves."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

MIB = 1 << 20


class Worker:
    """A worker and its two pipes."""

    def __init__(self, option: str, path: Path) -> None:
        command = [sys.executable, "-P", "-m", "tensorferry_bench.checkpoint", option, str(path)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.hello = self.hear()
        self.directory = Path(self.hello["directory"])

    def hear(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        answer = json.loads(self.process.stdout.readline())
        assert isinstance(answer, dict)
        return answer

    def say(self, line: str) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.hear()

    def ask(self, case: str, **more: Any) -> dict[str, Any]:
        return self.say(json.dumps({"case": case, "bytes": MIB, "tensors": 3, **more}))

    def end(self) -> int:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        code = self.process.wait(60)
        self.process.stdout.close()
        return code


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    worker = Worker("--under", tmp_path_factory.mktemp("bench"))
    yield worker
    worker.end()


def test_the_worker_says_where_files_go_and_which_versions_are_here(worker: Worker) -> None:
    assert worker.directory.is_dir()
    assert worker.hello["versions"]["torch"] == torch.__version__.split("+")[0]
    assert {Path(file).parent for file in worker.hello["files"].values()} == {worker.directory}


@pytest.mark.parametrize(
    ("save", "loads"),
    [
        (
            "ferry.save",
            ["ferry.load", "ferry.load mmap", "ferry.load again", "ferry.load first"],
        ),
        ("torch.save", ["torch.load", "torch.load mmap"]),
        ("safetensors.save_file", ["safetensors.load_file", "safetensors.load_file pread"]),
        ("dcp.save", ["dcp.load"]),
    ],
)
def test_what_is_saved_is_loaded_and_both_are_timed(
    worker: Worker, save: str, loads: list[str]
) -> None:
    for case in [save, *loads]:
        answer = worker.ask(case)
        assert answer.get("error") is None
        assert answer["seconds"] > 0
        assert answer["cpu_seconds"] > 0
        assert answer["bytes"] == MIB
    path = Path(worker.hello["files"][save.split(".")[0]])
    files = path.iterdir() if path.is_dir() else [path]
    assert sum(file.stat().st_size for file in files) >= MIB


def test_a_state_has_the_bytes_that_were_asked_for_also_if_they_do_not_divide(
    worker: Worker,
) -> None:
    assert worker.ask("torch.save", bytes=8 * 1001, tensors=7)["bytes"] == 8 * 1001
    state = torch.load(worker.hello["files"]["torch"])
    assert len(state) == 7
    assert sum(tensor.nbytes for tensor in state.values()) == 8 * 1001


def test_an_asynchronous_save_tells_how_long_it_held_and_how_long_it_took(worker: Worker) -> None:
    answer = worker.ask("ferry.save_async")
    assert 0 < answer["seconds"] <= answer["total_seconds"]
    assert worker.ask("ferry.load").get("error") is None


def test_a_loop_is_counted_alone_and_during_a_save(worker: Worker) -> None:
    for case in ["count alone", "count during save_async"]:
        answer = worker.ask(case, bytes=32 * MIB)
        assert answer["count"] > 0
        assert answer["seconds"] > 0


@pytest.mark.parametrize("case", ["copy_", "clone", "memory small", "memory huge"])
def test_copies_and_new_memory_are_timed(worker: Worker, case: str) -> None:
    assert worker.ask(case)["seconds"] > 0


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("garbage", "not a request: JSONDecodeError: Expecting value: line 1 column 1 (char 0)"),
        ("{}", "not a request: KeyError: 'case'"),
        ("[]", "not a request: TypeError: list indices must be integers or slices, not str"),
        ('{"case": "torch.safe", "bytes": 8, "tensors": 1}', "no such case: torch.safe"),
    ],
)
def test_what_makes_no_sense_is_answered_with_an_error(
    worker: Worker, line: str, error: str
) -> None:
    assert worker.say(line) == {"error": error}


def test_other_tensors_than_were_saved_are_an_error(worker: Worker) -> None:
    size = {"bytes": 2 * MIB}
    assert worker.ask("torch.save", **size).get("error") is None
    path = Path(worker.hello["files"]["torch"])
    state = torch.load(path)
    state["layer.1.weight"].view(torch.int64)[5] += 1
    torch.save(state, path)
    error = worker.ask("torch.load", **size)["error"]
    assert error == "ValueError: torch.load gave other tensors than were saved"
    path.unlink()
    assert worker.ask("torch.load", **size)["error"].startswith("FileNotFoundError: ")


def test_memory_is_told_by_a_worker_beside_which_leaves_the_directory(worker: Worker) -> None:
    size = {"bytes": 64 * MIB}
    assert worker.ask("torch.save", **size).get("error") is None
    beside = Worker("--in", worker.directory)
    extra = beside.ask("torch.load", memory=True, **size)["extra_bytes"]
    assert 60 * MIB < extra < 200 * MIB
    assert beside.end() == 0
    assert worker.directory.is_dir()


def test_a_workers_directory_goes_when_its_input_ends(tmp_path: Path) -> None:
    worker = Worker("--under", tmp_path)
    assert worker.ask("torch.save").get("error") is None
    assert worker.end() == 0
    assert list(tmp_path.iterdir()) == []


def test_a_workers_directory_goes_when_it_is_interrupted(tmp_path: Path) -> None:
    worker = Worker("--under", tmp_path)
    assert worker.ask("torch.save").get("error") is None
    worker.process.send_signal(signal.SIGINT)
    assert worker.process.wait(60) == 130
    worker.end()
    assert list(tmp_path.iterdir()) == []
