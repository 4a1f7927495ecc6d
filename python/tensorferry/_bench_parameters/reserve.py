"""The largest model that runs in a budget, with all gradients written to host memory or none.

Every layer is copied in, both times: the exact planner gives up gradients' places by itself where
memory is short, so that with it both would come to the same.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from tensorferry._bench.bench import Bench
from tensorferry._bench.cases import case
from tensorferry._bench.child import Child
from tensorferry._bench.contest import Measures
from tensorferry._bench.table import Finding, Measure, Role, Row, Table
from tensorferry._bench_parameters.scale import Scale, Shape

MEASURES: Measures = {
    "blocks": Measure("most blocks", "samples", "more"),
    "parameter_bytes": Measure("parameters", "bytes", "more"),
    "peak_bytes": Measure("device memory", "bytes", "less"),
    "seconds": Measure("iteration", "seconds", "less"),
}
AIM = 1.5
PLANNER = "copy"
PROBES_USUAL = 9
BLOCKS_MAX = 512


def steps(_scale: Scale) -> int:
    """About as many probes as a search takes, for both."""
    return 2 * PROBES_USUAL


def run(bench: Bench[Scale]) -> None:
    """One table."""
    scale = bench.scale.reserve
    without, with_ = Search(bench, 0.0), Search(bench, 1.0)
    rows = [
        without.row("gradients in host memory (reserve 0)", "ours"),
        with_.row("gradients on the device (reserve 1)", "rival"),
    ]
    words = f"{scale.shape.width} wide, {scale.shape.batch} x {scale.shape.length} words in a batch"
    note = f"GPT of as many blocks as run within {scale.budget_bytes / 2**20:.0f} MiB; {words}; "
    note += f"every layer is copied in; probes of {scale.steps} steps"
    table = Table("reserve", note, list(MEASURES.values()), rows, findings(rows))
    bench.show(table)


def findings(rows: list[Row]) -> list[Finding]:
    """How much larger."""
    if not all(row.values for row in rows):
        return []
    name = MEASURES["parameter_bytes"].name
    ratio = rows[0].values[name][0] / rows[1].values[name][0]
    what = "parameters, gradients in host memory / on the device"
    return [Finding(what, ratio, f"at least {AIM}", ratio >= AIM)]


class Search:
    """Doubles until it does not fit, then halves the rest; each probe is a process of its own."""

    def __init__(self, bench: Bench[Scale], reserve: float) -> None:
        self._bench, self._reserve, self._scale = bench, reserve, bench.scale.reserve
        self._answers: dict[int, dict[str, Any]] = {}
        self._refusal = "nothing was tried"
        fits, fails = self._doubled(self._scale.shape.blocks)
        while fails - fits > 1:
            middle = (fits + fails) // 2
            fits, fails = (middle, fails) if self._probe(middle) else (fits, middle)
        self._best = fits

    def row(self, name: str, role: Role) -> Row:
        """What the largest came to."""
        row = Row(name, role)
        if not self._best:
            row.absent = self._refusal
            return row
        for field, measure in MEASURES.items():
            row.add(measure, self._answers[self._best][field])
        return row

    def _doubled(self, first: int) -> tuple[int, int]:
        """The last that fits, or none, and the first that does not."""
        fits, next_ = 0, first
        while next_ <= BLOCKS_MAX:
            if not self._probe(next_):
                return fits, next_
            fits, next_ = next_, 2 * next_
        return fits, fits + 1

    def _probe(self, blocks: int) -> bool:
        scale = self._scale
        self._bench.step(f"reserve: {self._reserve:.0f}, {blocks} blocks")
        child = Child()
        answer = child.ask(
            "reserve.probe",
            shape=asdict(replace(scale.shape, blocks=blocks)),
            device=scale.device,
            budget=scale.budget_bytes,
            reserve=self._reserve,
            steps=scale.steps,
        )
        child.end()
        if "error" in answer:
            raise RuntimeError(f"{blocks} blocks with a reserve of {self._reserve}: {answer}")
        if answer["refused"] is not None:
            self._refusal = str(answer["refused"])
            return False
        self._answers[blocks] = answer
        return True


@case("reserve.probe")
def probe(request: dict[str, Any]) -> dict[str, Any]:
    """A few steps with so many blocks; the last is timed."""
    import tensorferry as ferry
    from tensorferry._bench_parameters.gpt import Training

    shadow = {
        "device": request["device"],
        "memory_budget": int(request["budget"]),
        "gradient_reserve": float(request["reserve"]),
        "planner": PLANNER,
        "profile_steps": 1,
    }
    training = Training(Shape(**request["shape"]), shadow)
    try:
        seconds = [training.step() for _ in range(int(request["steps"]))]
    except ferry.InvalidInput as refused:
        return {"refused": str(refused)}
    assert training.shadow is not None
    report = training.shadow.report()
    assert report.stage == "planned", "the last steps have to follow a plan"
    assert report.peak_bytes <= report.budget, "nothing may be above the budget"
    return {
        "refused": None,
        "blocks": int(request["shape"]["blocks"]),
        "parameter_bytes": training.parameter_bytes,
        "peak_bytes": report.peak_bytes,
        "seconds": seconds[-1],
    }
