"""How much of everything is measured."""

from __future__ import annotations

from dataclasses import dataclass, field

MIB = 1 << 20


@dataclass(frozen=True)
class Training:
    """A network, and how often it is trained."""

    sizes: dict[str, int]
    rounds: int = 3
    warm: int = 2
    timed: int = 2
    least: float = 2.25
    """The small budget, over the largest tensor. What is in memory at once by hand is a tensor or
    two, so ours is tried with hardly more; attention wants several."""


@dataclass(frozen=True)
class Batch:
    """The largest batch within ``limit_bytes`` above the model's own."""

    sizes: dict[str, int]
    limit_bytes: int
    budget_share: float = 0.4
    """Of the limit: the rest is for what an operation works on."""
    first: int = 4
    most: int = 1 << 16
    steps: int = 2
    precision: int = 16
    """The search ends within so small a part of the result."""


@dataclass(frozen=True)
class Loss:
    """A small task that can be learned."""

    sizes: dict[str, int]
    budget_bytes: int
    steps: int = 200
    batch: int = 64


@dataclass(frozen=True)
class Scale:
    """All workloads."""

    mlp: Training
    cnn: Training
    transformer: Training
    batch: Batch
    loss: Loss
    min_bytes: int = field(default=256 << 10)
    """Smaller tensors stay in memory, whoever trains."""


SCALES = {
    "tiny": Scale(
        Training({"depth": 8, "width": 128, "batch": 512}, rounds=1, timed=1),
        Training({"width": 8, "blocks": 2, "side": 16, "batch": 16}, rounds=1, timed=1),
        Training({"width": 32, "depth": 4, "length": 16, "batch": 32}, rounds=1, timed=1),
        Batch({"width": 4, "depth": 12, "side": 16}, 64 * MIB, first=16, most=16, steps=2),
        Loss({"width": 8, "side": 16}, 2 * MIB, steps=4, batch=16),
        min_bytes=16 << 10,
    ),
    "small": Scale(
        Training({"depth": 24, "width": 512, "batch": 4096}, rounds=2),
        Training({"width": 32, "blocks": 2, "side": 64, "batch": 32}, rounds=2),
        Training({"width": 256, "depth": 6, "length": 128, "batch": 32}, rounds=2),
        Batch({"width": 16, "depth": 40, "side": 32}, 192 * MIB, precision=4),
        Loss({"width": 16, "side": 32}, 8 * MIB),
    ),
    "full": Scale(
        Training({"depth": 24, "width": 1024, "batch": 8192}, least=1.5),
        Training({"width": 64, "blocks": 2, "side": 64, "batch": 64}, least=1.5),
        Training({"width": 512, "depth": 6, "length": 256, "batch": 24}),
        Batch({"width": 32, "depth": 60, "side": 32}, 320 * MIB, precision=8),
        Loss({"width": 16, "side": 32}, 8 * MIB),
    ),
}
"""By the name given to ``--set``; the smallest is for tests."""
