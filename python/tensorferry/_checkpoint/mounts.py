"""What is mounted where: each file system has a dictionary of its own."""

from __future__ import annotations

import os
import select
import threading
from dataclasses import dataclass
from functools import lru_cache

IN_MEMORY = ("tmpfs", "ramfs")
"""Kinds of file systems on which nothing is durable, and everything is in the page cache."""


@dataclass(frozen=True, slots=True)
class Mount:
    """A file system."""

    name: str
    """What is mounted, of which kind, and where."""
    in_memory: bool


class Mounts:
    """The table of mounts; the kernel says when it has changed."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._process = 0
        self._generation = 0
        self._known: list[tuple[str, Mount]] = []
        self._by_device: dict[int, Mount] = {}
        self._devices_of = 0
        self._file: int | None = None
        self._changed = select.poll()

    def of(self, path: str, device: int | None = None) -> Mount:
        """The file system that a path lies on; ``device`` is its number, where that is known."""
        generation = self.generation()
        if device is None:
            return _of_directory(os.path.abspath(os.path.dirname(path)), generation)
        # The number of a device that is gone may be another one's.
        if self._devices_of != generation:
            self._devices_of = generation
            self._by_device.clear()
        known = self._by_device.get(device)
        if known is None:
            known = self._by_device[device] = self.of(path)
        return known

    def generation(self) -> int:
        """A number that is another one once something was mounted or unmounted."""
        with self._lock:
            if self._process != os.getpid():
                # A child shares the parent's descriptor, and the kernel tells each change once.
                self._open()
            elif self._file is None or not self._changed.poll(0):
                return self._generation
            self._read()
            return self._generation

    def table(self) -> list[tuple[str, Mount]]:
        """Mount points and what is there, as they were when the generation was asked for."""
        return self._known

    def _open(self) -> None:
        self._process = os.getpid()
        self._changed = select.poll()
        try:
            # Open as long as the process is: no object whose end somebody would warn of.
            self._file = os.open("/proc/self/mounts", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._file = None
            return
        self._changed.register(self._file, select.POLLPRI | select.POLLERR)

    def _read(self) -> None:
        self._generation += 1
        if self._file is None:
            return
        os.lseek(self._file, 0, os.SEEK_SET)
        with open(self._file, encoding="utf-8", errors="replace", closefd=False) as table:
            self._known = [_mount(*line.split(" ")[:3]) for line in table]


def _mount(source: str, point: str, kind: str) -> tuple[str, Mount]:
    point = point.replace("\\040", " ")
    return point, Mount(f"{source} ({kind}) on {point}", kind in IN_MEMORY)


MOUNTS = Mounts()


@lru_cache(maxsize=1024)
def _of_directory(directory: str, generation: int) -> Mount:
    directory = os.path.realpath(directory)
    best = ("/", Mount(" on /", in_memory=False))
    for point, mount in MOUNTS.table():
        inside = directory == point or directory.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best[0]):
            best = (point, mount)
    return best[1]
