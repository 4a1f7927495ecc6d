"""A loader on a cold disk while a checkpoint is saved behind it: how much of its speed it keeps,
and how much longer the save takes.

``python -m tensorferry_bench.data.beside --path DIRECTORY --state 5GiB`` measures another size than
a set says.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from tensorferry_bench.bench import Bench
from tensorferry_bench.cases import case
from tensorferry_bench.contest import Entry, Measures, hold
from tensorferry_bench.data import pictures
from tensorferry_bench.data.scale import SCALES, Scale
from tensorferry_bench.suite import lines
from tensorferry_bench.table import Finding, Measure, Role, Row, Table

MEASURES: Measures = {
    "loader_keeps": Measure("loader keeps", "share", "more"),
    "save_takes": Measure("save takes", "share", "less"),
    "loses": Measure("save loses for each byte loaded", "share", "less"),
    "loader": Measure("loader alone", "bytes_per_second", "more"),
    "save": Measure("save alone", "seconds", "less"),
}

ENTRIES: tuple[tuple[str, Role, str], ...] = (
    ("tensorferry, save_async", "ours", "beside.ferry"),
    ("torch.save in a thread", "rival", "beside.torch"),
)

KEEPS_MIN, TAKES_MAX = 0.85, 3.0


def steps(scale: Scale) -> int:
    """Turns of everybody."""
    return 1 + len(ENTRIES) * scale.beside.rounds


def run(bench: Bench[Scale]) -> None:
    """One table."""
    scale = bench.scale.beside
    bench.step("making files")
    paths = pictures.arrays(bench.directory / "beside", scale.samples, scale.sample_bytes)
    os.sync()
    needs = {"root": str(paths[0].parent), "folder": str(bench.directory), **asdict(scale)}
    entries = [Entry(name, role, case, needs) for name, role, case in ENTRIES]
    rows = hold(bench, "beside a save", entries, scale.rounds, MEASURES)
    note = f"{len(paths)} .npy files of {scale.sample_bytes / 1e3:.0f} kB, not in the page cache; "
    note += f"{scale.state_bytes / 1e9:g} GB saved meanwhile; each alone, then both, in turn"
    findings = findings_of(rows[0])
    bench.show(Table("loader beside a save", note, list(MEASURES.values()), rows, findings))


def findings_of(row: Row) -> list[Finding]:
    """What ours is held to."""
    keeps, takes = (sorted(row.values.get(name, [])) for name in ("loader keeps", "save takes"))
    if not keeps or not takes:
        return []
    kept, taken = keeps[len(keeps) // 2], takes[len(takes) // 2]
    return [
        Finding("of its speed the loader keeps", kept, f"{KEEPS_MIN}", kept >= KEEPS_MIN),
        Finding("times its time the save takes", taken, f"{TAKES_MAX}", taken <= TAKES_MAX),
    ]


@case("beside.ferry")
def ferry_save(request: dict[str, Any]) -> dict[str, Any]:
    """Ours, from the call until the file is in its place."""
    import tensorferry as ferry

    path = Path(request["folder"]) / "beside.ferry"
    return measured(request, path, lambda state: ferry.save_async(state, path).wait())


@case("beside.torch")
def torch_save(request: dict[str, Any]) -> dict[str, Any]:
    """torch's, which nobody waits for; synced as ours is."""
    import torch

    path = Path(request["folder"]) / "beside.pt"

    def save(state: Any) -> None:
        with path.open("wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())

    return measured(request, path, save)


def measured(request: dict[str, Any], path: Path, save: Callable[[Any], object]) -> dict[str, Any]:
    """The loader alone, the save alone, and both."""
    import torch

    paths = sorted(Path(request["root"]).glob("*.npy"))
    parts = 16
    elements = int(request["state_bytes"]) // (4 * parts)
    state = {f"part{number}": torch.ones(elements) for number in range(parts)}
    save(state)
    loader = loaded(paths, int(request["batch"]))
    began = time.perf_counter()
    save(state)
    alone = time.perf_counter() - began
    saved: list[float] = []

    def behind() -> None:
        began = time.perf_counter()
        save(state)
        saved.append(time.perf_counter() - began)

    thread = threading.Thread(target=behind)
    thread.start()
    # As long as the save goes on, and what is loaded after it does not count.
    beside = loaded(paths, int(request["batch"]), lambda: bool(saved))
    thread.join()
    size = path.stat().st_size
    path.unlink()
    return {
        "loses": (size / alone - size / saved[0]) / beside,
        "loader_keeps": beside / loader,
        "save_takes": saved[0] / alone,
        "loader": loader,
        "save": alone,
    }


def loaded(paths: list[Path], batch: int, is_over: Callable[[], bool] | None = None) -> float:
    """Bytes a second of a loader that finds nothing in the page cache: in one epoch, or in as many
    as there are until it is over."""
    import tensorferry as ferry
    from tensorferry.data import Files

    loader = ferry.DataLoader(Files(paths), batch, num_workers=2, cache_limit=0)
    count, seconds, goes_on = 0, 0.0, True
    while goes_on:
        forget(paths)
        began = time.perf_counter()
        for at, _ in enumerate(loader):
            count += min(batch, len(paths) - at * batch)
            if is_over is not None and is_over():
                break
        seconds += time.perf_counter() - began
        goes_on = is_over is not None and not is_over()
    loader.close()
    return count * paths[0].stat().st_size / seconds


def forget(paths: list[Path]) -> None:
    """Takes files out of the page cache."""
    for path in paths:
        file = os.open(path, os.O_RDONLY)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(file)


def main() -> int:
    """This workload alone, with so much of everything."""
    import tensorferry as ferry

    usual = SCALES["full"].beside
    arguments = argparse.ArgumentParser(prog="tensorferry_bench.data.beside")
    arguments.add_argument("--path", type=Path, required=True)
    arguments.add_argument("--state", default=usual.state_bytes, help="what is saved: 5GiB")
    arguments.add_argument("--samples", type=int, default=usual.samples)
    arguments.add_argument("--rounds", type=int, default=usual.rounds)
    given = arguments.parse_args()
    state = ferry.parse_size(given.state)
    beside = replace(usual, state_bytes=state, samples=given.samples, rounds=given.rounds)
    scale = replace(SCALES["full"], beside=beside)
    with tempfile.TemporaryDirectory(prefix=".tensorferry-bench-", dir=given.path) as directory:
        run(Bench(Path(directory), scale, steps(scale), lines()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
