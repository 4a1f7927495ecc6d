"""The processes behind ``tensorferry bench data``: what they tell, and what they leave."""

from __future__ import annotations

import json
import mmap
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from children import HANG_SECONDS, started
from tensorferry_bench import usage
from tensorferry_bench.child import Child
from tensorferry_bench.data import pictures
from tensorferry_bench.data.loaders import LOADERS, random_crop

COMMAND = [sys.executable, "-P", "-m", "tensorferry_bench.data", "--set", "tiny"]


def run(path: Path, *more: str) -> list[dict[str, Any]]:
    """The lines that the benchmark tells."""
    command = [*COMMAND, "--path", str(path), *more]
    ended = subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=HANG_SECONDS
    )
    return [json.loads(line) for line in ended.stdout.splitlines()]


def tables(lines: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """By name."""
    return {line["table"]["name"]: line["table"] for line in lines if "table" in line}


def assert_everybody_is_told(table: dict[str, Any]) -> None:
    """Each has samples for every measure, or a reason."""
    names = {measure["name"] for measure in table["measures"]}
    for row in table["rows"]:
        if row["absent"] is None:
            assert row["values"].keys() == names, row
            assert all(row["values"].values()), row
        else:
            assert row["absent"], row


@pytest.fixture(scope="module")
def arrays(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    path = tmp_path_factory.mktemp("arrays")
    return path, run(path, "--only", "arrays")


@pytest.fixture
def child() -> Iterator[Child]:
    child = Child()
    yield child
    child.end()


def test_the_lines_are_versions_then_steps_and_tables_then_the_end(
    arrays: tuple[Path, list[dict[str, Any]]],
) -> None:
    path, (first, *between, last) = arrays
    assert first["hello"]["versions"]["torch"]
    assert Path(first["hello"]["directory"]).parent == path
    assert last == {"end": {}}
    assert {name for line in between for name in line} == {"step", "table"}
    done = [line["step"]["done"] for line in between if "step" in line]
    assert done == sorted(done)
    assert done[-1] < 1
    assert list(path.iterdir()) == []


def test_arrays_stand_beside_plain_copies_and_torch(
    arrays: tuple[Path, list[dict[str, Any]]],
) -> None:
    told = tables(arrays[1])
    assert list(told) == ["arrays of 0.04 MB, batches of 1", "arrays of 0.04 MB, batches of 2"]
    for table in told.values():
        assert_everybody_is_told(table)
        assert [row["role"] for row in table["rows"]] == ["ours", *["limit"] * 2, *["rival"] * 2]
        # These need nothing but torch, which is here.
        assert [row["absent"] for row in table["rows"]] == [None] * 5


def test_every_loader_of_pictures_names_itself_or_says_why_not(tmp_path: Path) -> None:
    told = tables(run(tmp_path, "--only", "images"))
    assert list(told) == ["images", "images, memory"]
    for table in told.values():
        assert_everybody_is_told(table)
        assert len(table["rows"]) == len(LOADERS)
        assert table["rows"][0]["name"].startswith("tensorferry")
        assert table["rows"][0]["absent"] is None


@pytest.mark.parametrize("workload", ["images", "consumers"])
def test_pictures_without_pillow_are_left_out_and_it_is_said_why(
    tmp_path: Path, workload: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hides_pillow = tmp_path / "path" / "PIL"
    hides_pillow.mkdir(parents=True)
    missing = 'raise ModuleNotFoundError("hidden", name="PIL")'
    (hides_pillow / "__init__.py").write_text(missing)
    monkeypatch.setenv("PYTHONPATH", str(hides_pillow.parent))
    tmp_path = tmp_path / "run"
    tmp_path.mkdir()
    table = tables(run(tmp_path, "--only", workload))[workload]
    assert table["absent"] == "pillow is not installed; pip install pillow"
    assert table["rows"] == []


def test_a_slow_store_stands_beside_the_bound_and_the_simulator(tmp_path: Path) -> None:
    told = tables(run(tmp_path, "--only", "slow"))
    table = told["slow store"]
    assert_everybody_is_told(table)
    ours, bound, simulated, lru = table["rows"]
    assert [row["absent"] for row in table["rows"]] == [None] * 4
    least = bound["values"]["from the store"][0]
    assert all(each >= least for each in lru["values"]["from the store"])
    for row in (ours, simulated):
        assert row["values"]["from the store"] == [least] * 2, row["name"]


def test_two_consumers_are_measured_in_both_modes(tmp_path: Path) -> None:
    table = tables(run(tmp_path, "--only", "consumers"))["two consumers"]
    assert_everybody_is_told(table)
    assert [row["name"] for row in table["rows"]] == ["tensorferry, auto", "tensorferry, static"]
    assert [row["absent"] for row in table["rows"]] == [None] * 2


def test_a_loader_is_measured_beside_a_save(tmp_path: Path) -> None:
    table = tables(run(tmp_path, "--only", "beside"))["loader beside a save"]
    assert_everybody_is_told(table)
    assert [row["name"] for row in table["rows"]] == [
        "tensorferry, save_async",
        "torch.save in a thread",
    ]
    assert [row["absent"] for row in table["rows"]] == [None] * 2
    assert len(table["findings"]) == 2


def test_the_directory_goes_when_the_benchmark_is_interrupted(tmp_path: Path) -> None:
    command = [*COMMAND, "--path", str(tmp_path), "--only", "arrays"]
    with started(*command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert "hello" in json.loads(process.stdout.readline())
        process.send_signal(signal.SIGINT)
        assert process.wait(HANG_SECONDS) == 130
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        ({"case": "images.nothing"}, "LookupError: no such case: images.nothing"),
        ({"case": "os.system"}, "LookupError: no such case: os.system"),
        ({"case": "arrays.ferry"}, "KeyError: 'root'"),
    ],
)
def test_what_makes_no_sense_is_answered_with_an_error(
    child: Child, request_: dict[str, Any], error: str
) -> None:
    assert child.ask(**request_) == {"error": error}


def test_a_child_that_died_is_an_absent_contestant_and_no_failure(child: Child) -> None:
    child._process.kill()
    child._process.wait()
    assert child.ask("arrays.copy") == {"error": "its process ended with -9"}


@pytest.fixture
def busy_child() -> Iterator[subprocess.Popen[bytes]]:
    """A process that has written 64 MiB and computed for half a second, and waits for a line."""
    held = "x = bytearray(64 << 20)\nfor i in range(0, len(x), 4096): x[i] = 1\n"
    work = "import time\nwhile time.process_time() < 0.5: pass\nprint(1, flush=True)\ninput()\n"
    command = [sys.executable, "-c", held + work]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        yield process
        # Also after a failure: the next test would count it as a child of its own.
        process.kill()


def test_processor_time_and_memory_of_children_count(request: pytest.FixtureRequest) -> None:
    cpu, memory = usage.cpu_seconds(), usage.memory_bytes()
    process: subprocess.Popen[bytes] = request.getfixturevalue("busy_child")
    assert process.stdout is not None
    process.stdout.readline()
    assert process.pid in usage.descendants()
    assert usage.cpu_seconds() - cpu >= 0.4
    assert usage.memory_bytes() - memory > 60 << 20
    process.communicate(b"\n")
    assert process.pid not in usage.descendants()
    assert usage.cpu_seconds() - cpu >= 0.4


def test_pages_of_mapped_files_do_not_count(tmp_path: Path) -> None:
    """They made a process shrink whenever another program mapped the same library."""
    path = tmp_path / "library"
    path.write_bytes(b"1" * (64 << 20))
    before = usage.memory_bytes()
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        assert sum(mapped[at] for at in range(0, len(mapped), 4096)) > 0
        assert usage.memory_bytes() - before < 32 << 20


def test_the_largest_size_is_kept_until_it_is_asked_for() -> None:
    with usage.Peak() as peak:
        before = peak.take()
        held = b"1" * (128 << 20)
        deadline = time.monotonic() + HANG_SECONDS
        while peak._largest < before + len(held) // 2 and time.monotonic() < deadline:
            time.sleep(usage.INTERVAL_SECONDS)
        del held
        assert peak.take() > before + (64 << 20)
        # A look may have been under way when the bytes went.
        while peak.take() >= before + (64 << 20) and time.monotonic() < deadline:
            time.sleep(usage.INTERVAL_SECONDS)
        assert time.monotonic() < deadline


def test_a_folder_has_as_many_names_as_asked_for_and_few_files(tmp_path: Path) -> None:
    made = [b"first", b"second"]
    pictures.folder(tmp_path, 20, made)
    files = list(tmp_path.rglob("*.jpg"))
    assert len(files) == 20
    assert {path.read_bytes() for path in files} == set(made)
    assert len({os.stat(path).st_ino for path in files}) == 2


def test_a_picture_is_about_as_long_as_a_photograph_of_its_size() -> None:
    lengths = [len(pictures.jpeg(500, 375, seed)) for seed in range(4)]
    assert all(74_000 < each < 90_000 for each in lengths), lengths


def test_crops_lie_inside_the_picture() -> None:
    import random

    draw = random.Random(0)
    for _ in range(1000):
        x, y, width, height = random_crop(draw, 500, 375)
        assert x >= 0
        assert y >= 0
        assert 0 < width <= 500 - x
        assert 0 < height <= 375 - y
