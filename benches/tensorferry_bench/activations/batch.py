"""The largest batch of a deep network that trains within a fixed amount of memory."""

from __future__ import annotations

import math
from typing import Any

from tensorferry_bench.activations.scale import Batch, Scale
from tensorferry_bench.activations.training import Trainee
from tensorferry_bench.bench import Bench
from tensorferry_bench.cases import case
from tensorferry_bench.child import Child
from tensorferry_bench.contest import Measures
from tensorferry_bench.largest import DoesNotFit, Largest
from tensorferry_bench.table import Finding, Measure, Table

MEASURES: Measures = {
    "batch": Measure("largest batch", "count", "more"),
    "samples_per_second": Measure("speed", "samples_per_second", "more"),
    "peak_bytes": Measure("peak memory", "bytes", "less"),
}
AIM = 12.4
PROBES_USUAL = 10
GIVES_BACK = {"MALLOC_MMAP_THRESHOLD_": str(1 << 20)}
"""glibc keeps what is freed below a size that grows up to 32 MiB, unless that size is given. An
offload gives it; plain training is tried both ways."""


def steps(_scale: Scale) -> int:
    """About as many probes as a search takes, for all three."""
    return 3 * PROBES_USUAL


def run(bench: Bench[Scale]) -> None:
    """The table; plain training goes first, because ours begins with the aim over its result."""
    scale = bench.scale.batch
    keeps = largest(bench, "plain", scale.first, {})
    plain = largest(bench, "plain", scale.first, GIVES_BACK)
    first = math.ceil(AIM * max(plain.best, keeps.best))
    ours = largest(bench, "ours", max(first, scale.first), {})
    rows = [
        ours.row("tensorferry", "ours", MEASURES),
        plain.row("plain, malloc gives back", "limit", MEASURES),
        keeps.row("plain, malloc as it is", "limit", MEASURES),
    ]
    sizes = ", ".join(f"{size} {value}" for size, value in scale.sizes.items())
    limit = f"{scale.limit_bytes / 2**20:.0f} MiB above the model's own"
    note = f"deep residual convolutions ({sizes}) within {limit}, of which "
    note += f"{scale.budget_share:.0%} are our budget; probes of {scale.steps} steps"
    table = Table("largest batch", note, list(MEASURES.values()), rows)
    if ours.best and plain.best:
        ratio = ours.best / max(plain.best, keeps.best)
        what = "largest batch, ours / the larger of plain training"
        table.findings.append(Finding(what, ratio, f"at least {AIM}", ratio >= AIM))
    bench.show(table)


def largest(bench: Bench[Scale], way: str, first: int, environment: dict[str, str]) -> Largest:
    """The largest batch with one way of training."""
    scale: Batch = bench.scale.batch
    directory = bench.directory / way
    directory.mkdir(exist_ok=True)

    def probe(batch: int) -> dict[str, Any]:
        bench.step(f"largest batch: {way}, {batch} samples")
        child = Child(**environment)
        answer = child.ask(
            "batch.probe",
            way=way,
            batch=batch,
            sizes=scale.sizes,
            steps=scale.steps,
            directory=str(directory),
            budget=int(scale.limit_bytes * scale.budget_share),
            min_bytes=bench.scale.min_bytes,
        )
        child.end()
        if "error" in answer:
            raise DoesNotFit(answer["error"])
        if answer["peak_bytes"] > scale.limit_bytes:
            raise DoesNotFit(f"{answer['peak_bytes'] / 2**20:.0f} MiB for {batch} samples")
        return answer

    return Largest(probe, first, scale.most, scale.precision)


@case("batch.probe")
def probe(request: dict[str, Any]) -> dict[str, Any]:
    """A few steps with one batch; the last is timed."""
    from tensorferry_bench.activations.ways import WAYS

    batch = int(request["batch"])
    trainee = Trainee("deep", request["sizes"], batch)
    way = WAYS[request["way"]](request)
    seconds = [trainee.step(way) for _ in range(int(request["steps"]))]
    return {
        "batch": batch,
        "samples_per_second": batch / seconds[-1],
        "peak_bytes": trainee.peak_bytes(),
    }
