"""Python's collector of cycles, and how to keep it away."""

from __future__ import annotations

import gc
from types import TracebackType


class uncollected:  # noqa: N801  (used like a function)
    """Within it, no cycles are collected.

    Thousands of objects that are made at once, and none of which is garbage, start round after
    round, and some look at everything that the process has: that takes longer than to load many
    small tensors."""

    __slots__ = ("_paused",)

    def __enter__(self) -> None:
        self._paused = gc.isenabled()
        gc.disable()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._paused:
            gc.enable()
