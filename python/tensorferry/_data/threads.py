"""The engine for ``workers="threads"``: samples are got by threads of this process.

No copies, no pickling, no shared memory, no start-up; but Python code takes turns (the GIL), and
all threads use one dataset object. So it is for datasets that were written for that, and is never
chosen for the user.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Any

from tensorferry._data.engine import FRESH, Batch, EngineStats, Options, Resume
from tensorferry._data.fetch import Fetcher, Job
from tensorferry._data.thread_pool import Task, ThreadPool
from tensorferry._data.timeouts import DataTimeout, timed_out
from tensorferry._data.worker import WorkerInfo, set_worker_info
from tensorferry._errors import Closed


class ThreadEngine:
    """Threads and map-style datasets. Without ``persistent_workers``, each run has its own pool."""

    def __init__(self, fetcher: Fetcher, options: Options) -> None:
        self._fetcher = fetcher
        self._options = options
        self._pool: ThreadPool | None = None
        self._closed = False

    def begin(self, epoch: int, *, seed: int, base_seed: int, resume: Resume = FRESH) -> ThreadRun:
        """Starts an epoch."""
        if self._closed:
            raise Closed("this DataLoader is closed")
        if not self._options.persistent_workers:
            pool = self._start_pool(base_seed)
            return ThreadRun(pool, self._fetcher, epoch, self._options.in_order, pool.stop)
        if self._pool is None or not self._pool.is_here:
            self._pool = self._start_pool(base_seed)
            weakref.finalize(self, self._pool.stop).atexit = False
        run = ThreadRun(self._pool, self._fetcher, epoch, self._options.in_order, _nothing)
        run.keeps = self
        return run

    def stats(self) -> EngineStats:
        """Its threads."""
        return EngineStats(threads={"python": self._options.num_workers})

    def close(self) -> None:
        """Stops its threads."""
        self._closed = True
        if self._pool is not None:
            self._pool.stop()

    def _start_pool(self, base_seed: int) -> ThreadPool:
        return start_pool(
            self._options, self._options.num_workers, self._fetcher.dataset, base_seed
        )


def start_pool(options: Options, size: int, dataset: Any, base_seed: int) -> ThreadPool:
    """Threads that know which worker they are."""
    init = options.worker_init_fn

    def set_up(number: int) -> None:
        set_worker_info(WorkerInfo(number, size, base_seed + number, dataset))
        if init is not None:
            init(number)

    return ThreadPool(size, set_up)


def _nothing() -> None:
    pass


class FinishedBatches:
    """Where finished batches wait for the one who takes them: one thread takes, any put."""

    def __init__(self, in_order: bool) -> None:
        self._in_order = in_order
        self._finished: SimpleQueue[Batch | None] = SimpleQueue()
        self._early: dict[int, Batch] = {}
        self._wanted = 0
        self._closed = False

    @property
    def put(self) -> Callable[[Batch], None]:
        """Puts a batch. Does not keep this alive."""
        return self._finished.put

    def close(self) -> None:
        """Nothing more is taken; one who waits is woken."""
        self._closed = True
        self._finished.put(None)

    def next(self, timeout: float | None, waiting: dict[int, Sequence[Any]]) -> Batch:
        """Takes the next batch."""
        until = None if timeout is None else time.monotonic() + timeout
        while self._closed or self._wanted not in self._early:
            if self._closed:
                raise Closed("this iteration was closed; iterate over the DataLoader again")
            left = None if until is None else max(0.0, until - time.monotonic())
            try:
                batch = self._finished.get(timeout=left)
            except Empty:
                raise DataTimeout(_timed_out(timeout, waiting, self._wanted)) from None
            if batch is None:
                continue
            if not self._in_order:
                return batch
            self._early[batch.number] = batch
        self._wanted += 1
        return self._early.pop(self._wanted - 1)


def _timed_out(timeout: float | None, waiting: dict[int, Sequence[Any]], wanted: int) -> str:
    return timed_out(timeout, waiting.get(wanted) or next(iter(waiting.values()), []))


class ThreadRun:
    """One epoch in threads. Jobs do not refer to it, so that it is collected while they run."""

    keeps: object = None
    """What must live as long as this."""

    def __init__(
        self,
        pool: ThreadPool,
        fetcher: Fetcher,
        epoch: int,
        in_order: bool,
        stop: Callable[[], None],
    ) -> None:
        self._pool = pool
        self._fetcher = fetcher
        self._epoch = epoch
        self._finished_batches = FinishedBatches(in_order)
        self._waiting: dict[int, Sequence[Any]] = {}
        self._submitted = 0
        self._left = _Left(pool.stopped)
        self._stop = stop
        finalizer = weakref.finalize(self, _leave, self._left, stop)
        finalizer.atexit = False

    def submit(self, indices: Sequence[Any]) -> None:
        """Has threads get these samples."""
        number = self._submitted
        self._submitted += 1
        self._waiting[number] = indices
        job = Job(
            number, indices, self._epoch, self._fetcher, self._left, self._finished_batches.put
        )
        pieces: list[Task] = [*job.pieces(self._pool.size)]
        for piece in pieces:
            self._pool.put(piece)

    def next(self, timeout: float | None) -> Batch:
        """Waits for a batch."""
        batch = self._finished_batches.next(timeout, self._waiting)
        del self._waiting[batch.number]
        return batch

    def close(self) -> None:
        """Gives up what was submitted."""
        self._finished_batches.close()
        _leave(self._left, self._stop)


class _Left:
    """Whether a run was given up, or all of its pool."""

    def __init__(self, pool_stopped: Callable[[], bool]) -> None:
        self.up = False
        self._pool_stopped = pool_stopped

    def __call__(self) -> bool:
        return self.up or self._pool_stopped()


def _leave(left: _Left, stop: Callable[[], None]) -> None:
    left.up = True
    stop()
