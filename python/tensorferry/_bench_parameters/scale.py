"""How much of everything is measured."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Steps:
    """A model, and how often it takes a step."""

    elements: int
    """In tensors of ``largest`` at most; a hundredth in small ones, as biases and norms are."""
    largest: int = 16 << 20
    rounds: int = 7
    timed: int = 3
    """Steps of a turn."""


@dataclass(frozen=True)
class Scale:
    """All workloads."""

    adamw: Steps
    halves: Steps
    disk: Steps


SCALES = {
    "tiny": Scale(
        Steps(200_000, 1 << 16, rounds=2, timed=1),
        Steps(200_000, 1 << 16, rounds=2, timed=1),
        Steps(600_000, 1 << 18, rounds=2, timed=1),
    ),
    "small": Scale(
        Steps(10_000_000, rounds=5), Steps(10_000_000, rounds=5), Steps(10_000_000, rounds=3)
    ),
    "full": Scale(Steps(50_000_000), Steps(50_000_000), Steps(50_000_000, rounds=5, timed=2)),
}
"""By the name given to ``--set``; the smallest is for tests."""
