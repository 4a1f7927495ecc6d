"""AdamW with its state on SSD, beside what the disk allows.

The limit is fio: as many bytes as a step moves, half of them read and half written, directly and
through io_uring. Where fio is not installed, it is the engine alone, without arithmetic.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import time
from collections import deque
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tensorferry_bench.bench import Bench
from tensorferry_bench.cases import case
from tensorferry_bench.contest import Entry, Measures, hold
from tensorferry_bench.parameters.scale import Scale
from tensorferry_bench.parameters.turns import kept
from tensorferry_bench.table import Finding, Measure, Row, Table

RATE = Measure("moved", "bytes_per_second", "more")
STEPS: Measures = {
    "seconds": Measure("step", "seconds", "less"),
    "rate": RATE,
    "peak_bytes": Measure("peak memory", "bytes", "less"),
}
BYTES = 16
"""Of an element in a step: both moments, read and written."""
AIM = 0.80
BLOCK = 1 << 20
DEPTH = 16
CONTESTANTS = 4


def steps(scale: Scale) -> int:
    """Turns of everybody."""
    return scale.disk.rounds * CONTESTANTS


def run(bench: Bench[Scale]) -> None:
    """One table."""
    scale = bench.scale.disk
    directory = bench.directory / "disk"
    directory.mkdir()
    needs = {"dtype": "float32", "directory": str(directory), **asdict(scale)}
    entries = [
        Entry("tensorferry, state on SSD", "ours", "disk.ours", needs | {"way": "ours"}),
        Entry("fio, half reads, half writes", "limit", "disk.fio", needs),
        Entry("the engine without arithmetic", "limit", "disk.engine", needs),
        Entry("tensorferry, state in memory", "limit", "disk.memory", needs | {"way": "ours"}),
    ]
    assert len(entries) == CONTESTANTS
    rows = hold(bench, "disk", entries, scale.rounds, STEPS)
    note = f"{scale.elements:,} float32 parameters, {BYTES} bytes a step of each"
    bench.show(Table("disk", note, list(STEPS.values()), rows, findings(rows, scale.elements)))


def findings(rows: list[Row], elements: int) -> list[Finding]:
    """The share of the disk's speed, and what is in memory of the moments."""
    ours, fio, engine, _ = rows
    limit = fio if fio.values else engine
    if not ours.values or not limit.values:
        return []
    rate = {row.name: statistics.median(row.values[RATE.name]) for row in (ours, limit)}
    share = rate[ours.name] / rate[limit.name]
    peak = max(ours.values[STEPS["peak_bytes"].name]) / (elements * 8)
    what = f"bytes a second, ours / {limit.name}"
    return [
        Finding(what, share, f"at least {AIM:.2f}", share >= AIM),
        Finding("peak memory above parameters and gradients / bytes of the moments", peak),
    ]


def told(request: dict[str, Any], seconds: list[float], peak: int | None = None) -> dict[str, Any]:
    """By the names of the columns."""
    moved = int(request["elements"]) * BYTES
    return {"seconds": seconds, "rate": [moved / each for each in seconds], "peak_bytes": peak}


@case("disk.ours")
def ours(request: dict[str, Any]) -> dict[str, Any]:
    """Steps with the state on disk."""
    stepper = kept(request, state=f"ssd:{request['directory']}")
    return told(request, stepper.times(int(request["timed"])), stepper.peak_bytes())


@case("disk.memory")
def in_memory(request: dict[str, Any]) -> dict[str, Any]:
    """The same steps without a disk."""
    stepper = kept(request)
    return told(request, stepper.times(int(request["timed"])), stepper.peak_bytes())


@case("disk.fio")
def fio(request: dict[str, Any]) -> dict[str, Any]:
    """As many bytes by fio."""
    if shutil.which("fio") is None:
        raise FileNotFoundError("fio is not installed; Debian package: fio")
    path = Path(request["directory"]) / "fio"
    bytes_ = int(request["elements"]) * BYTES // 2 // BLOCK * BLOCK
    if not path.exists():
        _fio(path, bytes_, "write")
    seconds = []
    for _ in range(int(request["timed"])):
        # It moves as many bytes as the file has: twice that is a step.
        seconds.append(int(request["elements"]) * BYTES / _fio(path, bytes_, "readwrite"))
    return told(request, seconds)


def _fio(path: Path, bytes_: int, how: str) -> float:
    """Bytes a second, in both directions together."""
    arguments = {
        "name": "disk",
        "filename": path,
        "ioengine": "io_uring",
        "direct": 1,
        "output-format": "json",
        "rw": how,
        "size": bytes_,
        "bs": BLOCK,
        "iodepth": DEPTH,
    }
    ended = subprocess.run(
        ["fio", *(f"--{name}={value}" for name, value in arguments.items())],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"},
    )
    job = json.loads(ended.stdout)["jobs"][0]
    return float(job["read"]["bw_bytes"] + job["write"]["bw_bytes"])


@case("disk.engine")
def engine(request: dict[str, Any]) -> dict[str, Any]:
    """Reads every block and writes it again, as a step does."""
    import torch

    import tensorferry as ferry

    bytes_ = max(int(request["elements"]) * BYTES // 2 // BLOCK, 1) * BLOCK
    with ferry.Engine() as opened:
        file = opened.open(Path(request["directory"]) / "engine", "a")
        first = len(file) < bytes_
        file.reserve(bytes_)
        memory = torch.zeros(2 * DEPTH, BLOCK, dtype=torch.uint8)
        if first:
            _pass(file, memory, bytes_)
        seconds = []
        for _ in range(int(request["timed"])):
            began = time.perf_counter()
            _pass(file, memory, bytes_)
            seconds.append(time.perf_counter() - began)
    return told(request, seconds)


def _pass(file: Any, memory: Any, bytes_: int) -> None:
    """Once over the file."""
    free = deque(memory)
    reads: deque[Any] = deque()
    writes: deque[Any] = deque()
    offset = 0
    while offset < bytes_ or reads:
        while offset < bytes_ and len(reads) < DEPTH:
            if not free:
                write, block = writes.popleft()
                write.wait()
                free.append(block)
            block = free.popleft()
            reads.append((file.read(offset=offset, into=block), block, offset))
            offset += BLOCK
        read, block, at = reads.popleft()
        read.wait()
        writes.append((file.write(block, at, priority="waiting"), block))
    for write, _ in writes:
        write.wait()
