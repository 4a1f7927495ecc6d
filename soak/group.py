"""A control group that bounds the memory of processes, in version 1 or 2."""

from __future__ import annotations

import os
import time
from pathlib import Path

from soak.failure import Leftover, NotHere

MOUNT = Path("/sys/fs/cgroup")
EMPTYING_SECONDS = 60
"""For the kernel to take processes that have ended out of a group."""


class Group:
    """Processes in it have so many bytes together, without swap."""

    def __init__(self, name: str, limit: int) -> None:
        place = _parent()
        self._place = place / name
        version_1 = (place / "memory.limit_in_bytes").exists()
        self._events = self._place / ("memory.oom_control" if version_1 else "memory.events")
        names = ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes")
        limits = zip(names, (limit, limit), strict=True)
        if not version_1:
            limits = zip(("memory.max", "memory.swap.max"), (limit, 0), strict=True)
        try:
            self._place.mkdir()
            for file, value in limits:
                if (self._place / file).exists():
                    (self._place / file).write_text(str(value))
            self._events.read_text()
        except OSError as error:
            raise NotHere("a control group for memory") from error

    def join(self) -> None:
        """Takes in the process that calls."""
        (self._place / "cgroup.procs").write_text("0")

    def kills(self) -> int:
        """Processes that the kernel has ended in it."""
        lines = [line.split() for line in self._events.read_text().splitlines()]
        return next(int(value) for name, value in lines if name == "oom_kill")

    def close(self) -> None:
        """Removes it."""
        until = time.monotonic() + EMPTYING_SECONDS
        while True:
            try:
                return self._place.rmdir()
            except OSError as error:
                if time.monotonic() > until:
                    raise Leftover(f"the control group is not empty: {error}") from error
                time.sleep(0.02)


def _parent() -> Path:
    """The group for memory that this process is in."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "memory":
            return MOUNT / "memory" / path.lstrip("/")
    return _parent_2()


def _parent_2() -> Path:
    place = MOUNT
    if "memory" not in _text(place / "cgroup.controllers").split():
        raise NotHere("a control group for memory")
    if "memory" not in _text(place / "cgroup.subtree_control").split():
        try:
            (place / "cgroup.subtree_control").write_text("+memory")
        except OSError as error:
            raise NotHere("a control group for memory") from error
    return place


def _text(path: Path) -> str:
    return path.read_text() if os.access(path, os.R_OK) else ""
