"""What tensorferry did: numbers of this process, and traces to look at."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tensorferry import _lib

__all__ = ["metrics", "prometheus", "trace"]


def metrics() -> list[dict[str, Any]]:
    """All numbers as plain data: ``name``, ``labels``, ``kind`` and ``value`` of each series."""
    series: list[dict[str, Any]] = json.loads(_lib.metrics_text("json"))["series"]
    return series


def prometheus() -> str:
    """All numbers in Prometheus' text format, for an endpoint of yours."""
    return _lib.metrics_text("prometheus")


@contextmanager
def trace(path: str | os.PathLike[str]) -> Iterator[None]:
    """Records what happens inside ``with`` and writes it to ``path``, for Perfetto
    (ui.perfetto.dev) or chrome://tracing. Also written when the body fails."""
    _lib.trace_start()
    try:
        yield
    finally:
        _lib.trace_finish(path)
