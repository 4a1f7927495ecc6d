"""The engine for datasets in Python: batches are made by worker processes, which are torch's.

torch's own loader starts and feeds them, takes what they make, and sees when one dies. It is given
submissions for samples, in the order in which they come, and asks for another whenever it hands a
batch over; so one more than it may have under way is submitted before a wait.
"""

from __future__ import annotations

import os
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import torch
import torch.utils.data
from torch._utils import ExceptionWrapper

from tensorferry._data.engine import FRESH, Batch, EngineStats, Options, Resume
from tensorferry._data.in_worker import Answer, SetUp, Task, Worker, as_it_is
from tensorferry._data.reader import Readable
from tensorferry._data.timeouts import DataTimeout, timed_out
from tensorferry._errors import Closed


class ProcessEngine:
    """Worker processes and a dataset. Without ``persistent_workers``, each run has its own."""

    def __init__(self, readable: Readable, options: Options) -> None:
        self._readable = readable
        self._options = options
        self._runs = count()
        self._kept: Workers | None = None
        self._closed = False

    def begin(self, epoch: int, *, seed: int, base_seed: int, resume: Resume = FRESH) -> ProcessRun:
        """Starts an epoch."""
        if self._closed:
            raise Closed("this DataLoader is closed")
        workers = self._kept
        if workers is None or not workers.is_free or resume.dataset_states:
            workers = Workers(self._readable, self._options, base_seed, resume.dataset_states)
            self._keep(workers)
        run = ProcessRun(workers, next(self._runs), epoch, self._options)
        workers.serves = weakref.ref(run)
        if resume.dataset_states:
            run.pass_turns(resume.batches % self._options.num_workers)
        return run

    def stats(self) -> EngineStats:
        """Its processes."""
        return EngineStats(threads={"python": self._options.num_workers})

    def close(self) -> None:
        """Stops its processes."""
        self._closed = True
        if self._kept is not None:
            self._kept.stop()

    def _keep(self, workers: Workers) -> None:
        """Those that persist; not those of a second run beside a first."""
        is_taken = self._kept is not None and self._kept.is_well and not self._kept.is_free
        if self._options.persistent_workers and not is_taken:
            self._kept = workers


class ProcessRun:
    """One epoch of it. The processes begin when they have all that they may have under way, or when
    somebody waits."""

    def __init__(self, workers: Workers, number: int, epoch: int, options: Options) -> None:
        self._workers: Workers | None = workers
        self._number = number
        self._epoch = epoch
        self._options = options
        self._tasks: deque[Task | None] = deque()
        self._waiting: dict[int, Sequence[Any]] = {}
        self._submitted = 0
        self._begun = False
        self._ended: set[int] = set()

    @property
    def is_over(self) -> bool:
        """Whether it has let go of its processes."""
        return self._workers is None

    def pass_turns(self, turns: int) -> None:
        """The first submissions go to workers after so many others: their turn has come."""
        self._tasks.extend([None] * turns)

    def submit(self, indices: Sequence[Any]) -> None:
        """Has a worker make this batch."""
        number, self._submitted = self._submitted, self._submitted + 1
        self._waiting[number] = indices
        self._tasks.append(Task(self._number, self._epoch, number, indices))
        if self._submitted == self._options.ahead:
            self._begin()

    def next(self, timeout: float | None) -> Batch:
        """Waits for a batch."""
        if len(self._ended) == self._options.num_workers:
            raise StopIteration
        answer = self._answer()
        batch, failure = answer.batch, answer.failure
        del self._waiting[batch.number]
        if batch.ended:
            self._ended.add(batch.worker)
        return batch if failure is None else replace(batch, error=_raised(failure))

    def close(self) -> None:
        """Lets go of its processes; unless they persist, they end."""
        workers, self._workers = self._workers, None
        if workers is not None and not self._options.persistent_workers:
            workers.stop()
        self._tasks.clear()

    def _begin(self) -> None:
        if not self._begun and self._workers is not None:
            self._begun = True
            self._workers.work(self._tasks)

    def _answer(self) -> Answer:
        self._begin()
        while True:
            if self._workers is None:
                raise Closed("this iteration was closed; iterate over the DataLoader again")
            answer = self._workers.answer()
            if answer is LATE:
                indices = next(iter(self._waiting.values()), [])
                raise DataTimeout(timed_out(self._options.timeout, indices))
            if answer is not None:
                return Answer(*answer)


LATE = object()
"""In place of an answer that did not come in time."""


