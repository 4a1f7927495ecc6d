"""A network trained in several ways, with a quarter of its activations in memory."""

from __future__ import annotations

import hashlib
import statistics
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tensorferry_bench.activations import memory
from tensorferry_bench.activations.scale import Scale, Training
from tensorferry_bench.bench import Bench
from tensorferry_bench.cases import case
from tensorferry_bench.child import Child
from tensorferry_bench.contest import Entry, Measures, once
from tensorferry_bench.table import Finding, Measure, Role, Row, Table

if TYPE_CHECKING:
    from torch import nn

    from tensorferry_bench.activations.networks import Batch
    from tensorferry_bench.activations.ways import Way

STEPS: Measures = {
    "seconds": Measure("step", "seconds", "less"),
    "peak_bytes": Measure("peak memory", "bytes", "less"),
    "written_bytes": Measure("written a step", "bytes", "less"),
    "page_faults": Measure("page faults a step", "count", "less"),
}
STALLS = {
    "forward_stall": Measure("forward", "seconds", "less"),
    "backward_stall": Measure("backward", "seconds", "less"),
    "stall": Measure("step", "seconds", "less"),
}
STALL_ROWS: dict[str, tuple[str, Role]] = {
    "stalls": ("measured", "ours"),
    "predicted": ("predicted", "limit"),
}
NAMES = {
    "ours": "tensorferry",
    "least": "tensorferry, small budget",
    "plain": "plain training",
    "recycled": "plain, our allocator",
    "by hand": "torch.save in hooks",
}
ROLES: dict[str, Role] = {
    "ours": "ours",
    "least": "ours",
    "plain": "limit",
    "recycled": "limit",
    "by hand": "rival",
}
FEW = 2
"""Samples of the batch with which everything runs once before memory is looked at."""
BUDGET_SHARE = 4
STEP_AIM = 1.10
STALL_AIM = 0.20
RIVAL_AIM = 1.30
HIDDEN_SHARE = 0.02
"""I/O fits behind compute if no more than this share of a step is predicted to be stalls."""


def steps_of(training: Training) -> int:
    """Turns of everybody, and one that measures the activations."""
    return 1 + len(NAMES) * training.rounds


def contest(bench: Bench[Scale], name: str, training: Training) -> None:
    """Both tables of a network."""
    directory = bench.directory / name
    directory.mkdir()
    needs = {
        "network": name,
        "directory": str(directory),
        "min_bytes": bench.scale.min_bytes,
        **asdict(training),
    }
    bench.step(f"{name}: measuring its activations")
    child = Child()
    measured = child.ask("training.size", **needs)
    child.end()
    if "error" in measured:
        bench.show(Table(name, "", [], absent=str(measured["error"])))
        return
    saved = int(measured["bytes"])
    needs["saved"] = saved
    needs["budget"] = saved // BUDGET_SHARE
    needs["least"] = int(measured["largest"] * training.least)
    turns = Turns(bench, name, needs, training.rounds)
    sizes = ", ".join(f"{size} {value}" for size, value in training.sizes.items())
    note = f"{sizes}; {saved / 2**20:.0f} MiB of activations; budgets of a quarter of it and, "
    note += f"small, of {training.least} times the largest: {needs['least'] / 2**20:.0f} MiB"
    bench.show(Table(name, note, list(STEPS.values()), turns.rows(), turns.findings()))
    bench.show(turns.stalls(f"{name}, stalls"))


