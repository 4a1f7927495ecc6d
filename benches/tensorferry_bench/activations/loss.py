"""Losses of a small task with ``lossless`` and with ``half``: what lost bits do to training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tensorferry_bench.activations.scale import Scale
from tensorferry_bench.bench import Bench
from tensorferry_bench.cases import case
from tensorferry_bench.contest import Entry, Measures, once
from tensorferry_bench.table import Curve, Curves, Finding, Measure, Row, Table

if TYPE_CHECKING:
    import torch

    from tensorferry_bench.activations.networks import Batch

MEASURES: Measures = {
    "accuracy": Measure("accuracy in the end", "share", "more"),
    "stored_bytes": Measure("written a step", "bytes", "less"),
}
NAMES = {"half": "half", "lossless": "lossless", None: "plain training"}
HELD_OUT = 512
NOISE = 2.0


def steps(_scale: Scale) -> int:
    """A run each."""
    return len(NAMES)


def run(bench: Bench[Scale]) -> None:
    """A table, and the losses as curves."""
    scale = bench.scale.loss
    directory = bench.directory / "loss"
    directory.mkdir()
    rows: list[Row] = []
    losses: dict[str | None, list[float]] = {}
    for compress, name in NAMES.items():
        needs = {
            "way": "plain" if compress is None else "ours",
            "compress": compress,
            "directory": str(directory),
            "budget": scale.budget_bytes,
            "min_bytes": bench.scale.min_bytes,
            "sizes": scale.sizes,
            "steps": scale.steps,
            "batch": scale.batch,
        }
        row = Row(name, "limit" if compress is None else "ours")
        answer = once(bench, "loss", Entry(name, row.role, "loss.run", needs), row, MEASURES)
        rows.append(row)
        if answer:
            losses[compress] = answer["losses"]
    note = f"a convolutional network learns {scale.steps} batches of {scale.batch} noisy pictures"
    bench.show(Table("loss", note, list(MEASURES.values()), rows, findings(losses)))
    shown = {"lossless": "rival", "half": "ours"}
    curves = [
        Curve(name, role, losses[name])  # type: ignore[arg-type]
        for name, role in shown.items()
        if name in losses
    ]
    bench.show(Curves("loss of each step", note, "steps", "loss", curves))


def findings(losses: dict[str | None, list[float]]) -> list[Finding]:
    """How far apart they are."""
    if len(losses) < len(NAMES):
        return []
    exact, near, plain = losses["lossless"], losses["half"], losses[None]
    same = sum(a == b for a, b in zip(exact, plain, strict=True)) / len(plain)
    tail = max(1, len(exact) // 10)
    ratio = sum(near[-tail:]) / max(sum(exact[-tail:]), 1e-12)
    aim, met = "1", same == 1
    return [
        Finding("steps with the loss of plain training, lossless (share)", same, aim, met),
        Finding("mean loss of the last tenth of the steps, half / lossless", ratio),
    ]


@case("loss.run")
def train(request: dict[str, Any]) -> dict[str, Any]:
    """All steps; the loss of each, and how often what was held out is recognised."""
    import torch

    from tensorferry_bench.activations.networks import cnn
    from tensorferry_bench.activations.training import forward
    from tensorferry_bench.activations.ways import WAYS

    torch.manual_seed(0)
    sizes = request["sizes"]
    model, task = cnn({**sizes, "blocks": 1}), Task(sizes["side"])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    way = WAYS[request["way"]](request)
    losses = []
    for _ in range(int(request["steps"])):
        batch = task.batch(int(request["batch"]))
        optimizer.zero_grad()
        with way:
            loss = forward(model, batch)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    inputs, targets = task.batch(HELD_OUT)
    with torch.no_grad():
        right = (model.eval()(inputs).argmax(1) == targets).float().mean()
    return {"losses": losses, "accuracy": float(right), "stored_bytes": stored(way)}


def stored(way: Any) -> int:
    """Bytes that the last step took on disk."""
    last = way.report().last if hasattr(way, "report") else None
    return 0 if last is None else int(last.stored_bytes)


class Task:
    """Pictures of some kinds, each a pattern under noise that is stronger than it."""

    def __init__(self, side: int) -> None:
        import torch

        from tensorferry_bench.activations.networks import CLASSES

        self._random = torch.Generator().manual_seed(0)
        self._patterns = torch.randn(CLASSES, 3, side, side, generator=self._random)

    def batch(self, count: int) -> Batch:
        """The next ones."""
        import torch

        kinds = torch.randint(len(self._patterns), (count,), generator=self._random)
        patterns: torch.Tensor = self._patterns[kinds]
        noise = torch.randn(patterns.shape, generator=self._random)
        return patterns + NOISE * noise, kinds
