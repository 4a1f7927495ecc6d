"""Pictures to batches: how fast, at which cost, how soon, in how much memory."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tensorferry_bench.bench import Bench
from tensorferry_bench.cases import case
from tensorferry_bench.contest import Entry, Measures, hold
from tensorferry_bench.data import pictures
from tensorferry_bench.data.loaders import LOADERS, SIDE, Loader
from tensorferry_bench.data.scale import Images, Scale
from tensorferry_bench.table import Measure, Table
from tensorferry_bench.usage import Peak, cpu_seconds, memory_bytes

NAMES = {
    "ferry": "tensorferry, 2 threads",
    "torch": "torch DataLoader, 2 workers",
    "torch alone": "torch DataLoader, 0 workers",
    "dali": "DALI, 2 threads",
    "spdl": "SPDL, 2 threads",
    "webdataset": "WebDataset, 2 workers",
}

SPEED: Measures = {
    "images_per_second": Measure("images", "samples_per_second", "more"),
    "cpu_seconds": Measure("CPU an image", "seconds", "less"),
    "first_seconds": Measure("first batch", "seconds", "less"),
}
MEMORY: Measures = {
    "imports_bytes": Measure("after imports", "bytes", "less"),
    "peak_bytes": Measure("peak", "bytes", "less"),
    "extra_bytes": Measure("beyond them", "bytes", "less"),
    "growth": Measure("growth", "share", "less"),
}
END_SHARE = 5
"""Growth is told between the largest sizes in a fifth of the epochs at either end."""


def steps(scale: Scale) -> int:
    """Turns of everybody."""
    return 1 + len(LOADERS) * (scale.images.rounds + 1)


def run(bench: Bench[Scale]) -> None:
    """Both tables."""
    size = bench.scale.images
    bench.step("making pictures")
    made = [pictures.jpeg(size.width, size.height, i) for i in range(size.distinct)]
    root, short = bench.directory / "images", bench.directory / "short"
    for place, names in ((root, size.names), (short, size.memory_batches * size.batch)):
        pictures.folder(place, names, made[:names])
        pictures.shards(place.with_name(place.name + "-shards"), names, made)
    average = sum(len(each) for each in made) / len(made)
    work = f"JPEG {size.width}x{size.height} of {average / 1e3:.0f} KB, RandomResizedCrop({SIDE}), "
    work += f"flip, normalize, batches of {size.batch}"
    needs = {"root": str(root), **asdict(size)}
    entries = entries_for("images.turn", needs)
    rows = hold(bench, "images", entries, size.rounds, SPEED)
    bench.show(Table("images", f"{work}; {size.timed} batches a turn", list(SPEED.values()), rows))
    bench.show(memory_table(bench, size, short))


def memory_table(bench: Bench[Scale], size: Images, root: Path) -> Table:
    """In processes of their own."""
    entries = entries_for("images.memory", {"root": str(root), **asdict(size)})
    note = f"PSS of all processes over {size.memory_epochs} epochs of {size.memory_batches} batches"
    table = Table("images, memory", note, list(MEMORY.values()))
    for entry in entries:
        row = hold(bench, "images, memory", [entry], 1, MEMORY)
        table.rows += row
    return table


def entries_for(which: str, needs: dict[str, Any]) -> list[Entry]:
    """Everybody, tensorferry first."""
    return [
        Entry(NAMES[who], "ours" if who == "ferry" else "rival", which, {"loader": who, **needs})
        for who in LOADERS
    ]


@case("images.turn")
def turn(request: dict[str, Any]) -> dict[str, Any]:
    """A new loader: its first batch, some to warm up, and those on the clock. It is in the middle
    of an epoch when the clock stops, so nobody gains by what was ready before it started."""
    timed, batch = int(request["timed"]), int(request["batch"])
    import_all(request)
    start = time.perf_counter()
    loader = opened(request)
    batches = iter(loader)
    check(next(batches), batch)
    first = time.perf_counter() - start
    for _ in range(int(request["warm"])):
        next(batches)
    cpu, start = cpu_seconds(), time.perf_counter()
    for _ in range(timed):
        next(batches)
    seconds, cpu = time.perf_counter() - start, cpu_seconds() - cpu
    del batches
    loader.close()
    return {
        "images_per_second": timed * batch / seconds,
        "cpu_seconds": cpu / (timed * batch),
        "first_seconds": first,
    }


@case("images.memory")
def memory(request: dict[str, Any]) -> dict[str, Any]:
    """Epochs, with an eye on memory."""
    import_all(request)
    imports = memory_bytes()
    with Peak() as peak:
        loader = opened(request)
        sizes = []
        for _ in range(int(request["memory_epochs"])):
            for _batch in loader:
                pass
            sizes.append(peak.take())
        loader.close()
    end, peak_bytes = max(1, len(sizes) // END_SHARE), max(sizes)
    return {
        "imports_bytes": imports,
        "peak_bytes": peak_bytes,
        "extra_bytes": peak_bytes - imports,
        "growth": max(sizes[-end:]) / max(sizes[:end]) - 1,
    }


def opened(request: dict[str, Any]) -> Loader:
    """The contestant's loader."""
    return LOADERS[request["loader"]](Path(request["root"]), int(request["batch"]))


def import_all(request: dict[str, Any]) -> None:
    """Once in a process, a loader is made and dropped unused: only it knows what it imports."""
    if request["loader"] not in imported:
        opened(request).close()
        imported.add(request["loader"])


imported: set[str] = set()


def check(batch: Any, size: int) -> None:
    """That everybody gives the same: float32, CHW, with labels."""
    import torch

    images, labels = batch
    if images.shape != (size, 3, SIDE, SIDE) or images.dtype != torch.float32:
        raise ValueError(f"gave {tuple(images.shape)} of {images.dtype}")
    if len(labels) != size:
        raise ValueError(f"gave {len(labels)} labels")
