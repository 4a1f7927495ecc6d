"""The processes of a session: a child and all that it has started, also when it has gone."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

GOING_SECONDS = 120
"""For processes to notice that the one that started them has gone."""


def members(leader: int) -> list[int]:
    """Those that live in the session of a process; not itself, no zombies."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != leader and _session_of(entry) == leader:
            found.append(int(entry.name))
    return found


def _session_of(entry: Path) -> int | None:
    try:
        # The name in parentheses may hold anything.
        fields = (entry / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[3])


def wait_until_gone(leader: int) -> list[str]:
    """Gives the others of a session time to leave; what those are that did not."""
    until = time.monotonic() + GOING_SECONDS
    while (left := members(leader)) and time.monotonic() < until:
        time.sleep(0.02)
    return [f"{pid} {_command(pid)}" for pid in left]


def end(leader: int) -> None:
    """Kills a session whose leader has not been reaped: its number is nobody else's."""
    for pid in [leader, *members(leader)]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def threads(pid: int) -> str:
    """The threads of a process, and the system call in which each waits."""
    lines = []
    for task in sorted(Path(f"/proc/{pid}/task").glob("*")):
        with contextlib.suppress(OSError):
            name = (task / "comm").read_text().strip()
            call = (task / "syscall").read_text().split()[0]
            lines.append(f"{task.name} {name}: system call {call}")
    return "\n".join(lines)


def _command(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""
