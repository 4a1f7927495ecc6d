"""AdamW over float32 parameters, with its state in memory."""

from __future__ import annotations

from tensorferry_bench.bench import Bench
from tensorferry_bench.parameters.scale import Scale
from tensorferry_bench.parameters.turns import NAMES, contest

TRAFFIC = 4 * 4 + 3 * 4
"""Parameter, gradient and moments are read; all but the gradient are written."""


def steps(scale: Scale) -> int:
    """Turns of everybody."""
    return scale.adamw.rounds * len(NAMES)


def run(bench: Bench[Scale]) -> None:
    """One table."""
    contest(bench, "adamw", bench.scale.adamw, "float32", TRAFFIC)
