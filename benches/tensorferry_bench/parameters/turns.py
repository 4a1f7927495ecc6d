"""Timed steps, and what they are compared by."""

from __future__ import annotations

import statistics
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tensorferry_bench.bench import Bench
from tensorferry_bench.cases import case
from tensorferry_bench.contest import Entry, Measures, hold
from tensorferry_bench.parameters.scale import Scale, Steps
from tensorferry_bench.table import Finding, Measure, Row, Table

if TYPE_CHECKING:
    from tensorferry_bench.parameters.ways import Way

SECONDS = Measure("step", "seconds", "less")
STEPS: Measures = {
    "seconds": SECONDS,
    "rate": Measure("memory traffic", "bytes_per_second", "more"),
    "peak_bytes": Measure("peak memory", "bytes", "less"),
}
NAMES = {
    "ours": "tensorferry",
    "fused": "torch, fused",
    "foreach": "torch, foreach",
    "deepspeed": "DeepSpeed CPUAdam",
}
AIM = 1.0


def contest(bench: Bench[Scale], name: str, steps: Steps, dtype: str, traffic: int) -> None:
    """Everybody's steps, by turns; ``traffic`` is what one element's step moves at least."""
    needs = {"dtype": dtype, "traffic": traffic, **asdict(steps)}
    entries = [
        Entry(title, "ours" if way == "ours" else "rival", "turns.steps", needs | {"way": way})
        for way, title in NAMES.items()
    ]
    rows = hold(bench, name, entries, steps.rounds, STEPS)
    note = f"{steps.elements:,} {dtype} parameters, {steps.timed} steps a turn; {traffic} bytes "
    note += "are read or written for each"
    bench.show(Table(name, note, list(STEPS.values()), rows, findings(rows)))


def findings(rows: list[Row]) -> list[Finding]:
    """How much slower the fastest rival is."""
    ours, *rivals = rows
    times = {row.name: statistics.median(row.values[SECONDS.name]) for row in rows if row.values}
    if ours.name not in times:
        return []
    present = [times[row.name] for row in rivals if row.name in times]
    if not present:
        return []
    ratio = min(present) / times[ours.name]
    return [Finding("step, fastest rival / ours", ratio, "at least 1.0", ratio >= AIM)]


class Stepper:
    """What a process keeps between its turns."""

    def __init__(self, request: dict[str, Any], **more: Any) -> None:
        import torch

        from tensorferry_bench.activations import memory
        from tensorferry_bench.parameters.ways import model, way_of

        dtype = getattr(torch, request["dtype"])
        parameters = model(int(request["elements"]), int(request["largest"]), dtype)
        self.own_bytes = memory.resident()
        self.way: Way = way_of(request["way"], parameters, **more)
        self.way.step()

    def times(self, steps: int) -> list[float]:
        """Seconds of each."""
        seconds = []
        for _ in range(steps):
            began = time.perf_counter()
            self.way.step()
            seconds.append(time.perf_counter() - began)
        return seconds

    def peak_bytes(self) -> int:
        """Above parameters and gradients."""
        from tensorferry_bench.activations import memory

        return max(memory.peak() - self.own_bytes, 0)


_KEPT: dict[str, Stepper] = {}


def kept(request: dict[str, Any], **more: Any) -> Stepper:
    """The one of this process."""
    way = str(request["way"])
    if way not in _KEPT:
        _KEPT[way] = Stepper(request, **more)
    return _KEPT[way]


@case("turns.steps")
def turn(request: dict[str, Any]) -> dict[str, Any]:
    """Some steps."""
    stepper = kept(request)
    seconds = stepper.times(int(request["timed"]))
    moved = int(request["elements"]) * int(request["traffic"])
    return {
        "seconds": seconds,
        "rate": [moved / each for each in seconds],
        "peak_bytes": stepper.peak_bytes(),
    }
