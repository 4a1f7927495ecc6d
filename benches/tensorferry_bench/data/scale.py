"""How much of everything is measured."""

from __future__ import annotations

from dataclasses import dataclass

BATCH = 64


@dataclass(frozen=True)
class Images:
    """Pictures, batches of a turn, and epochs over which memory is watched."""

    distinct: int
    width: int = 500
    height: int = 375
    rounds: int = 3
    warm: int = 4
    timed: int = 8
    memory_epochs: int = 5
    memory_batches: int = 4
    batch: int = BATCH

    @property
    def names(self) -> int:
        """Files of an epoch: enough for a turn that ends in its middle, with read-ahead."""
        return (self.warm + self.timed + 8) * self.batch


@dataclass(frozen=True)
class Arrays:
    """Sizes of arrays, and how many bytes of each make an epoch."""

    sizes: tuple[int, ...] = (17_000_000, 30_000_000)
    batches: tuple[int, ...] = (1, 2)
    epoch_bytes: int = 240_000_000
    rounds: int = 3
    epochs: int = 2


@dataclass(frozen=True)
class Slow:
    """A dataset behind a slow store."""

    samples: int
    sample_bytes: int
    epochs: int
    bytes_per_second: int = 50_000_000
    batch: int = 4


@dataclass(frozen=True)
class Consumers:
    """Two consumers of one process, with pictures of different sizes, from a store that gives each
    request so many bytes a second: what is large takes long, whatever else is read."""

    large: tuple[int, int] = (1600, 1200)
    small: tuple[int, int] = (500, 375)
    distinct: int = 16
    batch: int = 16
    batches: int = 12
    rounds: int = 3
    workers: int = 8
    connection_bytes_per_second: int = 25_000_000


@dataclass(frozen=True)
class Beside:
    """A loader of small arrays, and a checkpoint that is saved meanwhile."""

    samples: int = 8000
    sample_bytes: int = 150_000
    state_bytes: int = 5 << 30
    batch: int = 32
    rounds: int = 3


@dataclass(frozen=True)
class Scale:
    """All workloads."""

    images: Images
    arrays: Arrays
    slow: Slow
    consumers: Consumers
    beside: Beside


SCALES = {
    "tiny": Scale(
        Images(4, 64, 48, rounds=1, warm=1, timed=2, memory_epochs=2, memory_batches=2, batch=4),
        Arrays((40_000,), (1, 2), 160_000, rounds=1, epochs=1),
        Slow(8, 20_000, 3, 2_000_000, batch=2),
        Consumers((96, 64), (32, 32), 2, 2, 4, 1),
        Beside(32, 20_000, 4_000_000, 4, rounds=1),
    ),
    "quick": Scale(
        Images(128, rounds=5, memory_epochs=20),
        Arrays(rounds=5),
        Slow(64, 1_500_000, 4),
        Consumers(rounds=5),
        Beside(4000, state_bytes=1_600_000_000),
    ),
    "full": Scale(
        Images(1024, rounds=7, timed=32, memory_epochs=20, memory_batches=8),
        Arrays(epoch_bytes=480_000_000, rounds=7, epochs=3),
        Slow(200, 2_000_000, 6),
        Consumers(distinct=64, batches=40, rounds=7),
        Beside(rounds=7),
    ),
}
"""By the name given to ``--set``; the smallest is for tests."""
