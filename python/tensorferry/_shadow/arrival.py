"""Updates on arrival: a layer takes its step as soon as its gradients are in host memory.

::

    gradients of a layer ──► submit ──► updated beside backward ──► finish, in step()

From ``submit`` to ``step()`` a parameter is *ahead*: it has taken a step that the loop has not
asked for yet. ``step()`` then passes over it, because its gradient is hidden until that is over.
"""

from __future__ import annotations

from typing import Any, NoReturn

import torch
from torch.autograd.graph import increment_version

from tensorferry import _lib
from tensorferry._errors import InvalidInput
from tensorferry._optim.keeper import InMemory
from tensorferry._optim.step import Moving, Settings, settings_of
from tensorferry._optim.tensors import DTYPES
from tensorferry._shadow.host_memory import Slot
from tensorferry._shadow.layers import Layer
from tensorferry.optim import Adam, AdamW


class Arrival:
    """The updates of one iteration."""

    def __init__(self, engine: _lib.Shadow, optimizer: torch.optim.Optimizer) -> None:
        self._engine = engine
        self._optimizer = optimizer
        self.ahead: dict[Slot, None] = {}
        """Parameters that are ahead."""
        self._missing: dict[Layer, set[Slot]] = {}
        """Gradients of a layer that have not arrived in this backward."""
        self._settings: list[Settings] = []
        self._groups: dict[torch.Tensor, int] = {}
        self._used: list[Any] = []
        """What the core writes to until updates are finished."""
        self._hidden: dict[Slot, torch.Tensor | None] = {}

    def gradient_arrives(self, layer: Layer, slot: Slot) -> None:
        """A gradient is on its way; the last of a layer sets off its update."""
        missing = self._missing.setdefault(layer, set(layer.gradients))
        missing.discard(slot)
        if not missing:
            self._submit(layer)

    def backward_ended(self) -> None:
        """What has arrived of a layer counts for nothing in the next one."""
        self._missing.clear()

    def finish(self) -> None:
        """Waits for the updates that are under way."""
        self._engine.finish_updates()

    def has_other_settings(self) -> bool:
        """Whether updates were made with others than ``step()`` would use."""
        return self._settings != _settings_now(self._optimizer)

    def hide_gradients(self) -> None:
        """From ``step()``, which would update once more."""
        for slot in self.ahead:
            self._hidden[slot], slot.parameter.grad = slot.parameter.grad, None

    def stepped(self) -> None:
        """``step()`` is over: nothing is ahead."""
        for slot, gradient in self._hidden.items():
            slot.parameter.grad = gradient
        self._hidden.clear()
        self.ahead.clear()
        self._used.clear()

    def forget(self) -> None:
        """Other parameters were loaded: nothing is ahead."""
        self.ahead.clear()
        self._used.clear()
        self._missing.clear()

    def _submit(self, layer: Layer) -> None:
        optimizer = self._optimizer
        assert isinstance(optimizer, Adam | AdamW)
        assert isinstance(optimizer._keeper, InMemory)
        if not self.ahead:
            self._settings, self._groups = _settings_now(optimizer), groups_of(optimizer)
        groups = self._groups
        slots = [slot for slot in layer.gradients if slot.parameter in groups]
        if not all(slot.is_in_place() for slot in slots):
            refuse("parameters are assigned between forward and backward")
        moving = [
            Moving(
                groups[slot.parameter],
                0,
                [slot.name],
                slot.parameter,
                slot.parameter,
                slot.gradient_buffer,
            )
            for slot in slots
            if slot.gradient_buffer is not None
        ]
        if not moving:
            return
        steps, work = optimizer._keeper.work(moving, optimizer.state)
        threads = max(torch.get_num_threads() // 2, 1)
        self._used += [dict(optimizer.state[slot.parameter]) for slot in slots]
        self._engine.update(layer.index, self._settings, work, threads)
        torch._foreach_add_(steps, 1)
        increment_version([slot.parameter for slot in slots])
        self.ahead.update(dict.fromkeys(slots))


def unfit(optimizer: torch.optim.Optimizer, slots: list[Slot]) -> str | None:
    """Why this optimizer can't update on arrival, if so."""
    if type(optimizer) not in (Adam, AdamW):
        return f"{type(optimizer).__name__} is not ferry.optim.Adam or AdamW"
    assert isinstance(optimizer, Adam | AdamW)
    if not isinstance(optimizer._keeper, InMemory):
        return "the optimizer's state is on disk"
    for slot in slots:
        if slot.parameter.dtype not in DTYPES:
            return f"{slot.name} is {slot.parameter.dtype}"
    return None


def refuse(why: str) -> NoReturn:
    """What updates on arrival don't go with."""
    raise InvalidInput(
        f'{why}, which does not go with update="arrival": that updates parameters during backward, '
        'so they may be a step ahead now; pass update="step", and start from the last checkpoint'
    )


def groups_of(optimizer: torch.optim.Optimizer) -> dict[torch.Tensor, int]:
    """The number of each parameter's group."""
    return {
        parameter: number
        for number, group in enumerate(optimizer.param_groups)
        for parameter in group["params"]
    }


def _settings_now(optimizer: torch.optim.Optimizer) -> list[Settings]:
    decoupled = isinstance(optimizer, AdamW)
    return [settings_of(group, decoupled) for group in optimizer.param_groups]
