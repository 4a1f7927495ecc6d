"""The engine for an ``IterableDataset`` with ``workers="threads"``: one thread."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tensorferry._data.engine import FRESH, Batch, EngineStats, Options, Resume
from tensorferry._data.stream import Source, Stream
from tensorferry._data.thread_pool import ThreadPool
from tensorferry._data.threads import FinishedBatches, start_pool
from tensorferry._errors import Closed


class StreamEngine:
    """One thread that reads an ``IterableDataset``, ahead of the user: the samples of an iterator
    come one after the other, so there is nothing to divide."""

    def __init__(self, source: Source, options: Options) -> None:
        self._source = source
        self._options = options
        self._closed = False

    def begin(self, epoch: int, *, seed: int, base_seed: int, resume: Resume = FRESH) -> StreamRun:
        """Starts an epoch."""
        if self._closed:
            raise Closed("this DataLoader is closed")
        stream = Stream(self._source, epoch, resume.dataset_state_of(0), draws_alone=False)
        return StreamRun(stream, start_pool(self._options, 1, self._source.dataset, base_seed))

    def stats(self) -> EngineStats:
        """Its thread."""
        return EngineStats(threads={"python": 1})

    def close(self) -> None:
        """Its runs close themselves."""
        self._closed = True


class _Reading(NamedTuple):
    """A batch to read: a task for the thread."""

    stream: Stream
    number: int
    indices: Sequence[Any]
    is_given_up: Callable[[], bool]
    done: Callable[[Batch], None]

    def work(self) -> None:
        self.done(self.stream.read(self.number, self.indices, self.is_given_up))

    def fail(self, error: BaseException) -> None:
        self.done(Batch(self.number, None, 0, error=error))


class StreamRun:
    """One epoch in a thread."""

    def __init__(self, stream: Stream, pool: ThreadPool) -> None:
        self._stream = stream
        self._pool = pool
        self._finished_batches = FinishedBatches(in_order=True)
        self._waiting: dict[int, Sequence[Any]] = {}
        self._submitted = 0
        weakref.finalize(self, pool.stop).atexit = False

    def submit(self, indices: Sequence[Any]) -> None:
        """Has the thread read as many items."""
        number = self._submitted
        self._submitted += 1
        self._waiting[number] = [f"batch {number}"]
        stopped, done = self._pool.stopped, self._finished_batches.put
        self._pool.put(_Reading(self._stream, number, indices, stopped, done))

    def next(self, timeout: float | None) -> Batch:
        """Waits for a batch."""
        batch = self._finished_batches.next(timeout, self._waiting)
        del self._waiting[batch.number]
        if batch.ended:
            raise StopIteration
        return batch

    def close(self) -> None:
        """Stops reading."""
        self._finished_batches.close()
        self._pool.stop()
