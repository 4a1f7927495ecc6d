"""What is planned with: the measured seconds of layers, and what the link can do."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

from tensorferry import _lib
from tensorferry._shadow.clock import Times
from tensorferry._shadow.layers import Layer

VERSION = 1
LINK_BYTES_MAX = 32 << 20
"""Copied to measure the link."""


@dataclass(frozen=True)
class Machine:
    """The device, and its link as it was measured."""

    engine: _lib.Shadow
    link: dict[str, Any]
    name: str

    @classmethod
    def measured(cls, engine: _lib.Shadow) -> Machine:
        """With copies as the runtime makes them."""
        facts = json.loads(engine.facts())
        nbytes = min(LINK_BYTES_MAX, facts["budget"] // 2)
        return cls(engine, json.loads(engine.measure_link(nbytes)), facts["name"])


def profile_of(
    layers: list[Layer],
    machine: Machine,
    times: list[Times],
    updates: dict[int, float],
    work_bytes: int,
) -> str:
    """A profile as ``tensorferry plan parameters`` takes it."""
    found = {
        "version": VERSION,
        "source": f"{len(times)} iterations on {machine.name}",
        "layers": [_layer(layer, machine.engine, times, updates) for layer in layers],
        "link": machine.link,
        "work_bytes": work_bytes,
    }
    return json.dumps(found)


def shared_by_elements(layers: list[Layer], seconds: float) -> dict[int, float]:
    """The seconds of a step, by layer."""
    elements = {
        layer.index: sum(slot.parameter.numel() for slot in layer.gradients) for layer in layers
    }
    total = max(sum(elements.values()), 1)
    return {index: seconds * count / total for index, count in elements.items()}


def gradient_bytes(profile: str) -> int:
    """Of all layers."""
    return sum(layer["gradient_bytes"] for layer in json.loads(profile)["layers"])


def _layer(
    layer: Layer, engine: _lib.Shadow, times: list[Times], updates: dict[int, float]
) -> dict[str, Any]:
    def middle(of: Callable[[Times], dict[int, Any]]) -> Any:
        return median(of(each).get(layer.index, 0) for each in times)

    forward = float(middle(lambda each: each.forward))
    backward = float(middle(lambda each: each.backward))
    forward_bytes = int(middle(lambda each: each.forward_bytes))
    backward_bytes = int(middle(lambda each: each.backward_bytes))
    gradients = engine.room([slot.nbytes for slot in layer.gradients]) if layer.gradients else 0
    leaving = engine.direct_seconds(True, gradients, backward) if gradients else backward
    return {
        "name": layer.name,
        "parameter_bytes": engine.room([slot.nbytes for slot in layer.slots]),
        "gradient_bytes": gradients,
        "forward_seconds": forward,
        "backward_seconds": backward,
        "direct_forward_seconds": engine.direct_seconds(False, forward_bytes, forward),
        "direct_backward_seconds": engine.direct_seconds(False, backward_bytes, backward),
        "direct_forward_bytes": forward_bytes,
        "direct_backward_bytes": backward_bytes,
        "direct_gradient_seconds": max(leaving - backward, 0.0),
        "update_seconds": updates.get(layer.index, 0.0),
    }
