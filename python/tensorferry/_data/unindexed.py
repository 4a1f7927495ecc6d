"""The order of a dataset that has none to choose: an ``IterableDataset`` yields what it likes.

To resume, those who read it go to their places by themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any

from tensorferry._data import rng
from tensorferry._data.epoch_order import Facts
from tensorferry._data.state import State

if TYPE_CHECKING:
    import torch


class Unindexed:
    """Batches of places for samples, without end; the engine says when the data ends."""

    kind = "iterable"

    def __init__(
        self, batch_size: int | None, generator: torch.Generator | None, draws_once: bool
    ) -> None:
        self.batch_size = batch_size
        self.generator = generator
        self.draws_once = draws_once
        self.base_seed: int | None = None

    def begin(self, epoch: int, seed: int | None, state: State | None) -> UnindexedEpoch:
        """Begins an epoch, or goes on from a state."""
        if state is not None and state.base_seed is not None:
            self.base_seed = state.base_seed
        elif self.base_seed is None or not self.draws_once:
            self.base_seed = rng.draw_base_seed(self.generator)
        return UnindexedEpoch(self, self.base_seed, 0 if state is None else state.batches)

    def facts(self) -> Facts:
        """For a state between epochs."""
        return Facts()


class UnindexedEpoch:
    """One epoch of it."""

    eager = True

    def __init__(self, of: Unindexed, base_seed: int, first: int) -> None:
        self._of = of
        self._first = first
        self.base_seed = base_seed

    def batches(self) -> Iterator[tuple[int, Sequence[Any]]]:
        """Without end."""
        for number in count(self._first):
            yield number, [None] * (self._of.batch_size or 1)

    def pulled(self, requests: int) -> None:
        """Nothing is drawn."""

    def passed(self, batches: int) -> None:
        """Nothing is kept for earlier ones."""

    def foreseen(self) -> Sequence[torch.Tensor]:
        """Nothing is known."""
        return ()

    def facts(self, passed: int) -> Facts:
        """The readers say where they are."""
        return Facts(self.base_seed)