class Workers:
    """torch's loader over submissions, and its iterator, which holds the processes.

    They end when the iterator goes. That must not be left to Python's collector: it closes the
    queues first, and then torch waits for processes that nobody can tell to stop. So the iterator
    is held from outside, refers to nothing of the user's, and is let go of when this is."""

    def __init__(
        self, readable: Readable, options: Options, base_seed: int, dataset_states: Sequence[Any]
    ) -> None:
        self.serves: weakref.ref[ProcessRun] | None = None
        self._held = _Held()
        self._feed = _Feed()
        self._failure: str | None = None
        self._worker = Worker(readable, dataset_states)
        self._set_up = SetUp(base_seed, options.worker_init_fn)
        self._loader: _Loader | None = _Loader(
            self._worker,  # type: ignore[arg-type]
            batch_size=None,
            sampler=self._feed,
            num_workers=options.num_workers,
            collate_fn=as_it_is,
            pin_memory=options.pin is not None,
            timeout=options.timeout,
            worker_init_fn=self._set_up,
            multiprocessing_context=options.multiprocessing_context,
            # torch draws a seed from it, which is not used.
            generator=torch.Generator(),
            prefetch_factor=options.prefetch_factor,
            persistent_workers=options.persistent_workers,
            in_order=options.in_order,
        )
        weakref.finalize(self, self._held.let_go).atexit = False

    @property
    def is_well(self) -> bool:
        """Whether they can work for this process."""
        return self._held.is_here and not self._held.is_over

    @property
    def is_free(self) -> bool:
        """Whether another run may have them."""
        run = None if self.serves is None else self.serves()
        return self.is_well and (run is None or run.is_over)

    def work(self, tasks: deque[Task | None]) -> None:
        """Has them take these tasks from now on."""
        assert self._loader is not None
        self._feed.tasks = tasks
        self._held.iterator = iter(self._loader)
        # The processes have them. Held from outside, they would never be collected.
        self._worker.forget()
        self._set_up.forget()

    def answer(self) -> Any:
        """The next that one of them made, or LATE. What is raised is the end of them all: one was
        killed, or could not be set up."""
        if self._failure is not None:
            raise RuntimeError(self._failure)
        try:
            return next(self._held.iterator)
        except Exception as error:
            if str(error).startswith("DataLoader timed out"):
                return LATE
            failure = _without_frames(_explained(error))
        self._failure = str(failure)
        self.stop()
        try:
            raise failure
        finally:
            # It refers to all frames that it goes through. Kept here, it would make a cycle of this
            # and of everybody in them, also of workers that were begun after these.
            del failure

    def stop(self) -> None:
        """Ends the processes."""
        self._loader = None
        self._held.let_go()


class _Held:
    """torch's iterator, until it is let go of."""

    def __init__(self) -> None:
        self._process = os.getpid()
        self.iterator: Any = None
        self.is_over = False

    @property
    def is_here(self) -> bool:
        """Whether the processes are of this one, and not of one that this was forked from."""
        return self._process == os.getpid()

    def let_go(self) -> None:
        """Ends the processes. A forked child leaves its parent's alone."""
        self.is_over = True
        if self.is_here:
            self.iterator = None
        else:
            _of_the_parent.append(self.iterator)


_of_the_parent: list[Any] = []
"""Iterators that must not go in this process: torch would tell the parent's processes to stop."""


class _Loader(torch.utils.data.DataLoader[Any]):
    """Says nothing of the number of workers: the user's loader has said it."""

    def check_worker_number_rationality(self) -> None:
        """Nothing."""


class _Feed:
    """The sampler of torch's loader: what was submitted and not yet sent."""

    def __init__(self) -> None:
        self.tasks: deque[Task | None] = deque()

    def __iter__(self) -> Iterator[Task | None]:
        return _Sending(self.tasks)


class _Sending:
    """Ends whenever nothing is there, and goes on when something is."""

    def __init__(self, tasks: deque[Task | None]) -> None:
        self._tasks = tasks

    def __iter__(self) -> Iterator[Task | None]:
        return self

    def __next__(self) -> Task | None:
        if not self._tasks:
            raise StopIteration
        return self._tasks.popleft()


def _raised(failure: ExceptionWrapper) -> BaseException:
    """What torch's loader would raise."""
    try:
        failure.reraise()  # type: ignore[no-untyped-call]
    except StopIteration as error:
        return RuntimeError(f"StopIteration in a worker process: {error}")
    except Exception as error:
        return _without_frames(error)
    raise AssertionError("a failure that raises nothing")


def _explained(error: Exception) -> Exception:
    """A batch whose worker died while it was handed over is a lost connection to torch, or memory
    that is not there any more."""
    lost = ConnectionError | EOFError | FileNotFoundError
    if not isinstance(error, lost) or "DataLoader worker" in str(error):
        return error
    return RuntimeError(f"a DataLoader worker (pid unknown) exited unexpectedly: {error!r}")


def _without_frames(error: Exception) -> Exception:
    """Frames of torch's iterator hold it, and with it the processes."""
    each: BaseException | None = error
    while each is not None:
        each.__traceback__ = None
        each = each.__cause__ or each.__context__
    return error
