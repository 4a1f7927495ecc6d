"""Who updates parameters, and when: as their gradients arrive, or in ``optimizer.step()``.

On arrival a layer takes its step during backward, and ``step()`` only waits for the last of them
and takes what is left. That can't be undone, so it is the same only if each backward is followed by
its step, and nobody does anything to gradients, parameters or settings between the two. No loop
that was watched for some iterations has promised that for all others: only the user can, with
``update="arrival"``, and then what is seen to make a difference is an error. ``"auto"`` leaves all
to ``step()``, and says whether the first iterations speak against updates on arrival.

What is seen, and by what:

==============================================  =================================================
gradients or parameters are changed             snapshots, compared in the hook before ``step()``
a ``GradScaler`` takes the steps                it asks the optimizer (``_optim/scaling.py``)
other hooks, a closure, other settings          the hook before ``step()``
several backwards for one step                  counted
gradients that add up, or come in parts         ``gradients.py``
``DistributedDataParallel``, odd reads          ``runtime.py``
==============================================  =================================================
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Literal

import torch

from tensorferry import _lib
from tensorferry._errors import InvalidInput
from tensorferry._optim.scaling import was_asked
from tensorferry._shadow.arrival import Arrival, groups_of, refuse, unfit
from tensorferry._shadow.hook import Hook
from tensorferry._shadow.host_memory import Slot
from tensorferry._shadow.layers import Layer
from tensorferry._shadow.snapshots import Snapshots

Update = Literal["auto", "arrival", "step"]
HOOKED = "the optimizer has hooks that run before step()"
UNSEEN = "no step() was seen in the first iterations"
ADVICE = (
    'all is left to step(); update="arrival" would overlap updates with backward, and nothing in '
    "the first iterations speaks against it: choose it if every backward gets its step()"
)


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
        self._optimizer = optimizer
        self._slots = slots
        self._asked = asked
        self._before, self._after = around_step
        self.mode: Literal["arrival", "step"] | None = None
        """None until it is decided."""
        self.why = "the first iterations are being watched"
        self._arrival = Arrival(engine, optimizer)
        self._snapshots = Snapshots()
        self._objections: dict[str, None] = {}
        self._steps = self._backwards = 0
        self._since = 0.0
        self._hooks: list[Hook] = []
        self._is_closed = False
        why_not = self._unfit()
        if asked == "arrival" and why_not is not None:
            raise InvalidInput(f'update="arrival" can\'t be: {why_not}; pass update="step"')
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
        return bool(self._arrival.ahead)

    @property
    def on_arrival(self) -> bool:
        """Whether layers are updated during backward."""
        return self.mode == "arrival"

    @property
    def wants_arrival(self) -> bool:
        """Whether they are, or are to be."""
        return self.on_arrival or self._asked == "arrival"

    def close(self) -> None:
        """The engine goes. A step that was half taken is still made whole by the next ``step()``,
        which does not update once more what is updated already; then the hooks end. Safe wherever
        the optimizer is, also among its hooks."""
        if not self.is_ahead:
            self._end()
        elif not self._is_closed:
            self._is_closed = True
            self._arrival.finish()

    def unhook(self) -> None:
        """Leaves the optimizer as it was, if nothing is half taken."""
        if not self.is_ahead:
            for handle in self._handles:
                handle.remove()

    def _end(self) -> None:
        for hook in self._hooks:
            hook.end()

    # -- what speaks against updates on arrival --

    def object(self, why: str, slot: Slot | None = None) -> None:
        """Something was seen that does not go with updates on arrival, of this parameter or all."""
        if slot is not None and slot.parameter not in groups_of(self._optimizer):
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
        self._snapshots.clear()

    def refuse_unstepped(self, what: str) -> None:
        """Parameters that are a step ahead of what the loop has asked for are shown to nobody."""
        if self.is_ahead:
            refuse(f"{what} comes after backward and before step()")

    def _unfit(self) -> str | None:
        """Why this optimizer can't update on arrival, if so."""
        return unfit(self._optimizer, self._slots) or (HOOKED if self._is_hooked() else None)

    def _is_hooked(self) -> bool:
        hooks = self._optimizer._optimizer_step_pre_hooks.values()
        ours = (isinstance(each, Hook) and (each.is_over or each in self._hooks) for each in hooks)
        return not all(ours)

    # -- backward --

    def backward_begins(self) -> None:
        """The first of a backward is seen."""
        if self._backwards > 0 and self.is_ahead:
            refuse("there are several backwards for one step()")

    def gradient_arrives(self, layer: Layer, slot: Slot) -> None:
        """A gradient is on its way to host memory."""
        if self.on_arrival:
            self._arrival.gradient_arrives(layer, slot)

    def backward_failed(self) -> None:
        """What has arrived of a layer counts for nothing in the next one."""
        self._arrival.backward_ended()

    def backward_ended(self) -> None:
        """Gradients are there, and the loop may do with them what it likes."""
        self._backwards += 1
        if self._backwards > 1:
            self.object("there are several backwards for one step()")
        self._snapshots.clear()
        if self.on_arrival:
            self._snapshots.take_updated(self._arrival.ahead)
        elif self.mode is None and self._asked == "auto":
            groups = groups_of(self._optimizer)
            self._snapshots.take(slot for slot in self._slots if slot.parameter in groups)
        self._arrival.backward_ended()

    def forget(self) -> None:
        """Parameters were loaded, and so will be the optimizer's state."""
        self._arrival.forget()
        self._snapshots.clear()
        self._backwards = 0

    # -- the optimizer --

    def _before_step(self, _: Any, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        self._before()
        if any(closure is not None for closure in (*given[1:], named.get("closure"))):
            # It is called after this, so what its backward had updated would be stepped again.
            self._object_to_closure()
        for change in self._snapshots.changes():
            self.object(change)
        self._snapshots.clear()
        if was_asked(self._optimizer) and (self.mode is None or self.is_ahead):
            self.object("a GradScaler takes the steps")
        self._since = time.perf_counter()
        if self.is_ahead:
            if self._is_hooked():
                refuse(HOOKED)
            if self._arrival.has_other_settings():
                refuse("lr or another setting is changed between backward and step()")
            if not self._is_closed:
                self._arrival.finish()
            self._arrival.hide_gradients()

    def _after_step(self, *_: Any) -> None:
        self._arrival.stepped()
        self._backwards = 0
        self._steps += 1
        self._after(time.perf_counter() - self._since)
        if self._is_closed:
            self._end()

    def _before_state_dict(self, *_: Any) -> None:
        self.refuse_unstepped("the optimizer's state_dict()")

    def _after_loading(self, *_: Any) -> None:
        # While the model is wrapped, its own load_state_dict() says so.
        if self._is_closed:
            self.forget()
            self._end()
            self._after(0.0)

    def _object_to_closure(self) -> None:
        why = "step() is given a closure"
        if self.wants_arrival:
            # Also before it is decided, which may be in the closure's forward.
            refuse(why)
        self.object(why)
