"""Gradients: from the kernel that made them to their homes, and back as ``.grad``.

What autograd accumulates is handed to the engine at once and ``.grad`` is empty until backward
ends: then it is a view of the gradient's home. A gradient that was there before is set aside and
added to, as torch would. Nothing is ever added to zeros: that would turn a -0.0 into a 0.0.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from tensorferry import _lib
from tensorferry._errors import Unsupported
from tensorferry._shadow.backward import Backward
from tensorferry._shadow.course import Course
from tensorferry._shadow.homes import Slot
from tensorferry._shadow.updates import Updates


class Gradients:
    """Those of one backward."""

    def __init__(self, engine: _lib.Shadow, backward: Backward, updates: Updates) -> None:
        self._engine = engine
        self._backward = backward
        self._updates = updates
        self.course: Course | None = None
        """Set while gradients are to be collected."""
        self.waits_for_each = False
        """Somebody (DDP) wants each gradient as soon as it is there."""
        self._handed: dict[Slot, None] = {}
        self._aside: dict[Slot, torch.Tensor] = {}
        self._seen: set[Slot] = set()
        self._watched: dict[Slot, list[torch.utils.hooks.RemovableHandle]] = {}

    def watch(self, slots: list[Slot]) -> None:
        """Hooks on the parameters that have gradients."""
        for slot in slots:
            if slot.parameter.requires_grad and slot not in self._watched:
                parameter: Any = slot.parameter
                before = parameter.register_hook(partial(self._before, slot))
                accumulated = parameter.register_post_accumulate_grad_hook
                self._watched[slot] = [before, accumulated(partial(self._after, slot))]

    def unwatch(self) -> None:
        """Takes the hooks away."""
        for hooks in self._watched.values():
            for hook in hooks:
                hook.remove()
        self._watched.clear()

    def was_seen(self, slot: Slot) -> bool:
        """Whether this backward has made the parameter's gradient already."""
        return slot in self._seen

    def finish(self) -> None:
        """Backward has ended: waits until all of them are there, and gives them out."""
        handed, self._handed = self._handed, {}
        self._seen.clear()
        for layer in dict.fromkeys(self._owner(slot)[0] for slot in handed):
            self._wait(layer)
        for slot in handed:
            slot.parameter.grad = self._collected(slot)
        # ``torch.autograd.grad`` accumulates nothing, though hooks before that are called.
        self._put_back()

    def abandon(self) -> None:
        """Backward has failed: what was set aside is there again."""
        self._handed.clear()
        self._seen.clear()
        self._put_back()

    def _put_back(self) -> None:
        for slot, gradient in self._aside.items():
            if slot.parameter.grad is None:
                slot.parameter.grad = gradient
        self._aside.clear()

    def _collects(self) -> bool:
        # With gradients enabled, backward makes a graph of its own, of which .grad is a part.
        return self.course is not None and not torch.is_grad_enabled()

    def _before(self, slot: Slot, _: torch.Tensor) -> None:
        """A gradient is about to be accumulated."""
        if not self._backward.touch():
            return
        if slot in self._seen:
            self._updates.object("a parameter gets its gradient in parts", slot)
        self._seen.add(slot)
        if not self._collects():
            return
        parameter = slot.parameter
        if slot in self._handed:
            self._land(slot)
        elif parameter.grad is not None:
            self._updates.object("gradients add up, or are set to zero instead of None", slot)
            slot.set_aside(parameter.grad)
            self._aside[slot] = parameter.grad
            parameter.grad = None
        else:
            slot.clear_landing()

    def _after(self, slot: Slot, _: torch.Tensor) -> None:
        """A gradient was accumulated."""
        parameter = slot.parameter
        gradient = parameter.grad
        if gradient is None or not self._backward.runs or not self._collects():
            return
        _check(slot, gradient)
        assert self.course is not None
        if not self._backward.is_open(self._owner(slot)[0]):
            self._backward.enter(self._owner(slot)[0], 0)
        if gradient.stride() != slot.home.stride():
            gradient = torch.empty_like(slot.home).copy_(gradient)
        self._engine.gradient(*self._owner(slot), gradient.data_ptr(), gradient.nbytes)
        parameter.grad = None
        self._handed[slot] = None
        if self.waits_for_each:
            self._wait(self._owner(slot)[0])
            del self._handed[slot]
            parameter.grad = self._collected(slot)
        else:
            self._updates.handed(self.course.owner[slot][0], slot)

    def _owner(self, slot: Slot) -> tuple[int, int]:
        assert self.course is not None
        layer, position = self.course.owner[slot]
        return layer.index, position

    def _wait(self, layer: int) -> None:
        """Until the layer's gradients are in their homes: the link's time, and nobody's compute."""
        self._backward.waited(layer, self._engine.arrived(layer))

    def _land(self, slot: Slot) -> None:
        """Makes room for the second part of a gradient."""
        assert slot.landing is not None
        self._wait(self._owner(slot)[0])
        del self._handed[slot]
        if slot in self._aside:
            self._aside[slot].add_(slot.landing)
        else:
            self._aside[slot] = slot.landing.clone()

    def _collected(self, slot: Slot) -> torch.Tensor:
        """The whole gradient."""
        assert slot.landing is not None
        before = self._aside.pop(slot, None)
        if before is not None:
            return before.add_(slot.landing)
        slot.given = slot.landing.detach()
        return slot.given


def _check(slot: Slot, gradient: torch.Tensor) -> None:
    if gradient.layout != torch.strided:
        raise Unsupported(
            f"the gradient of {slot.name} is {gradient.layout}; only dense gradients are moved, "
            "use a layer with sparse=False"
        )
