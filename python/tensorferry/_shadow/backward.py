"""Where backward is: which layer's it is now, and when all of it has ended.

A node of the graph that made a layer's output says that the layer's backward starts, and so that
the one before has ended. The end of backward is told by autograd; a backward within a backward
(``torch.utils.checkpoint`` with ``use_reentrant``) ends before the one around it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch

from tensorferry import _lib
from tensorferry._shadow.clock import Clock


class Backward:
    """The layers that are entered for backward, and the graph tasks that run."""

    def __init__(
        self,
        engine: _lib.Shadow,
        clock: Clock,
        begins: Callable[[], None],
        ended: Callable[[], None],
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._begins = begins
        self._ended = ended
        self._tasks: set[int] = set()
        self._open: list[int] = []
        self._current: int | None = None

    @property
    def runs(self) -> bool:
        """Whether there is one."""
        return bool(self._tasks)

    def touch(self) -> bool:
        """Backward is seen: asks to be told of its end. False outside of a backward."""
        task = current_task()
        if task < 0:
            return False
        if task not in self._tasks:
            if not self._tasks:
                self._begins()
            self._tasks.add(task)
            queue = torch.autograd.Variable._execution_engine.queue_callback
            queue(partial(self._task_ended, task))
        return True

    def mark(self, layer: int | None) -> bool:
        """Backward is at the output of this layer; whether that is news."""
        self.touch()
        if layer is None or layer == self._current:
            return False
        self.close()
        self._clock.start(layer, backward=True)
        self._current = layer
        return True

    def enter(self, layer: int, nbytes: int) -> bool:
        """A kernel is going to read so much of a layer; whether it is on the device."""
        on_device, waited = self._engine.enter(layer, True, nbytes)
        self._open.append(layer)
        self.waited(layer, waited)
        return on_device

    def waited(self, layer: int, seconds: float) -> None:
        """So long it has just waited for the link, on behalf of a layer."""
        self._clock.wait(layer, True, seconds)

    def is_open(self, layer: int) -> bool:
        """Whether a kernel of this backward has entered it."""
        return layer in self._open

    def close(self) -> None:
        """Leaves the layers that were entered."""
        opened, self._open = self._open, []
        for layer in opened:
            self.waited(layer, self._engine.leave(layer, True))

    def reset(self) -> None:
        """Forgets a backward that failed."""
        self._tasks.clear()
        self._current = None
        self.close()

    def _task_ended(self, task: int) -> None:
        if self._tasks == {task}:
            self.close()
            self._current = None
            self._ended()
        # Last: what fails or is interrupted before this has failed with the backward.
        self._tasks.discard(task)


def current_task() -> int:
    """The number of the backward that this thread is in, or -1."""
    return int(torch._C._current_graph_task_id())