class Turns:
    """All turns of a contest, in processes of their own, interleaved."""

    def __init__(self, bench: Bench[Scale], name: str, needs: dict[str, Any], rounds: int) -> None:
        self._answers: dict[str, list[dict[str, Any]]] = {way: [] for way in NAMES}
        self._rows = {way: Row(NAMES[way], ROLES[way]) for way in NAMES}
        ways = list(NAMES)
        for round_ in range(rounds):
            for turn in range(len(ways)):
                # Who goes first changes: the first of a round finds the machine rested.
                way = ways[(turn + round_) % len(ways)]
                entry = Entry(
                    NAMES[way], self._rows[way].role, "training.turn", needs | {"way": way}
                )
                answer = once(bench, name, entry, self._rows[way], STEPS)
                if answer:
                    self._answers[way].append(answer)

    def rows(self) -> list[Row]:
        """Ours first."""
        return list(self._rows.values())

    def findings(self) -> list[Finding]:
        """What the contest was held for; nothing of those who failed."""
        if not all(self._answers.values()):
            return []
        step = {way: self._median(way, "seconds") for way in NAMES}
        peak = {way: self._median(way, "peak_bytes") for way in NAMES}
        ratio = step["ours"] / step["plain"]
        slower = step["by hand"] / step["least"]
        smaller = peak["least"] / peak["by hand"]
        hidden = self._is_hidden("ours")
        aim = f"at most {STEP_AIM:.2f}" if hidden else None
        met = ratio <= STEP_AIM if hidden else None
        return [
            Finding("step time, ours / plain", ratio, aim, met),
            Finding("step time, ours / plain with our allocator", step["ours"] / step["recycled"]),
            *self._stall_findings("ours"),
            *self._stall_findings("least"),
            Finding("step time, by hand / ours", step["by hand"] / step["ours"]),
            Finding("peak memory, ours / plain", peak["ours"] / peak["plain"]),
            Finding("step time, by hand / small", slower, "at least 1.30", slower >= RIVAL_AIM),
            Finding("peak memory, small / by hand", smaller, "below 1", smaller < 1),
            self._sameness("ours"),
            self._sameness("least"),
            self._sameness("by hand"),
        ]

    def stalls(self, name: str) -> Table:
        """What compute waited for, beside what was predicted."""
        rows = [self._stall_row(way, key) for way in ("ours", "least") for key in STALL_ROWS]
        return Table(name, "seconds that compute waited", list(STALLS.values()), rows)

    def _stall_row(self, way: str, key: str) -> Row:
        what, role = STALL_ROWS[key]
        row = Row(f"{NAMES[way]}, {what}", role)
        for told in (each for answer in self._answers[way] for each in answer[key]):
            for field, measure in STALLS.items():
                row.add(measure, told[field])
        if not row.values:
            row.absent = "no step was planned"
        return row

    def _median(self, way: str, field: str) -> float:
        values: list[float] = []
        for answer in self._answers[way]:
            values += answer[field] if isinstance(answer[field], list) else [answer[field]]
        return float(statistics.median(values))

    def _stall(self, way: str, key: str) -> float:
        told = [each["stall"] for answer in self._answers[way] for each in answer[key]]
        return float(statistics.median(told)) if told else 0.0

    def _is_hidden(self, way: str) -> bool:
        """Whether it was predicted that the I/O fits behind compute."""
        return self._stall(way, "predicted") <= HIDDEN_SHARE * self._median("plain", "seconds")

    def _stall_findings(self, way: str) -> list[Finding]:
        measured, name = self._stall(way, "stalls"), NAMES[way]
        share = measured / self._median(way, "seconds")
        found = [Finding(f"stalls of {name}, share of a step", share)]
        if not self._is_hidden(way):
            ratio = measured / self._stall(way, "predicted")
            met, aim = abs(ratio - 1) <= STALL_AIM, "0.80 to 1.20"
            found.append(Finding(f"stalls of {name}, measured / predicted", ratio, aim, met))
        return found

    def _sameness(self, way: str) -> Finding:
        plain = {answer["digest"] for answer in self._answers["plain"]}
        same = [{answer["digest"]} == plain for answer in self._answers[way]]
        what = f"turns of {NAMES[way]} with the gradients of plain training, bit for bit (share)"
        aim, met = (None, None) if way == "by hand" else ("1", all(same))
        return Finding(what, sum(same) / len(same), aim, met)


