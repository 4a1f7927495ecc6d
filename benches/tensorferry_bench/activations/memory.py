"""Memory of this process, as the kernel counts it."""

from __future__ import annotations

import resource
from pathlib import Path


def resident() -> int:
    """Bytes in memory now."""
    return _field("VmRSS")


def peak() -> int:
    """The most bytes that were in memory so far."""
    return _field("VmHWM")


def page_faults() -> int:
    """How often the kernel made memory for this process so far, a page at a time."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def _field(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise LookupError(f"the kernel tells no {name}")
