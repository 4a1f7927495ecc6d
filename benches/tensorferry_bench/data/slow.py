"""A slow store and a cache of half the dataset: epochs beside the fewest bytes there can be, and
beside what ``simulate cache`` says of the same."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

from tensorferry_bench.bench import Bench
from tensorferry_bench.cases import case, describe
from tensorferry_bench.contest import Entry, Measures, once
from tensorferry_bench.data import pictures
from tensorferry_bench.data.scale import Scale, Slow
from tensorferry_bench.table import Measure, Row, Table

EPOCHS: Measures = {
    "seconds": Measure("epoch", "seconds", "less"),
    "backend_bytes": Measure("from the store", "bytes", "less"),
}
POLICIES = ("belady", "lru")
SIMULATE_SECONDS_MAX = 120


def steps(_scale: Scale) -> int:
    """A run and a simulation for each policy."""
    return 1 + 2 * len(POLICIES)


def run(bench: Bench[Scale]) -> None:
    """A table for each policy; the first has the bound too."""
    scale = bench.scale.slow
    bench.step("making files")
    paths = pictures.arrays(bench.directory / "slow", scale.samples, scale.sample_bytes)
    each = paths[0].stat().st_size
    total, cache = each * len(paths), each * (len(paths) // 2)
    needs = {"root": str(paths[0].parent), "cache_bytes": cache, **asdict(scale)}
    rows: dict[str, Row] = {}
    simulated: dict[str, Row] = {}
    for policy in POLICIES:
        entry = Entry(f"tensorferry, {policy}", "ours", "slow.run", {**needs, "policy": policy})
        rows[policy] = Row(entry.name, entry.role)
        once(bench, "slow store", entry, rows[policy], EPOCHS)
        bench.step(f"slow store: simulating {policy}")
        simulated[policy] = simulation(scale, policy, each, cache)
    rate = scale.bytes_per_second
    bound = Row("lower bound", "limit")
    bound.add(EPOCHS["seconds"], (total - cache) / rate)
    bound.add(EPOCHS["backend_bytes"], total - cache)
    note = f"{len(paths)} files, {total / 1e6:.0f} MB at {rate / 1e6:.0f} MB/s, a cache of half of "
    note += f"it; epochs 2 to {scale.epochs}"
    first, second = POLICIES
    table = Table("slow store", note, list(EPOCHS.values()))
    table.rows = [rows[first], bound, simulated[first], rows[second]]
    bench.show(table)
    table = Table("slow store, lru as simulated", note, list(EPOCHS.values()))
    table.rows = [rows[second], simulated[second]]
    bench.show(table)


def simulation(scale: Slow, policy: str, each: int, cache: int) -> Row:
    """What the simulator says of the same run."""
    row = Row(f"simulate cache, {policy}", "limit")
    options = {
        "samples": scale.samples,
        "mean-bytes": each,
        "batch": scale.batch,
        "cache": cache,
        "epochs": scale.epochs,
        "policy": policy,
        "seed": 0,
        "backend-bandwidth": scale.bytes_per_second,
        "train-seconds": 0,
    }
    command = [sys.executable, "-P", "-m", "tensorferry", "simulate", "cache", "--json"]
    command += [f"--{name}={value}" for name, value in options.items()]
    try:
        ended = subprocess.run(
            command, capture_output=True, text=True, timeout=SIMULATE_SECONDS_MAX, check=False
        )
        if ended.returncode:
            lines = ended.stderr.strip().splitlines()
            raise RuntimeError(lines[0] if lines else f"exit status {ended.returncode}")
        epochs = json.loads(ended.stdout)["policies"][0]["epochs"]
        for epoch in epochs[1:]:
            row.add(EPOCHS["seconds"], epoch["seconds"])
            row.add(EPOCHS["backend_bytes"], epoch["backend_bytes"])
    except Exception as error:
        row.absent = describe(error)
    return row


@case("slow.run")
def slow_run(request: dict[str, Any]) -> dict[str, Any]:
    """All epochs; the first, in which everything is read, is left out."""
    import tensorferry as ferry
    from tensorferry._data.datasets import Throttled
    from tensorferry.data import Files

    paths = sorted(Path(request["root"]).glob("*.npy"))
    loader = ferry.DataLoader(
        Throttled(Files(paths), int(request["bytes_per_second"])),
        int(request["batch"]),
        shuffle=True,
        seed=0,
        num_workers=2,
        cache_limit=int(request["cache_bytes"]),
        cache_policy=request["policy"],
    )
    seconds, read = [], [0]
    for _ in range(int(request["epochs"])):
        start = time.perf_counter()
        for _batch in loader:
            pass
        seconds.append(time.perf_counter() - start)
        read.append(backend_bytes(loader, paths[0].stat().st_size))
    loader.close()
    backend = [after - before for before, after in pairwise(read)]
    return {"seconds": seconds[1:], "backend_bytes": backend[1:]}


def backend_bytes(loader: Any, each: int) -> int:
    """What came from the store so far; all files are alike."""
    return int(loader.stats().cache_hits["backend"]) * each
