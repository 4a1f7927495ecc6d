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
class Shape:
    """A GPT and its batches."""

    words: int
    width: int
    blocks: int
    length: int
    batch: int

    def __str__(self) -> str:
        return (
            f"GPT of {self.blocks} blocks, {self.width} wide, with {self.words:,} words, and "
            f"{self.batch} x {self.length} of them in a batch"
        )


@dataclass(frozen=True)
class Shadowed:
    """A model whose parameters are in host memory."""

    shape: Shape
    device_mib: int
    """Little more than copying every layer needs."""
    rounds: int
    timed: int
    """Steps of a turn."""
    warm: int = 10
    """Steps before the first turn: one discovers, three are profiled, three correct the plan."""

    @property
    def device(self) -> str:
        """As it is written."""
        return f"emulated:capacity={self.device_mib}MiB,{SLOW}"

    @property
    def steps(self) -> int:
        """Of everybody, in the end."""
        return self.warm + self.rounds * self.timed


@dataclass(frozen=True)
class Reserve:
    """Models of one kind, of more and more blocks."""

    shape: Shape
    """Its blocks are the first that are tried."""
    device: str
    budget_bytes: int
    steps: int
    """Of each model that is tried: one discovers, one is profiled, the others follow a plan."""


@dataclass(frozen=True)
class Scale:
    """All workloads."""

    adamw: Steps
    halves: Steps
    disk: Steps
    shadow: Shadowed
    reserve: Reserve


SLOW = "bandwidth=100MB/s,latency=20us"
"""Beside what a core computes: copies are what an iteration waits for."""
FAST = "emulated:capacity=1GiB,bandwidth=4GB/s,latency=20us"

SCALES = {
    "tiny": Scale(
        Steps(200_000, 1 << 16, rounds=2, timed=1),
        Steps(200_000, 1 << 16, rounds=2, timed=1),
        Steps(600_000, 1 << 18, rounds=2, timed=1),
        Shadowed(Shape(2048, 64, 2, 16, 2), 4, rounds=2, timed=1, warm=8),
        Reserve(Shape(64, 64, 1, 8, 1), FAST, 2 << 20, steps=4),
    ),
    "small": Scale(
        Steps(10_000_000, rounds=5),
        Steps(10_000_000, rounds=5),
        Steps(10_000_000, rounds=3),
        Shadowed(Shape(16384, 256, 2, 32, 2), 100, rounds=3, timed=4),
        Reserve(Shape(512, 256, 1, 32, 1), FAST, 32 << 20, steps=6),
    ),
    "full": Scale(
        Steps(50_000_000),
        Steps(50_000_000),
        Steps(50_000_000, rounds=5, timed=2),
        Shadowed(Shape(32768, 256, 2, 32, 2), 184, rounds=5, timed=8),
        Reserve(Shape(512, 512, 1, 32, 1), FAST, 256 << 20, steps=8),
    ),
}
"""By the name given to ``--set``; the smallest is for tests."""
