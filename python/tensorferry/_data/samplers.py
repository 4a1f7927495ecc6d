"""What ``loader.sampler`` is: torch's samplers, and one for an order that follows from a seed.

All samples, whatever the rank: those who take a loader apart to divide it themselves (Lightning,
Accelerate) find in it what they find in torch's.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch.utils.data import RandomSampler

from tensorferry._data import order


class SeededSampler(RandomSampler):
    """All samples, shuffled as ``DistributedSampler(seed=seed)`` does in an epoch."""

    def __init__(self, dataset: Any, seed: int) -> None:
        super().__init__(dataset)
        self.seed = seed
        self.epoch = 0
        self.epoch_set: int | None = None
        """The epoch that somebody has set since the loader last asked."""

    def set_epoch(self, epoch: int) -> None:
        """The next iteration is this epoch."""
        self.epoch = self.epoch_set = epoch

    def __iter__(self) -> Iterator[int]:
        if self.generator is not None:
            # Accelerate sets one, and keeps it alike on all ranks.
            yield from super().__iter__()
        else:
            yield from order.shuffled(self.num_samples, self.seed + self.epoch).tolist()
