"""The engine without workers (``num_workers=0``): batches are made when they are asked for, by the
thread that asks."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from tensorferry._data.engine import FRESH, Batch, EngineStats, Resume
from tensorferry._data.reader import Readable, Reader
from tensorferry._errors import Closed


class CallerEngine:
    """Datasets in Python, in the caller's thread."""

    def __init__(self, readable: Readable) -> None:
        self._readable = readable
        self._closed = False

    def begin(self, epoch: int, *, seed: int, base_seed: int, resume: Resume = FRESH) -> CallerRun:
        """Starts an epoch."""
        if self._closed:
            raise Closed("this DataLoader is closed")
        return CallerRun(self._readable.open(epoch, resume.dataset_state_of(0)))

    def stats(self) -> EngineStats:
        """Nothing to tell."""
        return EngineStats()

    def close(self) -> None:
        """Nothing to stop."""
        self._closed = True


class CallerRun:
    """One epoch of it."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._submitted: deque[Sequence[Any]] = deque()
        self._taken = 0
        self._closed = False

    def submit(self, indices: Sequence[Any]) -> None:
        """Remembers what is wanted."""
        self._submitted.append(indices)

    def next(self, timeout: float | None) -> Batch:
        """Gets it."""
        if self._closed:
            raise Closed("this iteration was closed; iterate over the DataLoader again")
        number, self._taken = self._taken, self._taken + 1
        batch = self._reader.read(number, self._submitted.popleft())
        if batch.ended:
            raise StopIteration
        return batch

    def close(self) -> None:
        """Forgets what is wanted."""
        self._closed = True
        self._submitted.clear()
