"""One line on a terminal that says how an epoch goes."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Literal, TextIO, TypeAlias

from tensorferry._data.stats import Meter

Shown: TypeAlias = bool | Literal["force"]

UPDATE_SECONDS_MIN = 0.2


class Progress:
    """The line of one epoch: rate, share of the time waited, time to go."""

    def __init__(
        self,
        epoch: int,
        first: int,
        total: int | None,
        meter: Meter,
        stream: TextIO,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._epoch = epoch
        self._first = first
        self._total = total
        self._meter = meter
        self._stream = stream
        self._clock = clock
        self._began = self._shown = clock()
        self._samples = meter.samples
        self._batches = meter.batches
        self._waited = meter.waited_seconds
        self._width = 0

    def update(self) -> None:
        """Shows it anew, if it was not just shown."""
        if self._clock() - self._shown >= UPDATE_SECONDS_MIN:
            self._show("")

    def finish(self) -> None:
        """Shows how it ended."""
        self._show("\n")

    def _show(self, end: str) -> None:
        self._shown = self._clock()
        text = self._text(self._shown - self._began)
        padding = " " * max(0, self._width - len(text))
        self._width = len(text)
        self._stream.write(f"\r{text}{padding}{end}")
        self._stream.flush()

    def _text(self, seconds: float) -> str:
        meter = self._meter
        batches = meter.batches - self._batches
        done = self._first + batches
        rate = (meter.samples - self._samples) / seconds if seconds else 0.0
        waiting = (meter.waited_seconds - self._waited) / seconds if seconds else 0.0
        of = "" if self._total is None else f"/{self._total}"
        text = f"epoch {self._epoch}: {done}{of} batches, {rate:.0f} samples/s"
        text += f", waiting {waiting:.0%}"
        if self._total is not None and batches > 0 and done < self._total:
            text += f", {_clock_time(seconds / batches * (self._total - done))} to go"
        return text


def progress_line(
    shown: Shown, epoch: int, first: int, total: int | None, meter: Meter
) -> Progress | None:
    """A line on stderr, if that is a terminal or the user insists."""
    stream = sys.stderr
    if not shown or stream is None or (shown != "force" and not stream.isatty()):
        return None
    return Progress(epoch, first, total, meter, stream)


def _clock_time(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
