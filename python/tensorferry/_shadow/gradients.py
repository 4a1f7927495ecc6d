"""Gradients: from the kernel that made them to host memory, and back as ``.grad``.

What autograd accumulates is handed to the engine at once, and ``.grad`` is what it was before until
backward ends: then it is a view of that memory, or what was there is added to, as torch
would. So a backward that fails leaves nothing behind but what was there. Nothing is ever added to
zeros: that would turn a -0.0 into a 0.0.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.autograd.graph import Node, get_gradient_edge

from tensorferry import _lib
from tensorferry._errors import Unsupported
from tensorferry._kinds import is_plain, obstacle
from tensorferry._shadow.backward import Backward
from tensorferry._shadow.host_memory import Slot
from tensorferry._shadow.placement import Placement
from tensorferry._shadow.updates import Updates


class Gradients:
    """Those of one backward."""

    def __init__(self, engine: _lib.Shadow, backward: Backward, updates: Updates) -> None:
        self._engine = engine
        self._backward = backward
        self._updates = updates
        self.placement: Placement | None = None
        """Set while gradients are to be collected."""
        self.waits_for_each = False
        """Somebody (DDP) wants each gradient as soon as it is there."""
        self._handed: dict[Slot, None] = {}
        self._hidden: tuple[Slot, torch.Tensor | None] | None = None
        """What a parameter's ``.grad`` was, while autograd accumulates the next."""
        self._seen: set[Slot] = set()
        self._watched: dict[Slot, tuple[Node, list[torch.utils.hooks.RemovableHandle]]] = {}
        """A node lives as long as somebody holds it."""

    def watch(self, slots: list[Slot]) -> None:
        """Hooks on the parameters that have gradients."""
        for slot in slots:
            if slot.parameter.requires_grad and slot not in self._watched:
                parameter: Any = slot.parameter
                # Of the node: ``torch.autograd.grad`` calls the tensor's, and accumulates nothing.
                node = get_gradient_edge(parameter).node
                before = node.register_prehook(_weakly(self._before, slot))
                accumulated = parameter.register_post_accumulate_grad_hook
                self._watched[slot] = node, [before, accumulated(_weakly(self._after, slot))]

    def unwatch(self) -> None:
        """Takes the hooks away."""
        for _, hooks in self._watched.values():
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
            self._collect(slot)

    def abandon(self) -> None:
        """Backward has failed, and nothing of it counts."""
        self._handed.clear()
        self._seen.clear()
        self._show()

    def _hide(self, slot: Slot) -> None:
        self._hidden = slot, slot.parameter.grad
        slot.parameter.grad = None

    def _show(self) -> None:
        """What was hidden is there again."""
        if self._hidden is None:
            return
        slot, gradient = self._hidden
        self._hidden = None
        if slot.parameter.grad is None:
            slot.parameter.grad = gradient

    def _collects(self) -> bool:
        # With gradients enabled, backward makes a graph of its own, of which .grad is a part.
        return self.placement is not None and not torch.is_grad_enabled()

    def _before(self, slot: Slot, made: tuple[torch.Tensor | None, ...]) -> None:
        """A gradient is about to be accumulated."""
        if made[0] is None or not self._backward.touch():
            return
        if slot in self._seen:
            self._updates.object("a parameter gets its gradient in parts", slot)
        self._seen.add(slot)
        if not self._collects():
            return
        parameter = slot.parameter
        if slot in self._handed:
            self._hand_out(slot)
        elif parameter.grad is not None:
            self._updates.object("gradients add up, or are set to zero instead of None", slot)
        if not slot.free_gradient_buffer():
            # torch makes this one, in memory of its own or where the one before is.
            return
        if parameter.grad is not None:
            slot.set_aside(parameter.grad)
        self._hide(slot)

    def _after(self, slot: Slot, _: torch.Tensor) -> None:
        """A gradient was accumulated."""
        if self._hidden is None:
            # It is not collected, or there was none.
            return
        gradient, slot.parameter.grad = slot.parameter.grad, None
        self._show()
        if gradient is None:
            return
        _check(slot, gradient)
        assert self.placement is not None
        if not self._backward.is_open(self._owner(slot)[0]):
            self._backward.enter(self._owner(slot)[0], 0)
        if gradient.stride() != slot.host.stride():
            gradient = torch.empty_like(slot.host).copy_(gradient)
        self._engine.gradient(*self._owner(slot), gradient.data_ptr(), gradient.nbytes)
        self._handed[slot] = None
        if self.waits_for_each:
            self._hand_out(slot)
        else:
            self._updates.gradient_arrives(self.placement.owner[slot][0], slot)

    def _owner(self, slot: Slot) -> tuple[int, int]:
        assert self.placement is not None
        layer, position = self.placement.owner[slot]
        return layer.index, position

    def _wait(self, layer: int) -> None:
        """Until the layer's gradients are in host memory: the link's time, and nobody's compute."""
        self._backward.waited(layer, self._engine.arrived(layer))

    def _hand_out(self, slot: Slot) -> None:
        """Gives one out before the others."""
        self._wait(self._owner(slot)[0])
        del self._handed[slot]
        self._collect(slot)

    def _collect(self, slot: Slot) -> None:
        """What has arrived becomes the gradient, or is added to it."""
        assert slot.gradient_buffer is not None
        before = slot.parameter.grad
        if before is None:
            slot.parameter.grad = slot.handed_out = slot.gradient_buffer.detach()
        else:
            before.add_(slot.gradient_buffer)


def _weakly(call: Callable[..., None], slot: Slot) -> Callable[..., None]:
    """A hook for torch, which holds it where the collector of cycles does not see it."""
    method = weakref.WeakMethod(call)

    def hook(*given: Any) -> None:
        alive = method()
        if alive is not None:
            alive(slot, *given)

    return hook


def _check(slot: Slot, gradient: torch.Tensor) -> None:
    if is_plain(gradient):
        return
    if gradient.layout != torch.strided:
        raise Unsupported(
            f"the gradient of {slot.name} is {gradient.layout}; only dense gradients are moved, "
            "use a layer with sparse=False"
        )
    why = obstacle(gradient)
    if why is not None:
        raise Unsupported(f"the gradient of {slot.name} is {why.kind}; only plain ones are moved")
