"""What this process may use of the machine."""

from __future__ import annotations

import os
import sys

_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
"""Where a container's limit is, with the kernel's second and first kind of them."""


def memory_bytes() -> int:
    """Memory of the machine, or of the container if that has less."""
    return min(_pages("SC_PHYS_PAGES"), _container_limit())


def free_memory_bytes() -> int:
    """What nobody uses of it now, so far as the kernel tells."""
    return min(_pages("SC_AVPHYS_PAGES"), _container_limit())


def processes() -> int:
    """Processes of this job that share the machine, as torchrun says."""
    told = os.environ.get("LOCAL_WORLD_SIZE", "")
    return max(1, int(told)) if told.isdecimal() else 1


def _pages(name: str) -> int:
    return os.sysconf(name) * os.sysconf("SC_PAGE_SIZE")


def _container_limit() -> int:
    """Bytes of memory that a container may use."""
    for path in _LIMITS:
        try:
            with open(path, encoding="ascii") as file:
                return int(file.read())
        except (OSError, ValueError):
            continue
    return sys.maxsize
