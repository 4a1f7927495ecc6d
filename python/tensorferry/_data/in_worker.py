"""What runs in a worker process.

torch's loop asks its dataset for an item and sends what it gets to the parent. Here the dataset is
a ``Worker``, an item a whole submission. The user sees torch's ``get_worker_info()`` with his own
dataset, and generators that were seeded as torch seeds them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from multiprocessing.reduction import ForkingPickler
from typing import Any, NamedTuple

import torch.utils.data
from torch._utils import ExceptionWrapper
from torch.utils.data._utils import worker as torch_worker

from tensorferry._data.engine import Batch
from tensorferry._data.reader import Readable, Reader
from tensorferry._data.seeding import seed_worker


class Task(NamedTuple):
    """A submission on its way to a worker."""

    run: int
    """Which run of the engine: persistent workers serve one after the other."""
    epoch: int
    number: int
    indices: Sequence[Any]


class Answer(NamedTuple):
    """What a worker makes of it, as it arrives."""

    batch: Batch
    failure: ExceptionWrapper | None
    """What is wrong with the batch, as torch sends it: with the traceback in its text."""


class Sent:
    """An answer on its way. torch's queue would drop what can't be pickled, and its loader would
    wait for it for ever: so that is told in its place."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer

    def __reduce__(self) -> tuple[Any, ...]:
        try:
            return ForkingPickler.loads, (bytes(ForkingPickler.dumps(self._answer)),)
        except Exception as error:
            return Answer, tuple(_told(self._answer, error))


def _told(answer: Answer, error: Exception) -> Answer:
    """In place of an answer that can't be sent."""
    batch, failure = answer
    if failure is None:
        what = "a worker process can't send this batch, or the state of the dataset after it"
        why = f"{error}. Return tensors, arrays, numbers and text, or load with num_workers=0"
        failed = RuntimeError(f"{what}: {why}")
        failure = ExceptionWrapper((RuntimeError, failed, None))  # type: ignore[no-untyped-call]
        where = f"in DataLoader worker process {batch.worker}"
        failure.where = where
    else:
        # The text has the name of its class.
        failure.exc_type = RuntimeError
    return Answer(Batch(batch.number, None, 0, worker=batch.worker), failure)


class Worker:
    """The dataset as torch's loop sees it."""

    def __init__(self, readable: Readable, dataset_states: Sequence[Any]) -> None:
        self._readable: Readable | None = readable
        self._dataset_states = dataset_states
        self._run: int | None = None
        self._reader: Reader | None = None

    @property
    def readable(self) -> Readable:
        """The user's dataset, and what becomes of its samples."""
        assert self._readable is not None
        return self._readable

    def forget(self) -> None:
        """In the parent, where nothing is read."""
        self._readable = None

    def __getitem__(self, task: Task | None) -> Sent | None:
        """Makes a batch; nothing of nothing, which is asked to give a turn to the next worker."""
        if task is None:
            return None
        info = torch.utils.data.get_worker_info()
        assert info is not None
        try:
            batch = self._reader_for(task, info.id).read(task.number, task.indices)
            if batch.error is not None:
                raise batch.error
        except Exception:
            where = f"in DataLoader worker process {info.id}"
            failure = ExceptionWrapper(where=where)  # type: ignore[no-untyped-call]
            return Sent(Answer(Batch(task.number, None, 0, worker=info.id), failure))
        return Sent(Answer(dataclasses.replace(batch, worker=info.id), None))

    def _reader_for(self, task: Task, worker: int) -> Reader:
        if self._reader is None or self._run != task.run:
            is_first = self._run is None and bool(self._dataset_states)
            start = self._dataset_states[worker] if is_first else None
            self._reader = None
            self._reader = self.readable.open(task.epoch, start)
            # Not before: a place that could not be gone to is not the beginning.
            self._run = task.run
        return self._reader


class SetUp:
    """A ``worker_init_fn`` for torch, around the user's."""

    def __init__(self, base_seed: int, init: Callable[[int], None] | None) -> None:
        self._base_seed = base_seed
        self._init = init

    def forget(self) -> None:
        """In the parent, where nothing is set up."""
        self._init = None

    def __call__(self, number: int) -> None:
        info = torch.utils.data.get_worker_info()
        assert info is not None
        worker: Any = info.dataset
        seed_worker(self._base_seed, number)
        torch_worker._worker_info = dataclasses.replace(
            info, seed=self._base_seed + number, dataset=worker.readable.dataset
        )
        if self._init is not None:
            self._init(number)


def as_it_is(answer: Any) -> Any:
    """In place of torch's collating."""
    return answer
