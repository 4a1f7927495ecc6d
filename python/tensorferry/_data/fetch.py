"""From indices to a batch, with a map-style dataset.

A batch is cut into pieces, each a task of its own, so that all threads work on the batch that is
wanted next, whatever the batch size; the thread that ends the last piece collates. A dataset with
``__getitems__`` is asked once for the whole batch, as torch does.
"""

from __future__ import annotations

import operator
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from threading import Lock
from typing import Any, NamedTuple

from tensorferry._data import dataset_state
from tensorferry._data.bad import BadSample, substitutes
from tensorferry._data.engine import Batch, OnError, Stage


class Abandoned(BaseException):
    """Nobody waits for this batch any more."""


class Sample(NamedTuple):
    """A sample, or why there is none."""

    data: Any
    is_there: bool = True
    bad: BadSample | None = None
    error: Exception | None = None


@dataclass(frozen=True, slots=True)
class Fetcher:
    """How samples are got from a dataset and put together."""

    dataset: Any
    batched: bool
    collate: Callable[[Any], Any]
    pin: Callable[[Any], Any] | None
    on_error: OnError
    seed: int

    def open(self, epoch: int, start: Any) -> IndexReader:
        """Begins an epoch in one thread."""
        return IndexReader(self, epoch, start)

    @property
    def length(self) -> int | None:
        """Samples in the dataset, if it says so; it may grow between epochs."""
        try:
            return len(self.dataset)
        except (TypeError, NotImplementedError):
            return None

    @property
    def gets_many(self) -> bool:
        """Whether the dataset wants to be asked for a batch at once."""
        return self.batched and bool(getattr(self.dataset, "__getitems__", None))

    def sample(self, index: Any, epoch: int) -> Sample:
        """One sample, by the rules for bad ones."""
        try:
            return Sample(self.dataset[index])
        except Exception as error:
            if self.on_error == "raise":
                raise
            if self.on_error == "skip":
                return Sample(None, False, BadSample.of(epoch, index, error), error)
            return self.substituted(index, epoch, error)

    def many(self, indices: Sequence[Any], epoch: int) -> list[Sample]:
        """A batch at once; if that fails and bad samples are allowed, one by one."""
        try:
            got = [Sample(each) for each in self.dataset.__getitems__(indices)]
        except Exception:
            if self.on_error == "raise":
                raise
            return [self.sample(index, epoch) for index in indices]
        return got

    def assembled(self, samples: list[Sample]) -> tuple[Any, float, float]:
        """The batch, and the seconds that collating and pinning took."""
        began = time.perf_counter()
        data = self.collate([each.data for each in samples] if self.batched else samples[0].data)
        collated = time.perf_counter()
        if self.pin is not None:
            data = self.pin(data)
        return data, collated - began, time.perf_counter() - collated

    def substituted(self, index: Any, epoch: int, error: Exception) -> Sample:
        """A sample in place of a bad one; if there is none, what is wrong with that is raised."""
        if not hasattr(index, "__index__") or not self.length:
            error.add_note("no substitute: that needs whole numbers for indices, and a length")
            raise error
        tried = 0
        for other in substitutes(self.seed, epoch, operator.index(index), self.length):
            try:
                data = self.dataset[other]
            except Exception:
                tried += 1
                continue
            return Sample(data, True, BadSample.of(epoch, index, error, other))
        error.add_note(f"{tried} substitutes for it could not be read either")
        raise error


class IndexReader:
    """One epoch of a map-style dataset, in one thread."""

    def __init__(self, fetcher: Fetcher, epoch: int, start: Any) -> None:
        dataset_state.restore(fetcher.dataset, start)
        self._fetcher = fetcher
        self._epoch = epoch

    def read(self, number: int, indices: Sequence[Any]) -> Batch:
        """The batch of these samples."""
        batches: list[Batch] = []
        job = Job(number, indices, self._epoch, self._fetcher, lambda: False, batches.append)
        for piece in job.pieces(1):
            piece.work()
        return replace(batches.pop(), dataset_state=dataset_state.of(self._fetcher.dataset))


