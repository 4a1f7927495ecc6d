"""Processor time and memory of this process and of all that it started."""

from __future__ import annotations

import contextlib
import os
import resource
import threading
from pathlib import Path

TICK = 1 / os.sysconf("SC_CLK_TCK")
INTERVAL_SECONDS = 0.05


def descendants() -> list[int]:
    """Processes started by this one, and by those."""
    found: list[int] = []
    waiting = [os.getpid()]
    while waiting:
        process = waiting.pop()
        for listed in Path(f"/proc/{process}/task").glob("*/children"):
            # A process or thread may end while it is looked at.
            with contextlib.suppress(OSError):
                started = [int(each) for each in listed.read_text().split()]
                found += started
                waiting += started
    return found


def cpu_seconds() -> float:
    """Of all of them, living and dead. The living are told in ticks of 10 ms."""
    total = 0.0
    for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
        used = resource.getrusage(who)
        total += used.ru_utime + used.ru_stime
    for process in descendants():
        with contextlib.suppress(OSError):
            # The name, in parentheses, may hold blanks.
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
            total += sum(int(each) for each in fields[11:15]) * TICK
    return total


def memory_bytes() -> int:
    """Bytes that all of them hold: anonymous and shared memory, divided between those who share it.

    Pages of mapped files are left out. They belong to the page cache, and a process's part of them
    shrinks whenever any other program maps the same library.
    """
    total = 0
    for process in [os.getpid(), *descendants()]:
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
                if line.startswith(("Pss_Anon:", "Pss_Shmem:")):
                    total += int(line.split()[1]) * 1024
    return total


class Peak:
    """Watches memory in a thread of its own; ``take`` gives the largest size since the last."""

    def __init__(self) -> None:
        self._largest = 0
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Peak:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def take(self) -> int:
        """Looks once more, and starts anew."""
        self._look()
        with self._lock:
            largest, self._largest = self._largest, 0
        return largest

    def _look(self) -> None:
        size = memory_bytes()
        with self._lock:
            self._largest = max(self._largest, size)

    def _watch(self) -> None:
        while not self._ended.wait(INTERVAL_SECONDS):
            self._look()
