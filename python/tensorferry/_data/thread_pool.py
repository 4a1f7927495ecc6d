"""Threads that serve one queue.

A thread refers to the queue and to nothing else, so that whoever owns the pool can be collected and
take it down. The queue is a ``SimpleQueue``, whose ``put`` may be called by a finalizer that
interrupts another ``put``; there is no lock here that one could find taken. It needs no bound of
its own: who puts tasks bounds them.

Threads are daemons, so that a sample that never comes can't keep the interpreter from leaving; but
leaving waits a little for them, because a thread inside native code must not be cut off there.
"""

from __future__ import annotations

import atexit
import gc
import os
import threading
import time
import weakref
from collections.abc import Callable
from queue import SimpleQueue
from typing import Protocol

LEAVE_SECONDS_MAX = 5.0
"""How long a pool that is stopped waits for the samples in its threads' hands, as torch does."""


class Task(Protocol):
    """Work for a thread. Neither method raises."""

    def work(self) -> None:
        """Does it."""

    def fail(self, error: BaseException) -> None:
        """The thread could not be set up."""


class ThreadPool:
    """So many threads, until ``stop``."""

    def __init__(self, size: int, set_up: Callable[[int], None]) -> None:
        self._tasks: SimpleQueue[Task | None] = SimpleQueue()
        self._stopped = _Flag()
        self._process = os.getpid()
        self._threads = [
            threading.Thread(
                target=_serve,
                args=(self._tasks, self._stopped, set_up, number),
                name=f"ferry-data-{number}",
                daemon=True,
            )
            for number in range(size)
        ]
        _pools.add(self)
        try:
            for thread in self._threads:
                thread.start()
        except BaseException:
            self.stop()
            raise

    @property
    def size(self) -> int:
        """How many threads."""
        return len(self._threads)

    @property
    def is_here(self) -> bool:
        """Whether its threads are in this process, and not in one that this was forked from."""
        return self._process == os.getpid()

    @property
    def stopped(self) -> Callable[[], bool]:
        """Whether tasks are to be given up; a function that does not keep the pool alive."""
        return self._stopped.__bool__

    def put(self, task: Task) -> None:
        """Has a thread do it, after all that was put before."""
        self._tasks.put(task)

    def stop(self) -> None:
        """Ends the threads, and waits for what they have in hand: so after a ``break`` no thread
        is inside the dataset. Twice is once.

        The garbage collector does not wait. It may have interrupted anything, also the start of a
        thread for which one of these waits."""
        if not self.is_here or self._stopped:
            return
        self._stopped.up = True
        for _ in self._threads:
            self._tasks.put(None)
        if _collector.runs_here:
            return
        until = time.monotonic() + LEAVE_SECONDS_MAX
        for thread in self._threads:
            if thread.is_alive() and thread is not threading.current_thread():
                thread.join(max(0.0, until - time.monotonic()))


class _Collector:
    """Whether this thread is inside a garbage collection."""

    def __init__(self) -> None:
        self._thread: int | None = None
        gc.callbacks.append(self._note)

    @property
    def runs_here(self) -> bool:
        return self._thread == threading.get_ident()

    def _note(self, phase: str, info: dict[str, int]) -> None:
        self._thread = threading.get_ident() if phase == "start" else None


_collector = _Collector()


class _Flag:
    """An ``Event`` without its lock."""

    up = False

    def __bool__(self) -> bool:
        return self.up


def _serve(
    tasks: SimpleQueue[Task | None],
    stopped: _Flag,
    set_up: Callable[[int], None],
    number: int,
) -> None:
    failure: BaseException | None = None
    try:
        set_up(number)
    except BaseException as error:
        error.add_note(f"in worker_init_fn({number})")
        failure = error
    reason = f"worker_init_fn({number}) failed: {failure!r}"
    while (task := tasks.get()) is not None and not stopped:
        if failure is None:
            task.work()
        else:
            task.fail(failure)
            # Once raised it refers, by its traceback, to all that must be collected to stop us.
            failure = RuntimeError(reason)
        del task  # A thread that waits holds no batch.


_pools: weakref.WeakSet[ThreadPool] = weakref.WeakSet()


@atexit.register
def _stop_all() -> None:
    for pool in list(_pools):
        pool.stop()


os.register_at_fork(after_in_child=_pools.clear)
