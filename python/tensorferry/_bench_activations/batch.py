"""The largest batch of a deep network that trains within a fixed amount of memory."""

from __future__ import annotations

import math
from typing import Any

from tensorferry._bench.bench import Bench
from tensorferry._bench.cases import case
from tensorferry._bench.child import Child
from tensorferry._bench.contest import Measures
from tensorferry._bench.table import Finding, Measure, Role, Row, Table
from tensorferry._bench_activations.scale import Batch, Scale
from tensorferry._bench_activations.training import Trainee

MEASURES: Measures = {
    "batch": Measure("largest batch", "samples", "more"),
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
    keeps = Search(bench, "plain", scale.first, {})
    plain = Search(bench, "plain", scale.first, GIVES_BACK)
    first = math.ceil(AIM * max(plain.best, keeps.best))
    ours = Search(bench, "ours", max(first, scale.first), {})
    rows = [
        ours.row("tensorferry", "ours"),
        plain.row("plain, malloc gives back", "limit"),
        keeps.row("plain, malloc as it is", "limit"),
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


class Search:
    """Doubles until it does not fit, then halves the rest; each probe is a process of its own."""

    def __init__(
        self, bench: Bench[Scale], way: str, first: int, environment: dict[str, str]
    ) -> None:
        self._bench, self._way, self._scale = bench, way, bench.scale.batch
        self._environment = environment
        self._answers: dict[int, dict[str, Any]] = {}
        self._refusal = "nothing was tried"
        self._directory = bench.directory / way
        self._directory.mkdir(exist_ok=True)
        fits, fails = self._doubled(first)
        while fails - fits > max(1, fits // self._scale.precision):
            middle = (fits + fails) // 2
            fits, fails = (middle, fails) if self._probe(middle) else (fits, middle)
        self.best = fits

    def row(self, name: str, role: Role) -> Row:
        """What the largest came to."""
        row = Row(name, role)
        if not self.best:
            row.absent = self._refusal
            return row
        for field, measure in MEASURES.items():
            row.add(measure, self._answers[self.best][field])
        return row

    def _doubled(self, first: int) -> tuple[int, int]:
        """The last that fits, or none, and the first that does not."""
        fits, next_ = 0, first
        while next_ <= self._scale.most:
            if not self._probe(next_):
                return fits, next_
            fits, next_ = next_, 2 * next_
        return fits, fits + 1

    def _probe(self, batch: int) -> bool:
        self._bench.step(f"largest batch: {self._way}, {batch} samples")
        scale: Batch = self._scale
        child = Child(**self._environment)
        answer = child.ask(
            "batch.probe",
            way=self._way,
            batch=batch,
            sizes=scale.sizes,
            steps=scale.steps,
            directory=str(self._directory),
            budget=int(scale.limit_bytes * scale.budget_share),
            min_bytes=self._bench.scale.min_bytes,
        )
        child.end()
        if "error" in answer:
            self._refusal = str(answer["error"])
            return False
        self._answers[batch] = answer
        if answer["peak_bytes"] > scale.limit_bytes:
            self._refusal = f"{answer['peak_bytes'] / 2**20:.0f} MiB for {batch} samples"
            return False
        return True


@case("batch.probe")
def probe(request: dict[str, Any]) -> dict[str, Any]:
    """A few steps with one batch; the last is timed."""
    from tensorferry._bench_activations.ways import WAYS

    batch = int(request["batch"])
    trainee = Trainee("deep", request["sizes"], batch)
    way = WAYS[request["way"]](request)
    seconds = [trainee.step(way) for _ in range(int(request["steps"]))]
    return {
        "batch": batch,
        "samples_per_second": batch / seconds[-1],
        "peak_bytes": trainee.peak_bytes(),
    }
