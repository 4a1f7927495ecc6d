"""Large arrays: how near loading comes to a plain copy of the same bytes."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from tensorferry_bench.bench import Bench
from tensorferry_bench.cases import case
from tensorferry_bench.contest import Entry, Measures, hold
from tensorferry_bench.data import pictures
from tensorferry_bench.data.scale import Scale
from tensorferry_bench.table import Measure, Role, Table

SPEED: Measures = {
    "bytes_per_second": Measure("bytes", "bytes_per_second", "more"),
    "seconds": Measure("epoch", "seconds", "less"),
}

ENTRIES: tuple[tuple[str, Role, str, dict[str, int]], ...] = (
    ("tensorferry, 2 threads", "ours", "arrays.ferry", {"workers": 2}),
    ("copy_, 1 thread", "limit", "arrays.copy", {"workers": 1}),
    ("copy_, 2 threads", "limit", "arrays.copy", {"workers": 2}),
    ("torch DataLoader, 2 workers", "rival", "arrays.torch", {"workers": 2}),
    ("torch DataLoader, 0 workers", "rival", "arrays.torch", {"workers": 0}),
)


def steps(scale: Scale) -> int:
    """Turns of everybody, for each size and batch."""
    arrays = scale.arrays
    return len(arrays.sizes) * (1 + len(ENTRIES) * len(arrays.batches) * arrays.rounds)


def run(bench: Bench[Scale]) -> None:
    """A table for each size and batch."""
    scale = bench.scale.arrays
    for size in scale.sizes:
        bench.step("making arrays")
        # A whole number of batches of every size.
        count = max(scale.batches) * max(1, scale.epoch_bytes // size // max(scale.batches))
        paths = pictures.arrays(bench.directory / f"arrays-{size}", count, size)
        for batch in scale.batches:
            needs = {"root": str(paths[0].parent), "batch": batch, "epochs": scale.epochs}
            entries = [
                Entry(name, role, case, {**needs, **more}) for name, role, case, more in ENTRIES
            ]
            name = f"arrays of {size / 1e6:g} MB, batches of {batch}"
            rows = hold(bench, name, entries, scale.rounds, SPEED)
            note = f"{count} .npy files in the page cache; copy_ is into memory that is there"
            bench.show(Table(name, note, list(SPEED.values()), rows))


def timed(epochs: int, size: int, epoch: Callable[[], Iterable[Any]]) -> dict[str, Any]:
    """An epoch to warm up, then those on the clock."""
    for _ in epoch():
        pass
    start = time.perf_counter()
    for _ in range(epochs):
        for _ in epoch():
            pass
    seconds = (time.perf_counter() - start) / epochs
    return {"bytes_per_second": size / seconds, "seconds": seconds}


def files(request: dict[str, Any]) -> tuple[list[Path], int]:
    """The arrays, and their bytes."""
    paths = sorted(Path(request["root"]).glob("*.npy"))
    return paths, sum(path.stat().st_size for path in paths)


def check(batch: Any, number: int) -> None:
    """The first arrays have their numbers at both ends."""
    if any(float(array[0]) != i + number or array[0] != array[-1] for i, array in enumerate(batch)):
        raise ValueError("gave other arrays than there are")


@case("arrays.ferry")
def ferry(request: dict[str, Any]) -> dict[str, Any]:
    """Ours."""
    import tensorferry as ferry
    from tensorferry.data import Files

    paths, size = files(request)
    loader = ferry.DataLoader(
        Files(paths), int(request["batch"]), num_workers=int(request["workers"]), cache_limit=0
    )
    check(next(iter(loader)), 0)
    told = timed(int(request["epochs"]), size, lambda: loader)
    loader.close()
    return told


@case("arrays.torch")
def torch_loader(request: dict[str, Any]) -> dict[str, Any]:
    """torch's, with a dataset of a user's."""
    from torch.utils.data import DataLoader

    paths, size = files(request)
    workers = int(request["workers"])
    loader: DataLoader[Any] = DataLoader(
        Loaded(paths),  # type: ignore[arg-type]
        int(request["batch"]),
        num_workers=workers,
        persistent_workers=workers > 0,
    )
    check(next(iter(loader)), 0)
    return timed(int(request["epochs"]), size, lambda: loader)


class Loaded:
    """Arrays as a user's dataset loads them."""

    def __init__(self, paths: list[Path]) -> None:
        self._paths = paths

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, index: int) -> Any:
        return importlib.import_module("numpy").load(self._paths[index])


@case("arrays.copy")
def copy(request: dict[str, Any]) -> dict[str, Any]:
    """The same bytes from memory to memory that is there: what no loader undercuts."""
    import torch

    torch.set_num_threads(int(request["workers"]))
    paths, size = files(request)
    sources = [torch.ones(path.stat().st_size // 4) for path in paths]
    # As many as a loader has in use: one that is handed over, one that is filled.
    targets = [torch.ones_like(source) for source in sources[: 2 * int(request["batch"])]]

    def epoch() -> Iterable[None]:
        for i, source in enumerate(sources):
            targets[i % len(targets)].copy_(source)
            yield None

    return timed(int(request["epochs"]), size, epoch)
