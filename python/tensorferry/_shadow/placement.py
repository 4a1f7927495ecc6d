"""Which layer owns which parameter, and where a plan has put it on the device."""

from __future__ import annotations

import json
from typing import Any

import torch
from torch import nn

from tensorferry import _lib
from tensorferry._shadow.host_memory import Slice, Slot
from tensorferry._shadow.layers import Layer


class Placement:
    """Who owns what; where it is on the device, once a plan is installed."""

    def __init__(self, layers: list[Layer]) -> None:
        self.layers = layers
        self.of_module: dict[nn.Module, Layer] = {layer.module: layer for layer in layers}
        self.owner: dict[Slot, tuple[Layer, int]] = {}
        for layer in layers:
            for position, slot in enumerate(layer.slots):
                self.owner.setdefault(slot, (layer, position))
        self.plan: dict[str, Any] | None = None
        self._device: list[list[torch.Tensor] | None] = [None] * len(layers)
        self._copies: dict[int, tuple[Layer, Slot]] = {}
        self._by_address = {slot.host.data_ptr(): slot for slot in self.owner}

    def install(self, engine: _lib.Shadow, plan: str, profile: str) -> None:
        """Gives each layer its memory on the device."""
        engine.install([_slices(layer) for layer in self.layers], plan, profile)
        self.plan = json.loads(plan)
        self._copies.clear()
        for layer in self.layers:
            copies = _copies(engine, layer)
            self._device[layer.index] = copies
            for slot, tensor in zip(layer.slots, copies or [], strict=False):
                self._copies[tensor.data_ptr()] = (layer, slot)

    def device(self, layer: Layer) -> list[torch.Tensor]:
        """The layer's parameters on the device: for kernels, while it is entered."""
        copies = self._device[layer.index]
        assert copies is not None, "a layer that is never copied was entered on the device"
        return copies

    def on_device(self, layer: Layer, slot: Slot) -> torch.Tensor:
        """One of them."""
        return self.device(layer)[layer.slots.index(slot)]

    def find(self, tensor: torch.Tensor, entered: list[Layer]) -> tuple[Layer, Slot] | None:
        """Whose bytes a tensor shows: a parameter's, or nobody's here."""
        if tensor.layout is not torch.strided or not tensor.is_cpu:
            return None
        address = tensor.untyped_storage().data_ptr()
        copy = self._copies.get(address)
        if copy is not None:
            return copy
        slot = self._by_address.get(address)
        if slot is None:
            return None
        for layer in reversed(entered):
            if slot in layer.slots:
                return layer, slot
        return self.owner[slot][0], slot


def _slices(layer: Layer) -> tuple[list[Slice], list[Slice]]:
    none = [(slot.slice[0], 0, 0) for slot in layer.slots]
    return (
        [slot.slice for slot in layer.slots],
        [
            slot.gradient_slice if slot in layer.gradients else nothing
            for slot, nothing in zip(layer.slots, none, strict=True)
        ],
    )


def _copies(engine: _lib.Shadow, layer: Layer) -> list[torch.Tensor] | None:
    """Tensors on the layer's device buffer. Whoever keeps one, or a view of one, has its bytes
    beyond the plan, whatever they are by then."""
    found = []
    for position, slot in enumerate(layer.slots):
        memory = engine.sight(layer.index, position)
        if memory is None:
            return None
        found.append(_view_of(memory, slot.host))
    return found


def _view_of(memory: _lib.Sight, like: torch.Tensor) -> torch.Tensor:
    if like.numel() == 0:
        return torch.empty_like(like)
    with torch.inference_mode(False):
        flat = torch.frombuffer(memory, dtype=like.dtype, count=like.numel())
        return flat.as_strided(like.shape, like.stride())
