"""The engine for an ``IterableDataset`` with ``workers="threads"``: one thread."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tensorferry._data.crew import Crew
from tensorferry._data.engine import FRESH, Batch, EngineStats, Options, Resume
from tensorferry._data.stream import Source, Stream
from tensorferry._data.threads import Hall, hire
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
        stream = Stream(self._source, epoch, resume.places[0] if resume.places else None)
        return StreamRun(stream, hire(self._options, 1, self._source.dataset, base_seed))

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

    def __init__(self, stream: Stream, crew: Crew) -> None:
        self._stream = stream
        self._crew = crew
        self._hall = Hall(in_order=True)
        self._waiting: dict[int, Sequence[Any]] = {}
        self._submitted = 0
        weakref.finalize(self, crew.stop).atexit = False

    def submit(self, indices: Sequence[Any]) -> None:
        """Has the thread read as many items."""
        number = self._submitted
        self._submitted += 1
        self._waiting[number] = [f"batch {number}"]
        stopped, done = self._crew.stopped, self._hall.put
        self._crew.put(_Reading(self._stream, number, indices, stopped, done))

    def next(self, timeout: float | None) -> Batch:
        """Waits for a batch."""
        batch = self._hall.next(timeout, self._waiting)
        del self._waiting[batch.number]
        if batch.ended:
            raise StopIteration
        return batch

    def close(self) -> None:
        """Stops reading."""
        self._hall.close()
        self._crew.stop()
