"""What this process may use of the machine."""

from __future__ import annotations

import os
import sys

from tensorferry import _lib


def memory_bytes() -> int:
    """Memory of the machine, or what the control groups of this process or its limit allow if that
    is less."""
    told = _lib.headroom()
    return _within_limit(_pages("SC_PHYS_PAGES") if told is None else told[0])


def free_memory_bytes() -> int:
    """What of it can still be taken before somebody is killed for it."""
    told = _lib.headroom()
    return _within_limit(_pages("SC_AVPHYS_PAGES") if told is None else told[1])


def _within_limit(number: int) -> int:
    limit = _lib.memory_limit()
    return number if limit is None else min(number, limit)


def processes(world_size: int) -> int:
    """Processes of this job that share the machine: as torchrun says, otherwise all ranks that
    there may be here."""
    told = os.environ.get("LOCAL_WORLD_SIZE", "")
    if told.isdecimal() and int(told) > 0:
        return int(told)
    dist = sys.modules.get("torch.distributed")
    if dist is not None and dist.is_available() and dist.is_initialized():
        return max(world_size, int(dist.get_world_size()))
    return world_size


def _pages(name: str) -> int:
    return os.sysconf(name) * os.sysconf("SC_PAGE_SIZE")
