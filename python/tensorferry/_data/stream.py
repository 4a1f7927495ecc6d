"""Reading an ``IterableDataset``, whose items come one after the other.

To go on in mid-epoch, a dataset or its iterator that knows its place is asked for it after every
batch and brought back to it, as torchdata's ``StatefulDataLoader`` does. Of any other, the items
that were read already are passed over; where that can't be right, it is refused.

Bad samples: one that is skipped is named by its place among all items. A generator is over once it
has raised, which must not look like the end of the data: if nothing follows an error, the error is
raised after all. There is nothing to substitute.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tensorferry._data import dataset_state
from tensorferry._data.bad import BadSample
from tensorferry._data.engine import Batch, OnError
from tensorferry._data.fetch import Abandoned
from tensorferry._errors import InvalidInput

ERRORS_IN_A_ROW_MAX = 1000
"""Bad items after which an iterator is taken to be broken."""

_END = object()

_STATE = "give it, or the iterator that it returns, state_dict() and load_state_dict()"


@dataclass(frozen=True, slots=True)
class Source:
    """The dataset, and what becomes of its items."""

    dataset: Iterable[Any]
    batched: bool
    drop_last: bool
    collate: Callable[[Any], Any]
    pin: Callable[[Any], Any] | None
    on_error: OnError

    def open(self, epoch: int, start: Any) -> Stream:
        """Asks the dataset for its iterator, and goes to where it was."""
        stream = Stream(self, epoch, start)
        stream.open()
        return stream


class Stream:
    """The dataset while it is read, by one thread at a time."""

    def __init__(self, source: Source, epoch: int, start: Any = None) -> None:
        self._source = source
        self._epoch = epoch
        self._start = start
        self._items: Iterator[Any] | None = None
        self._count = 0
        self._ended = False

    def open(self) -> None:
        """Asks the dataset for its iterator, and goes to where it was."""
        if self._items is not None:
            return
        dataset, start = self._source.dataset, self._start
        if start is not None:
            dataset_state.restore(dataset, start["dataset"])
        items = iter(dataset)
        self._items = items
        if start is not None:
            dataset_state.restore(items, start["iterator"])
            if start["dataset"] is start["iterator"] is None:
                self._pass_over(start["count"], _was_read_here(dataset) and items is dataset)
            self._count, self._ended = start["count"], start["ended"]
        _note_read(dataset)

    def read(
        self, number: int, indices: Sequence[Any], is_given_up: Callable[[], bool] = lambda: False
    ) -> Batch:
        """Reads and collates as many items as there are indices."""
        began, size = time.perf_counter(), len(indices)
        bad: list[BadSample] = []
        try:
            self.open()
            items = self._read(size, bad, is_given_up)
            if self._ended and (not items or (self._source.drop_last and len(items) < size)):
                return Batch(number, None, 0, bad=bad, ended=True)
            data = self._source.collate(items if self._source.batched else items[0])
            collated = time.perf_counter()
            if self._source.pin is not None:
                data = self._source.pin(data)
            where = self._where()
        except BaseException as error:
            error.add_note(f"while reading item {self._count} of the dataset")
            return Batch(number, None, 0, error=_unlike_the_end(error), bad=bad)
        pinned = time.perf_counter()
        return Batch(
            number,
            data,
            len(items),
            bad=bad,
            seconds={"python": collated - began, "hand-over": pinned - collated},
            dataset_state=where,
        )

    def _where(self) -> dict[str, Any]:
        """What brings another stream here."""
        dataset, items = self._source.dataset, self._items
        return {
            "count": self._count,
            "ended": self._ended,
            "dataset": None if items is dataset else dataset_state.of(dataset),
            "iterator": dataset_state.of(items),
        }

    def _pass_over(self, count: int, is_used: bool) -> None:
        what = f"the state is {count} items into the dataset, which can't be gone back to"
        if count and is_used:
            why = "this object is its own iterator and was read already"
            raise InvalidInput(f"{what}: {why}. Make a new one, or {_STATE}")
        while self._count < count:
            if self._next([]) is _END:
                why = f"it ended after {self._count}; it may have been read already"
                raise InvalidInput(f"{what}: {why}. Make a new one, or {_STATE}")

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
                bad.append(BadSample.of(self._epoch, self._count, error))
                self._count += 1
                continue
            self._count += 1
            return item
        assert failure is not None
        raise failure


_read_here: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
"""Datasets that were read in this process, by their addresses."""


def _was_read_here(dataset: object) -> bool:
    return _read_here.get(id(dataset)) is dataset


def _note_read(dataset: object) -> None:
    try:
        _read_here[id(dataset)] = dataset
    except TypeError:
        return  # Without weak references; it is then taken to be new.


def _unlike_the_end(error: BaseException) -> BaseException:
    if not isinstance(error, StopIteration):
        return error
    other = RuntimeError("StopIteration was raised while a batch was made")
    other.__cause__ = error
    return other
