"""Layers that forward is in, one within another: their parameters point where the plan says."""

from __future__ import annotations

import torch
from torch import nn

from tensorferry import _lib
from tensorferry._shadow.clock import Clock
from tensorferry._shadow.layers import Layer
from tensorferry._shadow.placement import Placement
from tensorferry._shadow.saved import Finder, Hooks, ours_are_on_top


class ActiveLayer:
    """One of them, from the start of its forward to the end."""

    def __init__(self, layer: Layer, placement: Placement, on_device: bool) -> None:
        self.layer = layer
        self.hooks: Hooks | None = None
        self._before = [slot.now for slot in layer.slots]
        self._versions = [slot.parameter._version for slot in layer.slots]
        host = [slot.host for slot in layer.slots]
        placed = placement.device(layer) if on_device else host
        for slot, at_host, at_plan in zip(layer.slots, host, placed, strict=True):
            slot.point(at_host if slot.is_rewritten else at_plan)

    def restore(self) -> None:
        """Points the parameters back; what forward has written to a copy, or put in
        its place, is not lost."""
        known = zip(self.layer.slots, self._before, self._versions, strict=True)
        for slot, before, version in known:
            if slot.is_elsewhere():
                slot.adopt()
                slot.is_rewritten = True
            elif slot.parameter._version == version:
                slot.point(before)
            else:
                if slot.now is not slot.host:
                    with torch.no_grad():
                        slot.host.copy_(slot.now)
                slot.is_rewritten = True
                slot.point(slot.host)


class ForwardStack:
    """All of them, the innermost last."""

    def __init__(self, engine: _lib.Shadow, clock: Clock, finder: Finder) -> None:
        self._engine = engine
        self._clock = clock
        self._finder = finder
        self._active: list[ActiveLayer] = []

    def layers(self) -> list[Layer]:
        """The layers."""
        return [each.layer for each in self._active]

    def enter(self, layer: Layer, placement: Placement, nbytes: int) -> None:
        """Before the layer's forward, which reads so many bytes of its parameters."""
        on_device = False
        if placement.plan is not None:
            on_device, waited = self._engine.enter(layer.index, False, nbytes)
            self._clock.wait(layer.index, False, waited)
        active = ActiveLayer(layer, placement, on_device)
        self._active.append(active)
        if not ours_are_on_top():
            active.hooks = Hooks(self._finder)

    def leave(self, module: nn.Module, placement: Placement) -> Layer | None:
        """After it; the layer, if it was entered."""
        if not self._active or self._active[-1].layer.module is not module:
            return None
        active = self._active.pop()
        if active.hooks is not None:
            active.hooks.remove()
        active.restore()
        layer = active.layer
        if placement.plan is not None:
            self._clock.wait(layer.index, False, self._engine.leave(layer.index, False))
        return layer

    def unwind(self, placement: Placement) -> None:
        """Leaves all that a failure has left."""
        while self._active:
            self.leave(self._active[-1].layer.module, placement)
