"""From submissions to batches, one after the other, in one thread.

The calling thread and every worker process make their batches with a reader: what they do is the
same, and so are the batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from tensorferry._data.engine import Batch


class Reader(Protocol):
    """One epoch of a dataset, as one thread reads it."""

    def read(self, number: int, indices: Sequence[Any]) -> Batch:
        """The batch of a submission. What goes wrong with it is in it."""


class Readable(Protocol):
    """A dataset and all that turns it into batches; goes to worker processes as it is."""

    @property
    def dataset(self) -> Any:
        """The user's dataset."""

    def open(self, epoch: int, start: Any) -> Reader:
        """Begins an epoch, or goes on from the state that a batch of such a reader has."""
