"""Orders that are known from a seed, a generator or nothing.

Draws happen when torch's loader makes them, so that the generator is in the same state whenever the
user looks or draws himself. Without a seed and a generator they are made from torch's global one: a
base seed for each iterator; and, when the first batch is asked for (with workers: when the iterator
is made), the number that the order of the epoch follows from. With a generator: the base seed; in
place of the number, the permutation itself; and one more permutation, which torch throws away, when
its sampler ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Sized
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tensorferry._data import order, rng
from tensorferry._data.epoch_order import Facts
from tensorferry._data.state import State

if TYPE_CHECKING:
    import torch


FORESEEN_MAX = 64
"""Epochs that are worked out ahead, at most: the core knows no more."""


@dataclass(slots=True)
class KnownOrder:
    """All samples of a dataset, in an order of ours."""

    dataset: Sized
    """Asked for its length whenever an epoch begins: as with torch, it may grow between them."""
    batch_size: int | None
    drop_last: bool
    shuffle: bool
    is_seeded: bool
    """Whether ``begin`` is told a seed, from which the orders of all epochs follow."""
    generator: torch.Generator | None
    rank: int
    world_size: int
    lookahead: int
    """Batches that torch's loader would ask its sampler for before the user asks for one."""
    draws_once: bool
    """Whether the base seed is drawn for the first epoch only, as torch's persistent workers do."""
    base_seed: int | None = None
    coming: dict[tuple[int, int], torch.Tensor] = field(default_factory=dict)
    """Shares of coming epochs, by epoch and length of the dataset."""

    @property
    def kind(self) -> str:
        """Where the order comes from."""
        if not self.shuffle:
            return "sequential"
        if self.generator is not None:
            return "generator"
        return "seeded" if self.is_seeded else "global"

    def begin(self, epoch: int, seed: int | None, state: State | None) -> KnownEpoch:
        """Begins an epoch, or goes on from a state."""
        if state is not None and state.generator is not None and self.generator is not None:
            rng.restore(self.generator, state.generator)
        if state is not None and state.base_seed is not None:
            self.base_seed = state.base_seed
        elif self.base_seed is None or not self.draws_once:
            self.base_seed = rng.draw_base_seed(self.generator)
        epoch_order = KnownEpoch(self, epoch, seed, state, self.base_seed)
        if self.lookahead or epoch_order.first:
            epoch_order.pulled(epoch_order.first)
        return epoch_order

    def facts(self) -> Facts:
        """For a state between epochs."""
        generator = None if self.generator is None else rng.text_of(self.generator)
        return Facts(generator=generator)


class KnownEpoch:
    """One epoch of it."""

    def __init__(
        self,
        of: KnownOrder,
        epoch: int,
        seed: int | None,
        state: State | None,
        base_seed: int,
    ) -> None:
        self.base_seed = base_seed
        self.eager = of.lookahead > 0 or of.kind in ("seeded", "sequential")
        self.first = 0 if state is None else state.batches
        self._of = of
        self._length = len(of.dataset)
        self._epoch = epoch
        self._seed = seed
        self._drawn = None if state is None else state.drawn
        self._base = 0 if state is None else state.base
        self._beyond = () if state is None else tuple(state.beyond)
        self._before: str | None = None
        self._global: torch.Tensor | None = None
        self._ended = False

    def batches(self) -> Iterator[tuple[int, Sequence[Any]]]:
        """The batches still to come."""
        of = self._of
        share = self._share()
        yield from order.batches(share, of.batch_size, of.drop_last, self.first, self._beyond)

    def pulled(self, requests: int) -> None:
        """Draws what torch has drawn by now."""
        of = self._of
        if of.kind not in ("generator", "global") or requests + of.lookahead == 0:
            return
        self._permutation()
        if of.kind == "global":
            return
        share = -(-(self._length - self._base) // of.world_size)
        if requests + of.lookahead > share // (of.batch_size or 1):
            self._end()

    def passed(self, batches: int) -> None:
        """Nothing is kept for earlier ones."""

    def foreseen(self) -> Sequence[torch.Tensor]:
        """What remains of this epoch, and the next ones: of a world of w ranks, each uses a sample
        every w epochs, on average. A generator may be drawn from meanwhile, and without shuffling
        all epochs are alike: of those, the next one."""
        of = self._of
        size = of.batch_size or 1
        this = self._used(self._share())[self.first * size :]
        if of.kind == "global":
            return [this]
        if of.kind != "seeded":
            return [this, self._used(order.share(self._following(), of.rank, of.world_size))]
        epochs = max(2, min(FORESEEN_MAX, 2 * of.world_size))
        return [this, *(self._used(self._then(self._epoch + by)) for by in range(1, epochs))]

    def _used(self, share: torch.Tensor) -> torch.Tensor:
        of = self._of
        return share[: order.count(len(share), of.batch_size, of.drop_last) * (of.batch_size or 1)]

    def _then(self, epoch: int) -> torch.Tensor:
        """The share of a coming epoch, worked out once."""
        of, key = self._of, (epoch, self._length)
        for old in [old for old in of.coming if old[0] < self._epoch or old[1] != self._length]:
            del of.coming[old]
        if key not in of.coming:
            assert self._seed is not None
            whole = order.shuffled(self._length, self._seed + epoch)
            of.coming[key] = order.share(whole, of.rank, of.world_size)
        return of.coming[key]

    def facts(self, passed: int) -> Facts:
        """To resume after any batch: the generator as it was before it shuffled."""
        generator = self._before
        if generator is None and self._of.generator is not None:
            generator = rng.text_of(self._of.generator)
        return Facts(self.base_seed, self._drawn, generator)

    def _permutation(self) -> torch.Tensor:
        if self._global is None:
            self._global = self._shuffled()
        return self._global

    def _shuffled(self) -> torch.Tensor:
        import torch

        of = self._of
        if of.kind == "sequential":
            return order.sequential(self._length)
        if of.generator is None:
            if self._drawn is None and self._seed is not None:
                self._drawn = self._seed + self._epoch
            elif self._drawn is None:
                self._drawn = rng.draw_base_seed(None)
            return order.shuffled(self._length, self._drawn)
        self._before = rng.text_of(of.generator)
        return torch.randperm(self._length, generator=of.generator)

    def _end(self) -> None:
        """torch's sampler draws a last permutation, of which it uses nothing."""
        import torch

        if not self._ended:
            self._ended = True
            torch.randperm(self._length, generator=self._of.generator)

    def _following(self) -> torch.Tensor:
        import torch

        of = self._of
        if of.generator is None or of.kind == "sequential":
            return self._permutation()
        self._permutation()
        copy = rng.copy_of(of.generator)
        if not self._ended:
            torch.randperm(self._length, generator=copy)
        if not of.draws_once:
            rng.draw_base_seed(copy)
        return torch.randperm(self._length, generator=copy)

    def _share(self) -> torch.Tensor:
        of, whole = self._of, self._permutation()
        if self._base == 0:
            return order.share(whole, of.rank, of.world_size)
        return order.remainder(
            whole, self._base, of.rank, of.world_size, of.batch_size, drop_last=of.drop_last
        )
