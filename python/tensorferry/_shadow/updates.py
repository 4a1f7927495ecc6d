"""Who updates parameters, and when: as their gradients arrive, or in ``optimizer.step()``.

On arrival a layer takes its step during backward, and ``step()`` only waits for the last of them
and takes what is left. That can't be undone, so it is the same only if each backward is followed by
its step, and nobody does anything to gradients, parameters or settings between the two. No loop
that was watched for some iterations has promised that for all others: only the user can, with
``update="arrival"``, and then what is seen to make a difference is an error. ``"auto"`` leaves all
to ``step()``, and says whether the first iterations speak against updates on arrival.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NoReturn

import torch
from torch.autograd.graph import increment_version

from tensorferry import _lib
from tensorferry._errors import InvalidInput
from tensorferry._optim.keeper import InMemory
from tensorferry._optim.step import Moving, Settings, settings_of
from tensorferry._optim.tensors import DTYPES
from tensorferry._shadow.homes import Slot
from tensorferry._shadow.hook import Hook
from tensorferry._shadow.layers import Layer
from tensorferry.optim import Adam, AdamW

Update = Literal["auto", "arrival", "step"]
Bits = Callable[[torch.Tensor], torch.Tensor]
SAMPLES = 32
"""Elements of a gradient that tell whether somebody changed it behind its counter."""
HOOKED = "the optimizer has hooks that run before step()"
UNSEEN = "no step() was seen in the first iterations"
ADVICE = (
    'all is left to step(); update="arrival" would overlap updates with backward, and nothing in '
    "the first iterations speaks against it: choose it if every backward gets its step()"
)
SCALER = "torch.amp.grad_scaler"
SCALER_DEPTH_MAX = 12


@dataclass(slots=True)
class Note:
    """A gradient or a parameter as it was when backward ended."""

    tensor: torch.Tensor
    address: int
    version: int
    bits: torch.Tensor | None
    """None while they change: an update is under way."""

    @classmethod
    def of(cls, tensor: torch.Tensor, bits: Bits | None) -> Note:
        """As it is now."""
        return cls(tensor, tensor.data_ptr(), tensor._version, bits and bits(tensor))

    def is_untouched(self, now: torch.Tensor | None, bits: Bits) -> bool:
        """Whether it is still the same."""
        if now is not self.tensor or now._version != self.version:
            return False
        same = now.data_ptr() == self.address
        return same and (self.bits is None or torch.equal(self.bits, bits(now)))


class Updates:
    """The optimizer, and what is known about the loop around it."""

    def __init__(
        self,
        engine: _lib.Shadow,
        optimizer: torch.optim.Optimizer,
        slots: list[Slot],
        asked: Update,
        around_step: tuple[Callable[[], None], Callable[[float], None]],
    ) -> None:
        self._engine = engine
        self._optimizer = optimizer
        self._slots = slots
        self._asked = asked
        self._steps_now, self._stepped = around_step
        self.mode: Literal["arrival", "step"] | None = None
        """None until it is decided."""
        self.why = "the first iterations are being watched"
        self._objections: dict[str, None] = {}
        self._steps = self._backwards = 0
        self._notes: dict[Slot, Note] = {}
        """Of gradients."""
        self._weights: dict[Slot, Note] = {}
        self._updated: dict[Slot, None] = {}
        self._missing: dict[Layer, set[Slot]] = {}
        self._settings: list[Settings] = []
        self._numbers: dict[torch.Tensor, int] = {}
        self._used: list[Any] = []
        """What the core writes to until updates are finished."""
        self._held: dict[Slot, torch.Tensor | None] = {}
        self._since = 0.0
        self._hooks: list[Hook] = []
        self._is_settled = False
        unfit = self._unfit()
        if asked == "arrival" and unfit is not None:
            raise InvalidInput(f'update="arrival" can\'t be: {unfit}; pass update="step"')
        calls = (self._before_step, self._after_step, self._before_state_dict, self._after_loading)
        before, after, saving, loaded = self._hooks = [Hook(call) for call in calls]
        self._handles = [
            optimizer.register_step_pre_hook(before),
            optimizer.register_step_post_hook(after),
            optimizer.register_state_dict_pre_hook(saving),
            optimizer.register_load_state_dict_post_hook(loaded),
        ]

    @property
    def is_ahead(self) -> bool:
        """Whether parameters are a step ahead of what the loop has asked for."""
        return bool(self._updated)

    def close(self) -> None:
        """The engine goes. A step that was half taken is still made whole by the next ``step()``,
        which does not update once more what is updated already; then the hooks end. Safe wherever
        the optimizer is, also among its hooks."""
        if not self._updated:
            self._end()
        elif not self._is_settled:
            self._is_settled = True
            self._engine.finish_updates()

    def unhook(self) -> None:
        """Leaves the optimizer as it was, if nothing is half taken."""
        if not self._updated:
            for handle in self._handles:
                handle.remove()

    def _end(self) -> None:
        for hook in self._hooks:
            hook.end()

    @property
    def on_arrival(self) -> bool:
        """Whether layers are updated during backward."""
        return self.mode == "arrival"

    @property
    def wants_arrival(self) -> bool:
        """Whether they are, or are to be."""
        return self.on_arrival or self._asked == "arrival"

    def object(self, why: str, slot: Slot | None = None) -> None:
        """Something was seen that does not go with updates on arrival, of this parameter or all."""
        if slot is not None and slot.parameter not in self._groups():
            return
        if self.on_arrival:
            refuse(why)
        self._objections[why] = None

    def decide(self) -> None:
        """Once, when the first iterations are over."""
        if self.mode is not None:
            return
        if self._asked != "auto":
            self.mode, self.why = self._asked, "asked for"
        else:
            seen = next(iter(self._objections), None if self._steps else UNSEEN)
            self.mode, self.why = "step", self._unfit() or seen or ADVICE
        self._forget_notes()

    def refuse_unstepped(self, what: str) -> None:
        """Parameters that are a step ahead of what the loop has asked for are shown to nobody."""
        if self._updated:
            refuse(f"{what} comes after backward and before step()")

    def handed(self, layer: Layer, slot: Slot) -> None:
        """A gradient is on its way; the last of a layer sets off its update."""
        if not self.on_arrival:
            return
        missing = self._missing.setdefault(layer, set(layer.gradients))
        missing.discard(slot)
        if not missing:
            self._submit(layer)

    def backward_begins(self) -> None:
        """The first of a backward is seen."""
        if self._backwards > 0 and self._updated:
            refuse("there are several backwards for one step()")

    def forget(self) -> None:
        """Parameters were loaded, and so will be the optimizer's state."""
        self._updated.clear()
        self._used.clear()
        self._forget_notes()
        self._missing.clear()
        self._backwards = 0

    def backward_failed(self) -> None:
        """What has arrived of a layer counts for nothing in the next one."""
        self._missing.clear()

    def backward_ended(self) -> None:
        """Gradients are there, and the loop may do with them what it likes."""
        self._backwards += 1
        if self._backwards > 1:
            self.object("there are several backwards for one step()")
        if self.on_arrival or (self.mode is None and self._asked == "auto"):
            self._take_notes()
        self._missing.clear()

    def _take_notes(self) -> None:
        groups = self._groups()
        slots = [slot for slot in self._slots if slot.parameter in groups]
        if self.on_arrival:
            slots = list(self._updated)
        bits = _sampled if self.on_arrival else _summed
        self._notes = {
            slot: Note.of(gradient, bits)
            for slot in slots
            if (gradient := slot.parameter.grad) is not None and gradient.layout == torch.strided
        }
        seen = None if self.on_arrival else bits
        self._weights = {slot: Note.of(slot.parameter, seen) for slot in slots}

    def _forget_notes(self) -> None:
        self._notes.clear()
        self._weights.clear()

    def _unfit(self) -> str | None:
        """Why this optimizer can't update on arrival, if so."""
        optimizer = self._optimizer
        if type(optimizer) not in (Adam, AdamW):
            return f"{type(optimizer).__name__} is not ferry.optim.Adam or AdamW"
        assert isinstance(optimizer, Adam | AdamW)
        if not isinstance(optimizer._keeper, InMemory):
            return "the optimizer's state is on disk"
        if self._is_hooked():
            return HOOKED
        for slot in self._slots:
            if slot.parameter.dtype not in DTYPES:
                return f"{slot.name} is {slot.parameter.dtype}"
        return None

    def _is_hooked(self) -> bool:
        hooks = self._optimizer._optimizer_step_pre_hooks.values()
        ours = (isinstance(each, Hook) and (each.is_over or each in self._hooks) for each in hooks)
        return not all(ours)

    def _submit(self, layer: Layer) -> None:
        optimizer = self._optimizer
        assert isinstance(optimizer, Adam | AdamW)
        assert isinstance(optimizer._keeper, InMemory)
        if not self._updated:
            self._settings, self._numbers = self._settings_now(), self._groups()
        groups = self._numbers
        slots = [slot for slot in layer.gradients if slot.parameter in groups]
        if not all(slot.is_home() for slot in slots):
            refuse("parameters are assigned between forward and backward")
        moving = [
            Moving(
                groups[slot.parameter], 0, [slot.name], slot.parameter, slot.parameter, slot.landing
            )
            for slot in slots
            if slot.landing is not None
        ]
        if not moving:
            return
        steps, work = optimizer._keeper.work(moving, optimizer.state)
        threads = max(torch.get_num_threads() // 2, 1)
        self._used += [dict(optimizer.state[slot.parameter]) for slot in slots]
        self._engine.update(layer.index, self._settings, work, threads)
        torch._foreach_add_(steps, 1)
        increment_version([slot.parameter for slot in slots])
        self._updated.update(dict.fromkeys(slots))

    def _groups(self) -> dict[torch.Tensor, int]:
        """The number of each parameter's group."""
        return {
            parameter: number
            for number, group in enumerate(self._optimizer.param_groups)
            for parameter in group["params"]
        }

    def _settings_now(self) -> list[Settings]:
        decoupled = isinstance(self._optimizer, AdamW)
        return [settings_of(group, decoupled) for group in self._optimizer.param_groups]

    def _before_step(self, _: Any, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        self._steps_now()
        if any(closure is not None for closure in (*given[1:], named.get("closure"))):
            # It is called after this, so what its backward had updated would be stepped again.
            self._object_to_closure()
        self._compare()
        if self.mode is None and _is_called_by_scaler():
            self.object("a GradScaler takes the steps")
        self._since = time.perf_counter()
        if self._updated:
            if _is_called_by_scaler():
                refuse("a GradScaler takes the steps")
            if self._is_hooked():
                refuse(HOOKED)
            if self._settings != self._settings_now():
                refuse("lr or another setting is changed between backward and step()")
            if not self._is_settled:
                self._engine.finish_updates()
            for slot in self._updated:
                self._held[slot], slot.parameter.grad = slot.parameter.grad, None

    def _compare(self) -> None:
        """With what was noted when backward ended."""
        bits = _sampled if self.on_arrival else _summed
        if any(not n.is_untouched(slot.parameter.grad, bits) for slot, n in self._notes.items()):
            self.object("gradients are changed between backward and step()")
        if any(not n.is_untouched(slot.parameter, bits) for slot, n in self._weights.items()):
            self.object("parameters are changed between backward and step()")
        self._forget_notes()

    def _before_state_dict(self, *_: Any) -> None:
        self.refuse_unstepped("the optimizer's state_dict()")

    def _after_loading(self, *_: Any) -> None:
        # While the model is wrapped, its own load_state_dict() says so.
        if self._is_settled:
            self.forget()
            self._end()
            self._stepped(0.0)

    def _object_to_closure(self) -> None:
        why = "step() is given a closure"
        if self.wants_arrival:
            # Also before it is decided, which may be in the closure's forward.
            refuse(why)
        self.object(why)

    def _after_step(self, *_: Any) -> None:
        for slot, gradient in self._held.items():
            slot.parameter.grad = gradient
        self._held.clear()
        self._updated.clear()
        self._used.clear()
        self._backwards = 0
        self._steps += 1
        self._stepped(time.perf_counter() - self._since)
        if self._is_settled:
            self._end()


def refuse(why: str) -> NoReturn:
    """What updates on arrival don't go with."""
    raise InvalidInput(
        f'{why}, which does not go with update="arrival": that updates parameters during backward, '
        'so they may be a step ahead now; pass update="step", and start from the last checkpoint'
    )


def _is_called_by_scaler() -> bool:
    frame = sys._getframe()
    for _ in range(SCALER_DEPTH_MAX):
        if frame.f_globals.get("__name__") == SCALER:
            return True
        if frame.f_back is None:
            return False
        frame = frame.f_back
    return False


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    whole = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return tensor.detach().view(whole[tensor.itemsize])


def _summed(tensor: torch.Tensor) -> torch.Tensor:
    """One number that hardly stays the same when anything changes."""
    return _bits(tensor).sum(dtype=torch.int64)


def _sampled(gradient: torch.Tensor) -> torch.Tensor:
    """Some elements: a scaled gradient shows in any of them."""
    flat = gradient.detach().as_strided((gradient.numel(),), (1,))
    return _bits(flat[:: max(gradient.numel() // SAMPLES, 1)]).clone()
