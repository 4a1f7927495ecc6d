"""The engine for an ``IterableDataset``: one thread reads it, ahead of the user.

One, because the samples of an iterator come one after the other; so there is nothing to divide
between workers, and the items are those of torch's loader with ``num_workers=0``.

Bad samples: one that is skipped is named by its place among all items. A generator is over once it
has raised, which must not look like the end of the data: if nothing follows an error, the error is
raised after all. There is nothing to substitute.
"""

from __future__ import annotations

import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from tensorferry._data.bad import BadSample
from tensorferry._data.engine import Batch, EngineStats, OnError, Options
from tensorferry._data.fetch import Abandoned
from tensorferry._data.threads import Hall, hire
from tensorferry._errors import Closed

ERRORS_IN_A_ROW_MAX = 1000
"""Bad items after which an iterator is taken to be broken."""

_END = object()


@dataclass(frozen=True, slots=True)
class Source:
    """The dataset, and what becomes of its items."""

    dataset: Iterable[Any]
    batched: bool
    drop_last: bool
    collate: Callable[[Any], Any]
    pin: Callable[[Any], Any] | None
    on_error: OnError


class StreamEngine:
    """A thread and an iterable dataset; or the caller's thread, without workers."""

    def __init__(self, source: Source, options: Options) -> None:
        self._source = source
        self._options = options
        self._closed = False

    def begin(self, epoch: int, *, seed: int, base_seed: int) -> StreamRun | CallerStreamRun:
        """Starts an epoch."""
        if self._closed:
            raise Closed("this DataLoader is closed")
        if self._options.num_workers == 0:
            return CallerStreamRun(self._source, epoch)
        return StreamRun(self._source, self._options, epoch, base_seed)

    def stats(self) -> EngineStats:
        """Its thread."""
        return EngineStats(threads={"python": min(1, self._options.num_workers)})

    def close(self) -> None:
        """Its runs close themselves."""
        self._closed = True


class Stream:
    """The dataset while it is read, by one thread at a time."""

    def __init__(self, source: Source, epoch: int) -> None:
        self._source = source
        self._epoch = epoch
        self._items: Iterator[Any] | None = None
        self._place = 0
        self._ended = False

    def open(self) -> None:
        """Asks the dataset for its iterator."""
        if self._items is None:
            self._items = iter(self._source.dataset)

    def batch(self, number: int, size: int, is_given_up: Callable[[], bool]) -> Batch:
        """Reads and collates the next items."""
        began = time.perf_counter()
        bad: list[BadSample] = []
        try:
            self.open()
            items = self._read(size, bad, is_given_up)
            if self._ended and (not items or (self._source.drop_last and len(items) < size)):
                return Batch(number, _END, 0, bad=bad)
            data = self._source.collate(items if self._source.batched else items[0])
            collated = time.perf_counter()
            if self._source.pin is not None:
                data = self._source.pin(data)
        except BaseException as error:
            error.add_note(f"while reading item {self._place} of the dataset")
            return Batch(number, None, 0, error=_unlike_the_end(error), bad=bad)
        pinned = time.perf_counter()
        seconds = {"python": collated - began, "hand-over": pinned - collated}
        return Batch(number, data, len(items), bad=bad, seconds=seconds)  # type: ignore[arg-type]

    def _read(self, size: int, bad: list[BadSample], is_given_up: Callable[[], bool]) -> list[Any]:
        items: list[Any] = []
        while len(items) < size and not self._ended:
            if is_given_up():
                raise Abandoned
            item = self._next(bad)
            if item is _END:
                self._ended = True
            else:
                items.append(item)
        return items

    def _next(self, bad: list[BadSample]) -> Any:
        assert self._items is not None
        failure: Exception | None = None
        for _ in range(ERRORS_IN_A_ROW_MAX):
            try:
                item = next(self._items)
            except StopIteration:
                if failure is not None:
                    raise failure from None
                return _END
            except Exception as error:
                if self._source.on_error == "raise":
                    raise
                failure = error
                bad.append(BadSample.of(self._epoch, self._place, error))
                self._place += 1
                continue
            self._place += 1
            return item
        assert failure is not None
        raise failure


def _unlike_the_end(error: BaseException) -> BaseException:
    if not isinstance(error, StopIteration):
        return error
    other = RuntimeError("StopIteration was raised while a batch was made")
    other.__cause__ = error
    return other


class _Reading(NamedTuple):
    """A batch to read: a task for the thread."""

    stream: Stream
    number: int
    size: int
    is_given_up: Callable[[], bool]
    done: Callable[[Batch], None]

    def work(self) -> None:
        self.done(self.stream.batch(self.number, self.size, self.is_given_up))

    def fail(self, error: BaseException) -> None:
        self.done(Batch(self.number, None, 0, error=error))


class StreamRun:
    """One epoch in a thread."""

    def __init__(self, source: Source, options: Options, epoch: int, base_seed: int) -> None:
        self._stream = Stream(source, epoch)
        self._crew = hire(options, 1, source.dataset, base_seed)
        self._hall = Hall(in_order=True)
        self._waiting: dict[int, Sequence[Any]] = {}
        self._submitted = 0
        weakref.finalize(self, self._crew.stop).atexit = False

    def submit(self, indices: Sequence[Any]) -> None:
        """Has the thread read as many items."""
        number = self._submitted
        self._submitted += 1
        self._waiting[number] = [f"batch {number}"]
        stopped, done = self._crew.stopped, self._hall.put
        self._crew.put(_Reading(self._stream, number, len(indices), stopped, done))

    def next(self, timeout: float | None) -> Batch:
        """Waits for a batch."""
        batch = self._hall.next(timeout, self._waiting)
        del self._waiting[batch.number]
        return _unless_over(batch)

    def close(self) -> None:
        """Stops reading."""
        self._hall.close()
        self._crew.stop()


class CallerStreamRun:
    """One epoch in the thread that asks."""

    def __init__(self, source: Source, epoch: int) -> None:
        self._stream = Stream(source, epoch)
        self._stream.open()
        self._sizes: deque[int] = deque()
        self._taken = 0
        self._closed = False

    def submit(self, indices: Sequence[Any]) -> None:
        """Remembers how many items are wanted."""
        self._sizes.append(len(indices))

    def next(self, timeout: float | None) -> Batch:
        """Reads them."""
        if self._closed:
            raise Closed("this iteration was closed; iterate over the DataLoader again")
        number = self._taken
        self._taken += 1
        return _unless_over(self._stream.batch(number, self._sizes.popleft(), lambda: False))

    def close(self) -> None:
        """Stops."""
        self._closed = True
        self._sizes.clear()


def _unless_over(batch: Batch) -> Batch:
    if batch.data is _END:
        raise StopIteration
    return batch
