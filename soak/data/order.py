"""Which samples each batch of an epoch must have, by torch itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler


@dataclass(frozen=True)
class Order:
    """``"generator"``: that of torch's loader with one; ``"seed"``: of ``DistributedSampler``."""

    kind: Literal["generator", "seed"]
    seed: int
    count: int
    batch_size: int
    drop_last: bool
    rank: int = 0
    world_size: int = 1

    def epochs(self, number: int) -> list[list[list[int]]]:
        """The batches of so many."""
        if self.kind == "generator":
            loader: DataLoader[int] = DataLoader(
                range(self.count),  # type: ignore[arg-type]
                self.batch_size,
                shuffle=True,
                drop_last=self.drop_last,
                generator=torch.Generator().manual_seed(self.seed),
            )
            return [[batch.tolist() for batch in loader] for _ in range(number)]
        return [self._seeded(epoch) for epoch in range(number)]

    def _seeded(self, epoch: int) -> list[list[int]]:
        sampler: DistributedSampler[int] = DistributedSampler(
            range(self.count),  # type: ignore[arg-type]
            num_replicas=self.world_size,
            rank=self.rank,
            seed=self.seed,
        )
        sampler.set_epoch(epoch)
        return list(BatchSampler(sampler, self.batch_size, self.drop_last))

    def arguments(self) -> dict[str, Any]:
        """What makes a loader of ours follow it."""
        about = {"batch_size": self.batch_size, "shuffle": True, "drop_last": self.drop_last}
        if self.kind == "generator":
            return {**about, "generator": torch.Generator().manual_seed(self.seed)}
        return {**about, "seed": self.seed, "rank": self.rank, "world_size": self.world_size}
