"""Files that this process has saved: how large the object in each is, and which tool wrote it."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from typing import TypeAlias

REMEMBERED_MAX = 10_000
"""Files that are remembered; those saved first are forgotten first."""

Stamp: TypeAlias = tuple[int, int, int, int]
"""Device, number, time of change and length: what changes when a file is replaced."""


class Remembered:
    """Sizes and tools, by what a file is at the moment."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._files: OrderedDict[Stamp, tuple[int, str]] = OrderedDict()

    def of(self, stamp: Stamp) -> tuple[int, str] | None:
        """Size of the object and tool, of a file that was not changed since."""
        return self._files.get(stamp)

    def add(self, path: str, nbytes: int, tool: str) -> None:
        """Notes a file that was saved just now."""
        try:
            stat = os.stat(path)
        except OSError:
            # It was saved, and somebody has moved it already.
            return
        stamp = (stat.st_dev, stat.st_ino, stat.st_mtime_ns, stat.st_size)
        with self._lock:
            self._files[stamp] = (nbytes, tool)
            while len(self._files) > REMEMBERED_MAX:
                self._files.popitem(last=False)
