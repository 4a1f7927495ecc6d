"""Reading an ``IterableDataset``, whose items come one after the other.

To go on in mid-epoch, a dataset or its iterator that knows its place is asked for it after every
batch and brought back to it, as torchdata's ``StatefulDataLoader`` does. Any other is read again
from the beginning, with the global generators as they were then, and the items that were read
already are passed over: they must be the same, which a checksum of them tells.

Bad samples: one that is skipped is named by its place among all items. A generator is over once it
has raised, which must not look like the end of the data: if nothing follows an error, the error is
raised after all. There is nothing to substitute.
"""

from __future__ import annotations

import contextlib
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch.utils.data import get_worker_info

from tensorferry._data import checksum, dataset_state, rng
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

    def __init__(
        self, source: Source, epoch: int, start: Any = None, *, draws_alone: bool = True
    ) -> None:
        """``draws_alone`` says that nobody draws from the global generators during a read."""
        self._source = source
        self._epoch = epoch
        self._start = start
        self._draws_alone = draws_alone
        self._items: Iterator[Any] | None = None
        self._tells = False
        """Whether the dataset or the iterator says where it is."""
        self._checksum = 0
        self._generators: dict[str, Any] | None = None
        """The global ones, as they were when the iterator was made."""
        self._count = 0
        self._ended = False

    def open(self) -> None:
        """Asks the dataset for its iterator, and goes to where it was."""
        if self._items is not None:
            return
        start = self._start
        try:
            if start is None:
                self._begin()
            elif start["dataset"] is start["iterator"] is None:
                self._replay(start)
            else:
                dataset_state.restore(self._source.dataset, start["dataset"])
                self._begin()
                dataset_state.restore(self._items, start["iterator"])
        except BaseException:
            self._items = None  # It is nowhere, and nothing must be read of it.
            raise
        if start is not None:
            self._count, self._ended = start["count"], start["ended"]
        _note_read(self._source.dataset)

    def _begin(self) -> None:
        dataset = self._source.dataset
        if self._draws_alone:
            self._generators = rng.globals_now()
        self._items = iter(dataset)
        self._tells = any(map(dataset_state.is_stateful, (dataset, self._items)))

    def _replay(self, start: Mapping[str, Any]) -> None:
        """From the beginning to the place. A worker goes on with its generators as they are then,
        the calling thread has them for itself again."""
        saved = start.get("generators") if self._draws_alone else None
        is_used = _was_read_here(self._source.dataset)
        with contextlib.ExitStack() as kept:
            if saved is not None:
                if get_worker_info() is None:
                    kept.enter_context(rng.globals_kept())
                rng.restore_globals(saved)
            self._begin()
            self._pass_over(start["count"], is_used and self._items is self._source.dataset)
        if start.get("checksum") not in (None, self._checksum):
            what = f"the state is {start['count']} items into the dataset, and read again it"
            raise InvalidInput(f"{what} gives others than before: {_STATE}")

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
                after = dataset_state.initial(self._source.dataset, is_iterable=True)
                return Batch(number, None, 0, bad=bad, ended=True, dataset_state=after)
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
            "checksum": None if self._tells else self._checksum,
            "generators": None if self._tells else self._generators,
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
            if not self._tells:
                self._checksum = checksum.of(item, self._checksum)
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
