"""How things are shared out between ranks. Pure."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence


def chunk(size: int, part: int, parts: int) -> tuple[int, int]:
    """Where one of ``parts`` begins and ends, as ``torch.chunk`` cuts: all are of one size, but the
    last ones, which may be smaller or empty."""
    step = -(-size // parts)
    return min(part * step, size), min((part + 1) * step, size)


def chunk_sizes(size: int, parts: int) -> list[int]:
    """How much each gets."""
    ends = (chunk(size, part, parts) for part in range(parts))
    return [end - start for start, end in ends]


def starts(sizes: Sequence[int]) -> list[int]:
    """Where each begins, and where the last one ends."""
    at = [0]
    for size in sizes:
        at.append(at[-1] + size)
    return at


def share_out(sizes: Mapping[str, int], parts: int) -> dict[str, int]:
    """Which part takes what, so that all take about as much. The same names and sizes give the same
    answer everywhere, in whatever order they come."""
    loads = [(0, part) for part in range(parts)]
    shares = {}
    for name in sorted(sizes, key=lambda name: (-sizes[name], name)):
        load, part = loads[0]
        shares[name] = part
        heapq.heapreplace(loads, (load + sizes[name], part))
    return shares
