"""Saves that go on behind their callers.

What fails after the caller has left must not pass unnoticed: it is raised by ``wait()``, or by the
next call that saves, or printed when the interpreter goes, whichever comes first. The interpreter
waits for saves that are under way.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Callable

import tensorferry.io  # noqa: F401  (its engines are stopped at exit, after what is below)
from tensorferry import _lib
from tensorferry._checkpoint.report import SaveReport
from tensorferry._errors import Error, Timeout

# A signal handler may save while the main thread is in here.
_lock = threading.RLock()
_unseen: list[SaveJob] = []
"""Jobs whose outcome nobody has seen; those that succeeded are dropped at the next look."""


class SaveJob:
    """A save under way; its tensors may be changed already."""

    def __init__(
        self, path: str, saving: _lib.Saving, took: Callable[[float], None] | None = None
    ) -> None:
        self.path = path
        self._saving = saving
        with _lock:
            # Of saves that share the disk, none tells how fast its tool is.
            self._took = None if any(not job.done() for job in _unseen) else took
            _unseen.append(self)

    def wait_staged(self) -> float:
        """Seconds for which the caller was held, until all tensors were copied. They are, by the
        time there is a job: this returns at once, and is here for those who are used to ask."""
        return self._saving.staged_seconds

    def done(self) -> bool:
        """Whether waiting would return at once."""
        return self._saving.done()

    def wait(self, timeout: float | None = None) -> SaveReport:
        """Waits, at most ``timeout`` seconds, until the file is in its place; raises what went
        wrong."""
        try:
            report = self._saving.wait(timeout)
        except Timeout:
            raise
        except Error:
            # Not for being interrupted, or for a mistake in `timeout`: then it is still under way.
            if self.done():
                self._saw()
            raise
        self._saw()
        took, self._took = self._took, None
        if took is not None:
            took(report["seconds"])
        return SaveReport.of(self.path, report)

    def _saw(self) -> None:
        with _lock:
            if self in _unseen:
                _unseen.remove(self)

    def __repr__(self) -> str:
        return f"SaveJob({self.path!r}, {'done' if self.done() else 'running'})"


def raise_earlier_failure() -> None:
    """Raises the failure of an earlier job that nobody has waited for."""
    with _lock:
        done = [job for job in _unseen if job.done()]
    for job in done:
        try:
            job.wait()
        except Error as error:
            error.add_note(f"this save of {job.path} was begun earlier, and not waited for")
            raise


def _finish() -> None:
    with _lock:
        jobs = list(_unseen)
    for job in jobs:
        try:
            job.wait()
        except Exception as error:
            print(f"tensorferry: a save was lost: {job.path}: {error}", file=sys.stderr, flush=True)
        except BaseException:
            # Whoever interrupts a second time wants to be gone.
            left = ", ".join(each.path for each in jobs[jobs.index(job) :])
            print(f"tensorferry: saves were cut short: {left}", file=sys.stderr, flush=True)
            raise


def _forget() -> None:
    """In a forked child: the jobs are the parent's."""
    global _lock
    _lock = threading.RLock()
    _unseen.clear()


atexit.register(_finish)
os.register_at_fork(after_in_child=_forget)
