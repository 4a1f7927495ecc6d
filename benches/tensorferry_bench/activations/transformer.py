"""A small transformer, with a quarter of its activations in memory."""

from __future__ import annotations

from tensorferry_bench.activations.scale import Scale
from tensorferry_bench.activations.training import contest, steps_of
from tensorferry_bench.bench import Bench


def steps(scale: Scale) -> int:
    """Turns of everybody."""
    return steps_of(scale.transformer)


def run(bench: Bench[Scale]) -> None:
    """Step time and memory, then stalls."""
    contest(bench, "transformer", bench.scale.transformer)
