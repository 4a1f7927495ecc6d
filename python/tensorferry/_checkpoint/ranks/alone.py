"""Ranks that can't talk to each other: the n-th calls for a path belong together.

The rules, and why they are safe, are told in the package's prose.
"""

from __future__ import annotations

import os
import secrets
import threading
import time
import warnings
from dataclasses import dataclass, field
from functools import cache

from tensorferry._checkpoint.ranks.group import Group
from tensorferry._checkpoint.ranks.index import Index, latest_generation, replaceable
from tensorferry._checkpoint.ranks.names import beside, rank_file
from tensorferry._checkpoint.ranks.ticket import Ticket

UNFINISHED_MAX = 8
"""Saves without an index, after so many of which a rank warns."""

AFTER_A_FAILURE = (
    "after a save that has failed, nobody can tell which saves of other ranks belong to those of "
    "this one: start all ranks again"
)


@dataclass
class _Line:
    """This process's saves to one path, for one number of ranks."""

    generation: int | None = None
    """Of the index that was there at the first call."""
    counts: dict[int, int] = field(default_factory=dict)
    """Calls, by rank."""
    marks: dict[int, str] = field(default_factory=dict)
    """By rank that has failed: what sets its saves apart from those of all others."""
    unfinished: dict[int, list[Ticket]] = field(default_factory=dict)
    """By rank: saves of which this process has not seen the index."""

    def token(self, number: int) -> str:
        """Of the save that has this number for all ranks."""
        return f"g{(self.generation or 0) + number}n{number}"

    def has_made(self, index: Index) -> bool:
        """Whether an index is one of this line."""
        return index.token == self.token(index.generation - (self.generation or 0))


_lock = threading.Lock()
_lines: dict[tuple[str, int], _Line] = {}
"""One for each path that this process has saved to."""


def begin(path: str, group: Group) -> Ticket:
    """The next save of this rank to this path."""
    index = replaceable(path)
    with _lock:
        line = _lines.setdefault((path, group.world_size), _Line())
        if line.generation is None:
            line.generation = max(index.generation if index else 0, latest_generation(path))
        number = line.counts[group.rank] = line.counts.get(group.rank, 0) + 1
        mark = line.marks.get(group.rank, "")
        unfinished = line.unfinished.setdefault(group.rank, [])
        known = index if index and line.has_made(index) else None
        unfinished[:] = [old for old in unfinished if not _settled(old, known, path, group)]
        count = sum(old.token.endswith(mark) for old in unfinished)
        ticket = Ticket(line.token(number) + mark, line.generation + number, time.time())
        unfinished.append(ticket)
    if count and (mark or count % UNFINISHED_MAX == 0):
        what = f"{count} saves of rank {group.rank} to {path} have not been completed by the others"
        why = AFTER_A_FAILURE if mark else "all ranks have to save, each as often"
        warnings.warn(f"{what}; {why}, or initialise torch.distributed", stacklevel=5)
    return ticket


def finished(path: str, group: Group, ticket: Ticket) -> None:
    """The index of this save is there."""
    with _lock:
        line = _lines.get((path, group.world_size), _Line())
        unfinished = line.unfinished.get(group.rank, [])
        if ticket in unfinished:
            unfinished.remove(ticket)


def failed(path: str, group: Group, failure: BaseException) -> None:
    """Nobody can say any more which calls of this rank belong to which of others."""
    if group.world_size == 1:
        return
    failure.add_note(f"{AFTER_A_FAILURE}, or initialise torch.distributed")
    with _lock:
        line = _lines.setdefault((path, group.world_size), _Line())
        line.marks.setdefault(group.rank, f"x{secrets.token_hex(8)}")


def _settled(old: Ticket, index: Index | None, path: str, group: Group) -> bool:
    """Whether a save has its index, or never gets one: its file is gone, or there is an index of
    this line that is as new, which says that all ranks are past it."""
    own = beside(path, rank_file(path, group.rank, group.world_size, old.token))
    return not os.path.exists(own) or (index is not None and index.generation >= old.generation)


def process_started() -> float:
    """When this process started, in seconds since 1970, as well as the kernel tells."""
    return _started(os.getpid())


@cache
def _started(process: int) -> float:
    # Asked once: the clock may be set later. Children that were forked ask for themselves.
    try:
        with open("/proc/self/stat", "rb") as file:
            # The name before it may contain anything, also spaces and brackets.
            ticks = int(file.read().rpartition(b")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return _imported
    a_tick = 1 / os.sysconf("SC_CLK_TCK")
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks * a_tick
    # One tick earlier: what this process has begun was never begun before it.
    return time.time() - age - a_tick


_imported = time.time()
