"""Two consumers of one process, one with large pictures, one with small ones: how far apart they
get their batches, with threads that are divided once and with threads that go where work is."""

from __future__ import annotations

import threading
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tensorferry_bench.bench import Bench
from tensorferry_bench.cases import case
from tensorferry_bench.contest import Entry, Measures, hold
from tensorferry_bench.data import pictures
from tensorferry_bench.data.loaders import MEAN, SIDE, STD
from tensorferry_bench.data.scale import Scale
from tensorferry_bench.table import Measure, Table

GAPS: Measures = {
    "step_gap": Measure("gap a step", "seconds", "less"),
    "end_gap": Measure("gap at the end", "seconds", "less"),
    "seconds": Measure("epoch", "seconds", "less"),
}
MODES = ("auto", "static")
WAIT_SECONDS_MAX = 600
LINK_BYTES_PER_SECOND = 100_000_000_000
"""Of all requests together: no limit."""


def steps(scale: Scale) -> int:
    """Turns of both modes."""
    return 1 + len(MODES) * scale.consumers.rounds


def run(bench: Bench[Scale]) -> None:
    """The table."""
    scale = bench.scale.consumers
    bench.step("making pictures of two sizes")
    roots = {}
    for name, (width, height) in (("large", scale.large), ("small", scale.small)):
        made = [pictures.jpeg(width, height, i) for i in range(scale.distinct)]
        root = bench.directory / f"consumer-{name}"
        roots[name] = str(pictures.folder(root, scale.batch * scale.batches, made))
    needs = {"roots": roots, **asdict(scale)}
    entries = [
        Entry(f"tensorferry, {mode}", "ours", "consumers.turn", {**needs, "threads": mode})
        for mode in MODES
    ]
    rows = hold(bench, "consumers", entries, scale.rounds, GAPS)
    large, small = ("x".join(str(side) for side in each) for each in (scale.large, scale.small))
    rate = f"{scale.connection_bytes_per_second / 1e6:.0f} MB/s a request"
    note = f"JPEG {large} and {small} at {rate}, "
    note += f"batches of {scale.batch}, {scale.workers} threads; a step ends when both have theirs"
    bench.show(Table("two consumers", note, list(GAPS.values()), rows))


@case("consumers.turn")
def turn(request: dict[str, Any]) -> dict[str, Any]:
    """An epoch in step with one another, and one in which each goes as fast as it can."""
    together = epoch(request, in_step=True)
    gaps = [abs(large - small) for large, small in zip(*together, strict=True)]
    apart = epoch(request, in_step=False)
    end = abs(apart[0][-1] - apart[1][-1])
    seconds = max(times[-1] for times in together)
    return {"step_gap": sum(gaps) / len(gaps), "end_gap": end, "seconds": seconds}


def epoch(request: dict[str, Any], *, in_step: bool) -> list[list[float]]:
    """When each consumer had each of its batches, in seconds since both began."""
    loaders = [opened(root, request) for root in request["roots"].values()]
    meeting = threading.Barrier(len(loaders), timeout=WAIT_SECONDS_MAX)
    times: list[list[float]] = [[] for _ in loaders]
    failures: list[BaseException] = []

    def consume(place: int) -> None:
        try:
            meeting.wait()
            start = time.perf_counter()
            for _batch in loaders[place]:
                times[place].append(time.perf_counter() - start)
                if in_step:
                    meeting.wait()
        except BaseException as error:
            failures.append(error)
            meeting.abort()

    threads = [threading.Thread(target=consume, args=(place,)) for place in range(len(loaders))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for loader in loaders:
        loader.close()
    if failures:
        raise failures[0]
    return times


def opened(root: str, request: dict[str, Any]) -> Any:
    """A consumer's loader."""
    import tensorferry as ferry
    from tensorferry._data.datasets import Throttled
    from tensorferry.data import ImageFolder
    from tensorferry.data import transforms as t

    chain = t.Compose([t.Decode(), t.RandomResizedCrop(SIDE), t.Normalize(MEAN, STD)])
    sizes = [path.stat().st_size for path in Path(root).rglob("*.jpg")]
    latency = sum(sizes) / len(sizes) / request["connection_bytes_per_second"]
    return ferry.DataLoader(
        Throttled(ImageFolder(root), LINK_BYTES_PER_SECOND, latency),
        int(request["batch"]),
        shuffle=True,
        seed=0,
        num_workers=int(request["workers"]),
        transform=chain,
        cache_limit=0,
        threads=request["threads"],
    )
