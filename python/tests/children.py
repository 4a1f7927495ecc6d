"""Processes that tests start: how long they may take, and that none outlives its test."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from multiprocessing import forkserver, resource_tracker
from pathlib import Path
from typing import Any

HANG_SECONDS = 600
"""What takes longer hangs. Nothing takes long: it is for machines that are busy with other things.
pytest's own limit is longer, so that who waits for a child sees it first, and ends the child."""

GOING_SECONDS = 60
"""For processes that have been told to end, or whose owner only the collector finds."""


@contextlib.contextmanager
def started(*command: Any, **options: Any) -> Iterator[subprocess.Popen[str]]:
    """A process that is gone in the end, whatever becomes of the test."""
    process = subprocess.Popen(command, text=True, **options)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                # What was written and not flushed has nobody to read it.
                with contextlib.suppress(BrokenPipeError):
                    stream.close()


def living() -> set[int]:
    """The children of this process, but for those that multiprocessing keeps for its own."""
    kept = {
        getattr(forkserver._forkserver, "_forkserver_pid", None),
        getattr(resource_tracker._resource_tracker, "_pid", None),
    }
    found: set[int] = set()
    for task in Path("/proc/self/task").iterdir():
        # A thread may end meanwhile, and some kernels do not tell.
        with contextlib.suppress(OSError):
            found.update(map(int, (task / "children").read_text().split()))
    return {pid for pid in found - kept if not _has_ended(pid)}


def end_those_left(before: set[int]) -> list[str]:
    """Ends the children that were not there before, if they do not go by themselves; what they
    were."""
    until = time.monotonic() + GOING_SECONDS
    while (left := living() - before) and time.monotonic() < until:
        gc.collect()
        time.sleep(0.01)
    told = [f"{pid} {_command(pid)}" for pid in left]
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return told


def _has_ended(pid: int) -> bool:
    """Also if nobody has asked how."""
    try:
        # The name in parentheses may hold anything.
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state in "ZX"


def _command(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()[:200]
    return ""