class Trainee:
    """A model, its optimizer and its batch; memory counts from when the model was there."""

    def __init__(self, network: str, sizes: dict[str, int], batch: int) -> None:
        import torch

        from tensorferry_bench.activations.networks import NETWORKS

        torch.manual_seed(0)
        kind = NETWORKS[network]
        self.model = kind.make(sizes)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3, momentum=0.9)
        self.batch = kind.batch(sizes, FEW)
        self.step()
        self.own_bytes = memory.resident()
        self.batch = kind.batch(sizes, batch)

    def step(self, way: Way | None = None) -> float:
        """Trains once; the seconds it took."""
        began = time.perf_counter()
        # Gradients stay where they are: they are the model's own.
        self.optimizer.zero_grad(set_to_none=False)
        if way is None:
            loss = forward(self.model, self.batch)
        else:
            with way:
                loss = forward(self.model, self.batch)
        loss.backward()
        self.optimizer.step()
        return time.perf_counter() - began

    def peak_bytes(self) -> int:
        """Above the model's own."""
        return max(memory.peak() - self.own_bytes, 0)

    def digest(self) -> str:
        """Of all gradients."""
        found = hashlib.sha256()
        for parameter in self.model.parameters():
            if parameter.grad is not None:
                found.update(parameter.grad.contiguous().numpy().tobytes())
        return found.hexdigest()


def forward(model: nn.Module, batch: Batch) -> Any:
    """The loss."""
    from torch.nn.functional import cross_entropy

    inputs, targets = batch
    return cross_entropy(model(inputs), targets)


@case("training.size")
def size(request: dict[str, Any]) -> dict[str, Any]:
    """Bytes that autograd saves in a step, and those of the largest tensor."""
    from tensorferry_bench.activations.ways import Sizes

    sizes = request["sizes"]
    trainee = Trainee(request["network"], sizes, sizes["batch"])
    counted = Sizes(int(request["min_bytes"]))
    with counted.hooks():
        forward(trainee.model, trainee.batch)
    return {"bytes": counted.bytes, "largest": counted.largest}


@case("training.turn")
def turn(request: dict[str, Any]) -> dict[str, Any]:
    """Some steps in one way."""
    from tensorferry_bench.activations.ways import WAYS

    sizes = request["sizes"]
    trainee = Trainee(request["network"], sizes, sizes["batch"])
    way = WAYS[request["way"]](request)
    for _ in range(int(request["warm"])):
        trainee.step(way)
    seconds, reports = [], []
    before, faults = written(way), memory.page_faults()
    for _ in range(int(request["timed"])):
        seconds.append(trainee.step(way))
        reports.append(report(way))
    stalls = [each for each in reports if each is not None]
    return {
        "seconds": seconds,
        "peak_bytes": trainee.peak_bytes(),
        "written_bytes": (written(way) - before) / len(seconds),
        "page_faults": (memory.page_faults() - faults) / len(seconds),
        "digest": trainee.digest(),
        "stalls": [each[0] for each in stalls],
        "predicted": [each[1] for each in stalls if each[1] is not None],
        "reports": [each[2] for each in stalls],
    }


def written(way: Way) -> int:
    """Bytes so far."""
    from tensorferry.activations import ActivationOffload
    from tensorferry_bench.activations.ways import ByHand

    if isinstance(way, ActivationOffload):
        return way.report().written_bytes
    return way.written_bytes if isinstance(way, ByHand) else 0


def report(way: Way) -> tuple[dict[str, float], dict[str, float] | None, str] | None:
    """Stalls of the last step, those that were predicted, and how it was served."""
    from tensorferry.activations import ActivationOffload

    last = way.report().last if isinstance(way, ActivationOffload) else None
    if last is None:
        return None
    told = last.predicted
    predicted = None if told is None else stalls(told.forward_stall, told.backward_stall)
    return stalls(last.forward_stall, last.backward_stall), predicted, last.mode


def stalls(forward: float, backward: float) -> dict[str, float]:
    """By the names of the columns."""
    return {"forward_stall": forward, "backward_stall": backward, "stall": forward + backward}
