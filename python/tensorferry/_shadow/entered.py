"""Layers that forward is in: their parameters point to where the plan has them."""

from __future__ import annotations

import torch
from torch import nn

from tensorferry import _lib
from tensorferry._shadow.clock import Clock
from tensorferry._shadow.course import Course
from tensorferry._shadow.layers import Layer
from tensorferry._shadow.saved import Finder, Hooks, ours_are_on_top


class Entered:
    """One of them, from the start of its forward to the end."""

    def __init__(self, layer: Layer, course: Course, on_device: bool) -> None:
        self.layer = layer
        self.hooks: Hooks | None = None
        self._before = [slot.now for slot in layer.slots]
        self._versions = [slot.parameter._version for slot in layer.slots]
        homes = [slot.home for slot in layer.slots]
        places = course.device(layer) if on_device else homes
        for slot, home, place in zip(layer.slots, homes, places, strict=True):
            slot.point(home if slot.is_ahead else place)

    def restore(self) -> None:
        """Points the parameters back; what forward has written to a copy is not lost."""
        known = zip(self.layer.slots, self._before, self._versions, strict=True)
        for slot, before, version in known:
            if slot.parameter._version == version:
                slot.point(before)
                continue
            if slot.now is not slot.home:
                with torch.no_grad():
                    slot.home.copy_(slot.now)
            slot.is_ahead = True
            slot.point(slot.home)


class Stack:
    """All of them, the innermost last."""

    def __init__(self, engine: _lib.Shadow, clock: Clock, finder: Finder) -> None:
        self._engine = engine
        self._clock = clock
        self._finder = finder
        self._entered: list[Entered] = []

    def layers(self) -> list[Layer]:
        """The layers."""
        return [each.layer for each in self._entered]

    def enter(self, layer: Layer, course: Course, nbytes: int) -> None:
        """Before the layer's forward, which reads so many bytes of its parameters."""
        on_device = False
        if course.plan is not None:
            on_device, waited = self._engine.enter(layer.index, False, nbytes)
            self._clock.wait(layer.index, False, waited)
        entered = Entered(layer, course, on_device)
        self._entered.append(entered)
        if not ours_are_on_top():
            entered.hooks = Hooks(self._finder)

    def leave(self, module: nn.Module, course: Course) -> Layer | None:
        """After it; the layer, if it was entered."""
        if not self._entered or self._entered[-1].layer.module is not module:
            return None
        entered = self._entered.pop()
        if entered.hooks is not None:
            entered.hooks.remove()
        entered.restore()
        layer = entered.layer
        if course.plan is not None:
            self._clock.wait(layer.index, False, self._engine.leave(layer.index, False))
        return layer

    def unwind(self, course: Course) -> None:
        """Leaves all that a failure has left."""
        while self._entered:
            self.leave(self._entered[-1].layer.module, course)
