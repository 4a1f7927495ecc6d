"""The largest model that runs in a budget, with all gradients written to host memory or none.

Every layer is copied in, both times: the exact planner gives up gradients' places by itself where
memory is short, so that with it both would come to the same.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from tensorferry_bench.bench import Bench
from tensorferry_bench.cases import case
from tensorferry_bench.child import Child
from tensorferry_bench.contest import Measures
from tensorferry_bench.largest import DoesNotFit, Largest
from tensorferry_bench.parameters.scale import Scale, Shape
from tensorferry_bench.table import Finding, Measure, Row, Table

MEASURES: Measures = {
    "blocks": Measure("most blocks", "count", "more"),
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
    without, with_ = largest(bench, 0.0), largest(bench, 1.0)
    rows = [
        without.row("gradients in host memory (reserve 0)", "ours", MEASURES),
        with_.row("gradients on the device (reserve 1)", "rival", MEASURES),
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


def largest(bench: Bench[Scale], reserve: float) -> Largest:
    """The most blocks with such a reserve."""
    scale = bench.scale.reserve

    def probe(blocks: int) -> dict[str, Any]:
        bench.step(f"reserve: {reserve:.0f}, {blocks} blocks")
        child = Child()
        answer = child.ask(
            "reserve.probe",
            shape=asdict(replace(scale.shape, blocks=blocks)),
            device=scale.device,
            budget=scale.budget_bytes,
            reserve=reserve,
            steps=scale.steps,
        )
        child.end()
        if "error" in answer:
            raise RuntimeError(f"{blocks} blocks with a reserve of {reserve}: {answer}")
        if answer["refused"] is not None:
            raise DoesNotFit(answer["refused"])
        return answer

    return Largest(probe, scale.shape.blocks, BLOCKS_MAX)


@case("reserve.probe")
def probe(request: dict[str, Any]) -> dict[str, Any]:
    """A few steps with so many blocks; the last is timed."""
    import tensorferry as ferry
    from tensorferry_bench.parameters.gpt import Training

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
