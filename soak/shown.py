"""How it goes, while it goes: a line that is written over, or now and then one more."""

from __future__ import annotations

import shutil
import sys
import time

from soak.result import Result

LINE_SECONDS = 15
"""Between two lines where they can't be written over."""


class Shown:
    """On standard error."""

    def __init__(self, minutes: float | None) -> None:
        self._whole = "" if minutes is None else f" of {_clock(minutes * 60)}"
        self._over = sys.stderr.isatty()
        self._last = 0.0

    def progress(self, result: Result, kind: str) -> None:
        """The line as it is now."""
        now = time.monotonic()
        if not self._over and now - self._last < LINE_SECONDS:
            return
        self._last = now
        counts = ", ".join(f"{name} {each.done}" for name, each in sorted(result.kinds.items()))
        failed = f"failed {result.failed}" if result.failed else "none failed"
        head = f"{result.path} {_clock(result.seconds)}{self._whole}: {result.scenarios} scenarios"
        line = f"{head}, {failed}; now {kind} ({counts})"
        if self._over:
            width = shutil.get_terminal_size().columns - 1
            print(f"\r\033[K{line[:width]}", end="", file=sys.stderr, flush=True)
        else:
            print(line, file=sys.stderr, flush=True)

    def say(self, text: str) -> None:
        """A text that stays."""
        print(f"\r\033[K{text}" if self._over else text, file=sys.stderr, flush=True)


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
