"""Seconds of an iteration, shared out among layers.

A layer's time runs from its start to the start of the next, so that all of them together are the
whole: what is computed between two layers counts for the first in forward and for the second in
backward. What comes before the first layer is its own, what comes between forward and backward the
last one's. Waiting for the link is counted apart, and so are gradients that still leave when the
last layer has ended.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field


@dataclass
class Times:
    """Of one iteration, by layer."""

    forward: dict[int, float] = field(default_factory=dict)
    backward: dict[int, float] = field(default_factory=dict)
    forward_wait: dict[int, float] = field(default_factory=dict)
    backward_wait: dict[int, float] = field(default_factory=dict)
    forward_bytes: dict[int, int] = field(default_factory=dict)
    """Of parameters that kernels read, wherever they were."""
    backward_bytes: dict[int, int] = field(default_factory=dict)
    seconds: float = 0.0
    """From the start of forward to the end of backward, and in ``step()``."""
    step_seconds: float = 0.0
    """In ``optimizer.step()``."""

    @property
    def compute(self) -> float:
        """Seconds in which layers computed."""
        return sum(self.forward.values()) + sum(self.backward.values())

    @property
    def wait(self) -> float:
        """Seconds in which they waited for the link."""
        return sum(self.forward_wait.values()) + sum(self.backward_wait.values())


class Clock:
    """Runs while an iteration does."""

    def __init__(self) -> None:
        self.times = Times()
        self._began = 0.0
        self._since: float | None = None
        self._waited = 0.0
        self._layer: int | None = None
        self._backward = False

    def begin(self) -> None:
        """A new iteration."""
        self.times = Times()
        self._began = self._since = time.perf_counter()
        self._waited = 0.0
        self._layer = None
        self._backward = False

    def start(self, layer: int, backward: bool) -> None:
        """This layer's time begins, and another's ends."""
        now = time.perf_counter()
        if self._layer is None:
            # What came before the first layer is its own.
            self._layer, self._backward = layer, backward
        self._close(now)
        self._layer, self._backward = layer, backward

    def wait(self, layer: int, backward: bool, seconds: float) -> None:
        """So long the layer has just waited for the link."""
        waits = self.times.backward_wait if backward else self.times.forward_wait
        waits[layer] = waits.get(layer, 0.0) + seconds
        self._waited += seconds

    def read(self, layer: int, backward: bool, nbytes: int) -> None:
        """A kernel reads so much of a layer's parameters."""
        counts = self.times.backward_bytes if backward else self.times.forward_bytes
        counts[layer] = counts.get(layer, 0) + nbytes

    def pause(self) -> None:
        """The last layer has ended; what comes until the end of the iteration is nobody's."""
        self._close(time.perf_counter())
        self._layer = None

    def stop(self) -> None:
        """The iteration is over."""
        now = time.perf_counter()
        if self._since is not None:
            self._close(now)
            self.times.seconds = now - self._began
        self._since = self._layer = None

    def stepped(self, seconds: float) -> None:
        """The optimizer took so long after it."""
        self.times.seconds += seconds
        self.times.step_seconds += seconds

    def _close(self, now: float) -> None:
        if self._since is None:
            return
        if self._layer is not None:
            seconds = self.times.backward if self._backward else self.times.forward
            spent = max(now - self._since - self._waited, 0.0)
            seconds[self._layer] = seconds.get(self._layer, 0.0) + spent
        self._since, self._waited = now, 0.0
