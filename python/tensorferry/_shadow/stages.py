"""From a model whose layers are unknown to a plan: discovered, profiled, planned, planned again."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from torch import nn

from tensorferry import _lib
from tensorferry._shadow.clock import Times
from tensorferry._shadow.course import Course
from tensorferry._shadow.homes import Homes
from tensorferry._shadow.layers import layers_of
from tensorferry._shadow.profile import Machine, gradient_bytes, profile_of, shared_by_elements
from tensorferry._shadow.saved import Live
from tensorferry._shadow.updates import Update, Updates

REPLAN_AFTER = 3
"""Planned iterations, after which their seconds replace the profiled ones."""
MEASURED_MAX = 50
"""Iterations of which the median is shown."""

Planning = Callable[[str], str]
"""A plan for a profile, both JSON."""


@dataclass(frozen=True)
class Wishes:
    """What the user asked for."""

    planner: str
    gradient_reserve: float | int
    """A share of all gradients, or bytes."""
    update: Update
    profile_steps: int


class Stages:
    """What is known of the layers so far."""

    def __init__(
        self,
        engine: _lib.Shadow,
        module: nn.Module,
        homes: Homes,
        updates: Updates,
        wishes: Wishes,
        planning: Planning | None,
    ) -> None:
        self._engine = engine
        self._module = module
        self._homes = homes
        self._updates = updates
        self._wishes = wishes
        self._planning = planning or self._plan_by_core
        self._called: dict[nn.Module, None] = {}
        self._machine: Machine | None = None
        self._saved_bytes = 0
        self._forget()

    def _forget(self) -> None:
        """Layers are to be discovered, again or for the first time."""
        self.course = Course([])
        self.live: Live | None = Live()
        self.profile: str | None = None
        self.profiled: list[Times] = []
        self.measured: deque[Times] = deque(maxlen=MEASURED_MAX)
        self._plan = ""
        self._is_planned_again = False
        self._is_stale = True
        self._trained = self._trainable()

    @property
    def name(self) -> str:
        """``discovering``, ``profiling`` or ``planned``."""
        if self.course.plan is not None:
            return "planned"
        return "profiling" if self.course.layers else "discovering"

    def note_call(self, module: nn.Module) -> None:
        """A module is called: with the first call of one, layers are others."""
        if module not in self._called:
            self._called[module] = None
            self._is_stale = True

    def iterated(self, times: Times) -> None:
        """An iteration has come to the end of its backward."""
        if self.course.layers:
            (self.profiled if self.course.plan is None else self.measured).append(times)

    def advance(self) -> None:
        """Between iterations: the next stage, if it is time for it."""
        if self._trained != self._trainable():
            self._forget()
        if self._is_stale and self._called:
            self._forget()
            self.course = Course(layers_of(self._module, list(self._called), self._homes))
            self._is_stale = False
        planned = self.course.plan is not None
        if not planned and len(self.profiled) >= self._wishes.profile_steps:
            self._install(self.profiled)
        elif planned and not self._is_planned_again and len(self.measured) >= REPLAN_AFTER:
            self._is_planned_again = True
            self._install(list(self.measured))
            self.measured.clear()

    def install_again(self) -> None:
        """After a failure, which has ended what was installed."""
        assert self.profile is not None
        self.course.install(self._engine, self._plan, self.profile)

    def _install(self, times: list[Times]) -> None:
        self._updates.decide()
        self._homes.make_landings()
        if self._machine is None:
            self._machine = Machine.measured(self._engine)
        profile = profile_of(
            self.course.layers, self._machine, times, self._update_seconds(), self._work_bytes()
        )
        plan = self._planning(profile)
        self.course.install(self._engine, plan, profile)
        self._plan, self.profile = plan, profile

    def _plan_by_core(self, profile: str) -> str:
        reserve = self._wishes.gradient_reserve
        if isinstance(reserve, float):
            reserve = round(reserve * gradient_bytes(profile))
        return self._engine.plan(profile, reserve, self._wishes.planner)

    def _update_seconds(self) -> dict[int, float]:
        """By layer, beside backward; those in ``step()`` come on top of any plan."""
        if not self._updates.on_arrival:
            return {}
        if self.course.plan is not None:
            layers = json.loads(self._engine.last())["layers"]
            return {index: spans["update"] for index, spans in enumerate(layers)}
        seconds = median(each.step_seconds for each in self.profiled)
        return shared_by_elements(self.course.layers, seconds)

    def _work_bytes(self) -> int:
        """On the device whatever the plan: saved activations, buffers, the largest gradient."""
        if self.live is not None:
            self._saved_bytes, self.live = self.live.peak, None
        buffers = sum(buffer.nbytes for buffer in self._module.buffers())
        largest = max((slot.nbytes for slot in self._homes.slots), default=0)
        return self._saved_bytes + buffers + largest

    def _trainable(self) -> list[bool]:
        return [slot.parameter.requires_grad for slot in self._homes.slots]
