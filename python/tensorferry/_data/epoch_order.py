"""What an iteration needs of an order: the seam between the two.

An ``Order`` belongs to a loader for life. It begins an ``EpochOrder`` for each epoch, from the
start or from a state; that is read lazily, at most ``ahead`` batches before they are used.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from tensorferry._data.state import State

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Facts:
    """What an order adds to a state, apart from numbers."""

    base_seed: int | None = None
    drawn: int | None = None
    generator: str | None = None
    sampler: dict[str, Any] | None = None


class EpochOrder(Protocol):
    """The order of one epoch."""

    base_seed: int

    eager: bool
    """Whether it may be read as soon as there is an iterator, as torch's loader with workers does;
    without workers, torch's draws nothing before the first batch is asked for."""

    def batches(self) -> Iterator[tuple[int, Sequence[Any]]]:
        """The batches still to come, with their numbers in this epoch and division."""

    def pulled(self, requests: int) -> None:
        """So many batches of this epoch were asked for by the user: what torch's loader would have
        drawn from the generator by now is drawn."""

    def passed(self, batches: int) -> None:
        """All before this one are done with: nobody will resume before it."""

    def foreseen(self) -> Sequence[torch.Tensor]:
        """The indices that will come, and those of the next epoch, where they are known."""

    def facts(self, passed: int) -> Facts:
        """To resume after the first ``passed`` batches."""


class Order(Protocol):
    """A way to put samples in order."""

    @property
    def kind(self) -> str:
        """Where the order comes from; a state of one kind can't be loaded by another."""

    def begin(self, epoch: int, seed: int | None, state: State | None) -> EpochOrder:
        """Begins an epoch, or goes on from a state. ``seed`` is that of orders that have one."""

    def facts(self) -> Facts:
        """For a state between epochs."""
