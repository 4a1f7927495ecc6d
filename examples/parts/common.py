"""What the parts share."""

from __future__ import annotations

import time
from collections.abc import Callable


def say(text: str) -> None:
    """Progress, a line at a time."""
    print(f"  {text}", flush=True)


def seconds(work: Callable[[], object]) -> float:
    """How long it takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
