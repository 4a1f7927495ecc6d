"""AdamW over bfloat16 parameters with float32 masters, in memory."""

from __future__ import annotations

from tensorferry_bench.bench import Bench
from tensorferry_bench.parameters.scale import Scale
from tensorferry_bench.parameters.turns import NAMES, contest

TRAFFIC = 2 * 2 + 3 * 4 + 2 + 3 * 4
"""Parameter and gradient are read as halves, moments and master as float32; all but the gradient
are written."""


def steps(scale: Scale) -> int:
    """Turns of everybody."""
    return scale.halves.rounds * len(NAMES)


def run(bench: Bench[Scale]) -> None:
    """One table."""
    contest(bench, "halves", bench.scale.halves, "bfloat16", TRAFFIC)
