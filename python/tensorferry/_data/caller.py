"""The engine without threads (``num_workers=0``): samples are got when a batch is asked for, by the
thread that asks."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from tensorferry._data.engine import Batch, EngineStats
from tensorferry._data.fetch import Fetcher, Job
from tensorferry._errors import Closed


class CallerEngine:
    """Map-style datasets in the caller's thread."""

    def __init__(self, fetcher: Fetcher) -> None:
        self._fetcher = fetcher
        self._closed = False

    def begin(self, epoch: int, *, seed: int, base_seed: int) -> CallerRun:
        """Starts an epoch."""
        if self._closed:
            raise Closed("this DataLoader is closed")
        return CallerRun(self._fetcher, epoch)

    def stats(self) -> EngineStats:
        """Nothing to tell."""
        return EngineStats()

    def close(self) -> None:
        """Nothing to stop."""
        self._closed = True


class CallerRun:
    """One epoch of it."""

    def __init__(self, fetcher: Fetcher, epoch: int) -> None:
        self._fetcher = fetcher
        self._epoch = epoch
        self._submitted: deque[tuple[int, Sequence[Any]]] = deque()
        self._count = 0
        self._closed = False

    def submit(self, indices: Sequence[Any]) -> None:
        """Remembers what is wanted."""
        self._submitted.append((self._count, indices))
        self._count += 1

    def next(self, timeout: float | None) -> Batch:
        """Gets it."""
        if self._closed:
            raise Closed("this iteration was closed; iterate over the DataLoader again")
        number, indices = self._submitted.popleft()
        batches: list[Batch] = []
        job = Job(number, indices, self._epoch, self._fetcher, lambda: False, batches.append)
        for piece in job.pieces(1):
            piece.work()
        return batches.pop()

    def close(self) -> None:
        """Forgets what is wanted."""
        self._closed = True
        self._submitted.clear()