class Job:
    """One batch in the making. Pieces run in any threads; ``done`` is called once, by the last."""

    def __init__(
        self,
        number: int,
        indices: Sequence[Any],
        epoch: int,
        fetcher: Fetcher,
        is_given_up: Callable[[], bool],
        done: Callable[[Batch], None],
    ) -> None:
        self._number = number
        self._indices = indices
        self._epoch = epoch
        self._fetcher = fetcher
        self._is_given_up = is_given_up
        self._done = done
        self._samples: list[Sample | None] = [None] * len(indices)
        self._failures: list[tuple[int, BaseException]] = []
        self._lock = Lock()
        self._open = 0
        self._seconds = 0.0

    def pieces(self, at_most: int) -> list[Piece]:
        """Cuts it, into one piece at least."""
        count = len(self._indices)
        size = count if self._fetcher.gets_many else -(-count // at_most)
        cuts = [(at, min(count, at + size)) for at in range(0, count, max(1, size))] or [(0, 0)]
        self._open = len(cuts)
        return [Piece(self, first, last) for first, last in cuts]

    def fetch(self, first: int, last: int) -> None:
        """Gets the samples of a piece, and ends the batch if it is the last."""
        began = time.perf_counter()
        try:
            self._fetch(first, last)
        except BaseException as error:
            self._failures.append((first, error))
        self.leave(time.perf_counter() - began)

    def fail(self, first: int, error: BaseException) -> None:
        """A piece failed before it began."""
        self._failures.append((first, error))
        self.leave(0.0)

    def leave(self, seconds: float) -> None:
        """A piece is done, or failed."""
        with self._lock:
            self._open -= 1
            self._seconds += seconds
            is_last = self._open == 0
        if is_last:
            self._done(self._batch())

    def _fetch(self, first: int, last: int) -> None:
        if self._is_given_up():
            raise Abandoned
        if self._fetcher.gets_many:
            self._samples = list(self._noted(None, self._fetcher.many, self._indices))
            return
        for at in range(first, last):
            if self._is_given_up():
                raise Abandoned
            index = self._indices[at]
            self._samples[at] = self._noted(index, self._fetcher.sample, index)

    def _noted(self, index: Any, get: Callable[[Any, int], Any], what: Any) -> Any:
        """Whatever goes wrong names the sample."""
        try:
            return get(what, self._epoch)
        except BaseException as error:
            which = f"samples {list(self._indices)}" if index is None else f"sample {index!r}"
            note = f"while getting {which} from the dataset, in epoch {self._epoch}"
            if isinstance(error, StopIteration):
                # It would end the user's loop without a word.
                raise RuntimeError(f"the dataset raised StopIteration {note}") from error
            error.add_note(note)
            raise

    def _batch(self) -> Batch:
        seconds: dict[Stage, float] = {"python": self._seconds}
        if self._failures:
            # Of several bad samples the first, whichever thread was faster.
            _, error = min(self._failures, key=lambda failure: failure[0])
            self._failures = []  # They refer to this through their tracebacks.
            return Batch(self._number, None, 0, error=error, seconds=seconds)
        samples = [each for each in self._samples if each is not None]
        try:
            if samples and not any(each.is_there for each in samples):
                samples = self._stand_ins(samples)
        except BaseException as error:
            return Batch(self._number, None, 0, error=error, seconds=seconds)
        bad = [each.bad for each in samples if each.bad is not None]
        kept = [each for each in samples if each.is_there]
        try:
            data, collating, seconds["hand-over"] = self._fetcher.assembled(kept)
        except BaseException as error:
            error.add_note(f"while collating samples {list(self._indices)}")
            return Batch(self._number, None, 0, error=error, seconds=seconds)
        seconds["python"] += collating
        return Batch(self._number, data, max(1, len(kept)), bad=bad, seconds=seconds)

    def _stand_ins(self, samples: list[Sample]) -> list[Sample]:
        """In place of a batch of nothing but bad samples: without it, this rank would get fewer
        batches than others, which would wait for it."""
        found: list[Sample] = []
        failures: list[Exception] = []
        for index, sample in zip(self._indices, samples, strict=True):
            assert sample.error is not None
            if self._is_given_up():
                raise Abandoned
            substituted = partial(self._fetcher.substituted, error=sample.error)
            try:
                found.append(self._noted(index, substituted, index))
            except Exception as error:
                failures.append(error)
                found.append(sample)
        if len(failures) == len(found):
            raise failures[0]
        return found


class Piece(NamedTuple):
    """Some samples of a batch: a task for a thread."""

    job: Job
    first: int
    last: int

    def work(self) -> None:
        """Gets them."""
        self.job.fetch(self.first, self.last)

    def fail(self, error: BaseException) -> None:
        """The thread could not be set up."""
        self.job.fail(self.first, error)
