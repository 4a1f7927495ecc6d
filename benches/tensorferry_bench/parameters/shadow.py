"""A small GPT whose parameters are in host memory, behind a link that is the bottleneck.

The plans are carried out by the same engine: ``copy`` is ZeRO-Offload's schedule, ``paper``
MemFerry's, ``exact`` ours. Plain training, on a device that has room for all of it, is the limit;
losses and parameters of all others must be the same, bit for bit, or there are no figures at all.
"""

from __future__ import annotations

from dataclasses import asdict
from statistics import median
from typing import TYPE_CHECKING, Any

from tensorferry_bench.bench import Bench
from tensorferry_bench.cases import case
from tensorferry_bench.contest import Entry, Measures, hold
from tensorferry_bench.parameters.scale import Scale, Shadowed, Shape
from tensorferry_bench.table import Finding, Measure, Role, Row, Table

if TYPE_CHECKING:
    from tensorferry_bench.parameters.gpt import Training

MEASURES: Measures = {
    "seconds": Measure("iteration", "seconds", "less"),
    "expected": Measure("predicted / measured", "share", "more"),
    "idle": Measure("idle", "share", "less"),
    "peak_bytes": Measure("device memory", "bytes", "less"),
}
NAMES: dict[str, tuple[str, Role]] = {
    "exact": ("tensorferry, exact plan", "ours"),
    "paper": ("MemFerry's plan", "rival"),
    "copy": ("every layer copied (ZeRO-Offload's plan)", "rival"),
    "plain": ("plain training, all on the device", "limit"),
}
AIM = 1.2
DEVIATION_MAX = 0.10


def steps(scale: Scale) -> int:
    """Turns of everybody."""
    return scale.shadow.rounds * len(NAMES)


def run(bench: Bench[Scale]) -> None:
    """One table."""
    scale = bench.scale.shadow
    needs = {"shape": asdict(scale.shape), "device": scale.device, "warm": scale.warm}
    entries = [
        Entry(name, role, "shadow.steps", needs | {"way": way, "timed": scale.timed})
        for way, (name, role) in NAMES.items()
    ]
    prints = Prints()
    rows = hold(bench, "shadow", entries, scale.rounds, MEASURES, prints.hear)
    found = [*findings(rows, prints.budget_bytes), prints.finding(scale.steps)]
    bench.show(Table("shadow", note(scale), list(MEASURES.values()), rows, found))


def note(scale: Shadowed) -> str:
    """What it was that trained."""
    device = scale.device.partition(":")[2]
    return (
        f"{scale.shape}; a device of {device}; one thread computes; {scale.steps} steps with AdamW "
        f"each, updates on arrival, of which the first {scale.warm} are not timed"
    )


class Prints:
    """Fingerprints of losses and parameters, which have to agree after every turn."""

    def __init__(self) -> None:
        self.budget_bytes = 0
        self._known: dict[int, tuple[str, str]] = {}
        self._agreed = 0

    def hear(self, entry: Entry, answer: dict[str, Any]) -> None:
        """Raises if anybody has come to other bits."""
        self.budget_bytes = max(self.budget_bytes, int(answer["budget_bytes"] or 0))
        step, print_ = int(answer["steps"]), str(answer["fingerprint"])
        name, known = self._known.setdefault(step, (entry.name, print_))
        if known != print_:
            raise RuntimeError(
                f"after {step} steps, losses or parameters of {entry.name!r} are not those of "
                f"{name!r}: they have to be the same, bit for bit"
            )
        self._agreed = max(self._agreed, step)

    def finding(self, expected: int) -> Finding:
        """After how many steps they still did."""
        what = "steps with the losses and parameters of plain training, bit for bit"
        return Finding(what, self._agreed, f"{expected}", self._agreed == expected)


def findings(rows: list[Row], budget_bytes: int) -> list[Finding]:
    """What a plan is worth, whether it was believed rightly, and whether it kept its budget."""
    exact, paper, copy, _ = rows
    seconds, expected, _, peak = MEASURES.values()
    found = []
    for row in (copy, paper):
        if row.values and exact.values:
            ratio = median(row.values[seconds.name]) / median(exact.values[seconds.name])
            aim = ("at least 1.2", ratio >= AIM) if row is copy else (None, None)
            found.append(Finding(f"iteration, {row.name} / ours", ratio, *aim))
    for row in (exact, paper, copy):
        if row.values:
            ratio = 1 / median(row.values[expected.name])
            met = abs(ratio - 1) <= DEVIATION_MAX
            found.append(Finding(f"measured / predicted, {row.name}", ratio, "0.9 to 1.1", met))
    peaks = [max(row.values[peak.name]) for row in (exact, paper, copy) if row.values]
    if peaks and budget_bytes:
        share = max(peaks) / budget_bytes
        found.append(Finding("most device memory / budget", share, "at most 1", share <= 1))
    return found


_KEPT: list[Training] = []


def kept(request: dict[str, Any]) -> Training:
    """The one of this process, which has seen its last plan made."""
    from tensorferry_bench.parameters.gpt import Training

    if not _KEPT:
        way = request["way"]
        options = {"device": request["device"], "planner": way, "update": "arrival"}
        shadow = None if way == "plain" else options
        _KEPT.append(Training(Shape(**request["shape"]), shadow))
        for _ in range(int(request["warm"])):
            _KEPT[0].step()
    return _KEPT[0]


@case("shadow.steps")
def turn(request: dict[str, Any]) -> dict[str, Any]:
    """Some steps."""
    training = kept(request)
    told: dict[str, list[float]] = {name: [] for name in MEASURES}
    budget = None
    for _ in range(int(request["timed"])):
        told["seconds"].append(training.step())
        if training.shadow is not None:
            report = training.shadow.report()
            assert report.predicted_seconds is not None, "it is planned by now"
            told["expected"].append(report.predicted_seconds / report.seconds)
            told["idle"].append(report.idle_share)
            told["peak_bytes"].append(report.peak_bytes)
            budget = report.budget
    known = {"steps": len(training.losses), "fingerprint": training.fingerprint()}
    return {**told, **known, "budget_bytes": budget}
