"""From a model whose layers are unknown to a plan: discovered, profiled, planned, planned again."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median

from torch import nn

from tensorferry import _lib
from tensorferry._errors import Error, InvalidInput, OutOfMemory
from tensorferry._shadow.clock import Times
from tensorferry._shadow.host_memory import HostMemory
from tensorferry._shadow.layers import layers_of
from tensorferry._shadow.placement import Placement
from tensorferry._shadow.profile import Machine, gradient_bytes, profile_of, shared_by_elements
from tensorferry._shadow.report import size
from tensorferry._shadow.saved import LiveBytes
from tensorferry._shadow.updates import Update, Updates
from tensorferry._shadow.writes import Writes

REPLAN_AFTER = 3
"""Planned iterations, after which their seconds replace the profiled ones."""
MEASURED_MAX = 50
"""Iterations of which the median is shown."""

Planning = Callable[[str], str]
"""A plan for a profile, both JSON."""


@dataclass(frozen=True)
class ShadowOptions:
    """What the user asked for."""

    planner: str
    gradient_reserve: float | int
    """A share of all gradients, or bytes."""
    update: Update
    profile_steps: int


@dataclass(frozen=True)
class Room:
    """What a plan has left for that which autograd keeps."""

    planned_bytes: int
    """That it was made for."""
    saved_bytes: int
    """With what is left of the budget."""
    budget: int

    @classmethod
    def beside(cls, engine: _lib.Shadow, work_bytes: int, beside: int) -> Room:
        """Beside what is installed, and work of other kinds."""
        facts = json.loads(engine.facts())
        left = facts["budget"] - facts["used_bytes"]
        reserved = engine.room([work_bytes]) if work_bytes else 0
        return cls(reserved - beside, reserved - beside + left, facts["budget"])


class Stages:
    """What is known of the layers so far."""

    def __init__(
        self,
        engine: _lib.Shadow,
        module: nn.Module,
        host_memory: HostMemory,
        updates: Updates,
        options: ShadowOptions,
        planning: Planning | None,
    ) -> None:
        self._engine = engine
        self._module = module
        self._host_memory = host_memory
        self._updates = updates
        self._options = options
        self._planning = planning or self._plan_by_core
        self._called: dict[nn.Module, None] = {}
        self._watched: set[tuple[int, bool]] = set()
        """Forwards that were, by the modules that had been called, and whether in training."""
        self._machine: Machine | None = None
        self.live = LiveBytes()
        """What autograd keeps on the device."""
        self._is_refused = False
        """Whether the last forward was, so that nothing is planned for it."""
        self._forget()

    def _forget(self) -> None:
        """Layers are to be discovered, again or for the first time."""
        self.placement = Placement([])
        # As long as layers are unknown, parameters are counted too.
        self._saved_bytes = self._shown_bytes = 0
        """The most that autograd kept: to plan with, and since the last plan."""
        self._room: Room | None = None
        """For work, once there is a plan."""
        self._remade: tuple[str, str] | None = None
        """A plan and its profile, to be installed before the next forward."""
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
        if self.placement.plan is not None:
            return "planned"
        return "profiling" if self.placement.layers else "discovering"

    def note_call(self, module: nn.Module) -> None:
        """A module is called: with the first call of one, layers are others."""
        if module not in self._called:
            self._called[module] = None
            self._is_stale = True

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Around a forward: before there is a plan, sees which parameters it writes to."""
        forward = len(self._called), self._module.training
        if self.placement.plan is not None or forward in self._watched:
            yield
            return
        with Writes(self._host_memory.slots):
            yield
        self._watched.add((len(self._called), self._module.training))

    def iterated(self, times: Times) -> None:
        """An iteration has come to the end of its backward."""
        if self.placement.layers:
            (self.profiled if self.placement.plan is None else self.measured).append(times)

    def advance(self) -> None:
        """Between iterations: the next stage, if it is time for it."""
        self._count_work()
        if self._trained != self._trainable():
            self._forget()
        if self._is_stale and self._called:
            self._forget()
            self.placement = Placement(
                layers_of(self._module, list(self._called), self._host_memory)
            )
            self._is_stale = False
        if self._remade is not None:
            self._put(*self._remade)
        planned = self.placement.plan is not None
        if not planned and len(self.profiled) >= self._options.profile_steps:
            self._install(self.profiled)
        elif planned and not self._is_planned_again and len(self.measured) >= REPLAN_AFTER:
            self._is_planned_again = True
            self._install(list(self.measured))
            self.measured.clear()

    def release(self) -> None:
        """Layers are nobody's any more, and have no place on the device."""
        self._forget()

    def install_again(self) -> None:
        """After a failure, which has ended what was installed."""
        assert self.profile is not None
        self.placement.install(self._engine, self._plan, self.profile)

    def check_room(self) -> None:
        """Raises, as a device would, if autograd keeps more than the plan has left room for. The
        next forward gets a plan that has room for it, if there is one."""
        if self._room is None or self.live.peak <= self._room.saved_bytes:
            return
        assert self.profile is not None
        needed, planned = size(self.live.peak), size(self._room.saved_bytes)
        message = (
            f"autograd keeps {needed} on the device, and beside the plan there is room for "
            f"{planned} within the budget of {size(self._room.budget)}"
        )
        work = {"work_bytes": self.live.peak + self._beside()}
        profile = json.dumps(json.loads(self.profile) | work)
        self._is_refused = True
        try:
            self._remade = self._planning(profile), profile
        except Error as error:
            raise OutOfMemory(f"{message}: {error}") from error
        self._is_refused = False
        raise OutOfMemory(
            f"{message}; the next forward gets a plan with room for it: run this batch again, or "
            "leave it out"
        )

    def _install(self, times: list[Times]) -> None:
        self._updates.decide()
        self._host_memory.make_gradient_buffers()
        if self._machine is None:
            self._machine = Machine.measured(self._engine)
        work = self._saved_bytes + self._beside()
        profile = profile_of(
            self.placement.layers, self._machine, times, self._update_seconds(), work
        )
        self._put(self._planning(profile), profile)

    def _put(self, plan: str, profile: str) -> None:
        self.placement.install(self._engine, plan, profile)
        self._plan, self.profile, self._remade = plan, profile, None
        self._room = Room.beside(self._engine, json.loads(profile)["work_bytes"], self._beside())
        self._shown_bytes = 0

    def _plan_by_core(self, profile: str) -> str:
        reserve, total = self._options.gradient_reserve, gradient_bytes(profile)
        if isinstance(reserve, float):
            reserve = round(reserve * total)
        try:
            return self._engine.plan(profile, reserve, self._options.planner)
        except InvalidInput as error:
            if self._options.planner == "exact" or not 0 < reserve < total:
                raise
            raise InvalidInput(
                f"{error}. Which gradients stay follows from what is measured, so another run may "
                f"need up to {size(reserve)} more"
            ) from None

    def _update_seconds(self) -> dict[int, float]:
        """By layer, beside backward; those in ``step()`` come on top of any plan."""
        if not self._updates.on_arrival:
            return {}
        if self.placement.plan is not None:
            layers = json.loads(self._engine.last())["layers"]
            return {index: spans["update"] for index, spans in enumerate(layers)}
        seconds = median(each.step_seconds for each in self.profiled)
        return shared_by_elements(self.placement.layers, seconds)

    @property
    def beyond_plan(self) -> int:
        """Bytes of work on the device, at the most, for which the plan had no room."""
        most = max(self._shown_bytes, self.live.peak)
        return 0 if self._room is None else max(most - self._room.planned_bytes, 0)

    def _count_work(self) -> None:
        """Of the iteration before; what is kept from now on is the next one's."""
        self._shown_bytes = max(self._shown_bytes, self.live.peak)
        if not self._is_refused:
            self._saved_bytes = max(self._saved_bytes, self.live.peak)
        self._is_refused = False
        self.live.restart()

    def _beside(self) -> int:
        """Beside what autograd keeps: buffers, and the largest gradient."""
        buffers = sum(buffer.nbytes for buffer in self._module.buffers())
        return buffers + max((slot.nbytes for slot in self._host_memory.slots), default=0)

    def _trainable(self) -> list[bool]:
        return [slot.parameter.requires_grad for slot in self._host_memory.slots]
