"""Who keeps the state between steps: the process, or a file.

Both leave ``optimizer.state`` as torch has it, as far as they hold it: all of it in memory, only
``step`` for a file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import torch

from tensorferry import _lib
from tensorferry._errors import InvalidInput
from tensorferry._optim.step import Moving, Settings, counts
from tensorferry._optim.tensors import check_parameter, is_plain, laid_out, zeros_like

State: TypeAlias = dict[str, Any]
States: TypeAlias = Mapping[torch.Tensor, State]

Address: TypeAlias = tuple[str, int]
Work: TypeAlias = tuple[int, float, int, Address, Address, tuple[int, int, int]]
"""A tensor's step, as the core takes it."""

FIRST, SECOND, MASTER = "exp_avg", "exp_avg_sq", "master"
"""The first two are torch's names; it has no masters, and ignores ours."""


@dataclass(frozen=True)
class Report:
    """What keeping the state has cost so far."""

    where: str
    """``"memory"``, or the file."""
    steps: int = 0
    read_bytes: int = 0
    written_bytes: int = 0
    seconds: float = 0.0
    """In steps, of which ``waited_seconds`` were waiting for the disk."""
    waited_seconds: float = 0.0
    file_bytes: int = 0

    def __str__(self) -> str:
        if self.where == "memory":
            return "state in memory"
        mib = 1 << 20
        each = max(self.steps, 1)
        return (
            f"state in {self.where}, {self.file_bytes / mib:.1f} MiB; {self.steps} steps, each "
            f"{self.read_bytes / each / mib:.1f} MiB read, {self.written_bytes / each / mib:.1f} "
            f"MiB written, {self.seconds / each:.3f} s, of which "
            f"{self.waited_seconds / each:.3f} s waiting for the disk"
        )


class Keeper(Protocol):
    """Keeps moments and masters."""

    def step(self, groups: Sequence[Settings], moving: list[Moving], states: States) -> None:
        """Takes a step with everything that moves, and counts it."""

    def whole(self, states: States) -> dict[torch.Tensor, State]:
        """All of the state, as torch has it."""

    def install(self, states: States, names: Mapping[torch.Tensor, str]) -> None:
        """Takes over state that was loaded."""

    def report(self) -> Report:
        """What it has cost."""


def fresh_step() -> torch.Tensor:
    """As torch counts."""
    return torch.zeros((), dtype=torch.float32)


def plain(state: State, parameter: torch.Tensor, name: str) -> State:
    """Loaded state as the core can take it."""
    if not state:
        return state
    for key in ("step", FIRST, SECOND):
        if key not in state:
            raise InvalidInput(f"the state of {name} has no {key}: it is not Adam's")
    made = dict(state)
    step = made["step"]
    made["step"] = fresh_step() + float(step)
    for place, key in enumerate((FIRST, SECOND, MASTER)):
        if key in made:
            made[key] = laid_out(made[key], parameter, f"{key} of {name}", place)
    if parameter.dtype == torch.float32:
        made.pop(MASTER, None)
    return made


def _is_half(parameter: torch.Tensor) -> bool:
    """Whether it has a master."""
    return parameter.dtype != torch.float32


def _shapes(
    parameters: list[torch.Tensor], names: Mapping[torch.Tensor, str]
) -> list[tuple[str, int, bool]]:
    return [(names[each], each.numel(), _is_half(each)) for each in parameters]


def _addresses(state: State) -> tuple[int, int, int]:
    master = state.get(MASTER)
    return (
        state[FIRST].data_ptr(),
        state[SECOND].data_ptr(),
        0 if master is None else master.data_ptr(),
    )


def _is_ready(state: State, parameter: torch.Tensor) -> bool:
    """Whether the core can take it as it is, as in all steps of most parameters but the first."""
    if MASTER in state or not parameter.is_contiguous():
        return False
    first, second = state.get(FIRST), state.get(SECOND)
    return (
        first is not None
        and second is not None
        and is_plain(first)
        and is_plain(second)
        and first.numel() == second.numel() == parameter.numel()
    )


class InMemory:
    """State as torch's own optimizers have it, and masters beside it."""

    def step(self, groups: Sequence[Settings], moving: list[Moving], states: States) -> None:
        """All tensors in one call."""
        steps, work = self.work(moving, states)
        _lib.adam_step(groups, work, torch.get_num_threads())
        torch._foreach_add_(steps, 1)

    def work(self, moving: list[Moving], states: States) -> tuple[list[torch.Tensor], list[Work]]:
        """What the core is to do, and the counters of steps that go up when it has done so."""
        found = [self._state(each, states[each.parameter]) for each in moving]
        steps = [state["step"] for state in found]
        work = []
        for each, state, count in zip(moving, found, counts(steps), strict=True):
            parameter, gradient = each.addresses()
            elements = each.parameter.numel()
            work.append((each.group, count + 1, elements, parameter, gradient, _addresses(state)))
        return steps, work

    def _state(self, moving: Moving, state: State) -> State:
        """The state of a parameter, made where there is none."""
        parameter = moving.parameter
        if not moving.is_half and _is_ready(state, parameter):
            return state
        if not state:
            state["step"] = fresh_step()
            state[FIRST], state[SECOND] = zeros_like(parameter, 0), zeros_like(parameter, 1)
        if not moving.is_half:
            state.pop(MASTER, None)
        elif MASTER not in state:
            # The first step takes it from the parameter.
            state[MASTER] = zeros_like(parameter, 2)
        for place, key in enumerate((FIRST, SECOND, MASTER)[: 2 + moving.is_half]):
            state[key] = laid_out(state[key], parameter, f"{key} of {moving.name}", place)
        return state

    def whole(self, states: States) -> dict[torch.Tensor, State]:
        """It is all there."""
        return dict(states)

    def install(self, states: States, names: Mapping[torch.Tensor, str]) -> None:
        """Nothing to do: it lies where it is."""

    def report(self) -> Report:
        """Nothing but memory."""
        return Report("memory")


class OnDisk:
    """State in a file; only ``step`` is in memory."""

    def __init__(self, directory: str, resume: bool) -> None:
        self._store = _lib.OptimizerStore(os.fspath(directory), resume)
        self._numbers: dict[torch.Tensor, int] = {}
        self._orders: dict[torch.Tensor, tuple[int, ...]] = {}
        """Strides for which the state was laid out."""

    def resume(self, names: Mapping[torch.Tensor, str], states: States) -> None:
        """Finds the parameters of what an earlier process has left."""
        parameters = {name: parameter for parameter, name in names.items()}
        for number, (name, elements, master, step) in enumerate(self._store.tensors()):
            parameter = parameters.get(name)
            if parameter is None:
                raise InvalidInput(f"the state to resume has {name}, the optimizer has not")
            found = (parameter.numel(), _is_half(parameter))
            if found != (elements, master):
                raise InvalidInput(f"the state to resume has {name} in another size or dtype")
            self._place(parameter, number)
            states[parameter]["step"] = fresh_step() + step

    def step(self, groups: Sequence[Settings], moving: list[Moving], states: States) -> None:
        """Streams all state past the tensors."""
        if self._store.is_resumed:
            self._compare()
        self._add([each for each in moving if each.parameter not in self._numbers], states)
        steps = [states[each.parameter]["step"] for each in moving]
        work = []
        for each, count in zip(moving, counts(steps), strict=True):
            self._check_order(each)
            number, elements = self._numbers[each.parameter], each.parameter.numel()
            work.append((number, each.group, count + 1, elements, *each.addresses()))
        self._store.step(groups, work, torch.get_num_threads())
        torch._foreach_add_(steps, 1)

    def whole(self, states: States) -> dict[torch.Tensor, State]:
        """Reads all of it into memory."""
        full = {parameter: dict(state) for parameter, state in states.items()}
        wanted = []
        for parameter, number in self._numbers.items():
            state = full[parameter]
            keys = (FIRST, SECOND, MASTER)[: 2 + _is_half(parameter)]
            state.update({key: self._empty(parameter) for key in keys})
            count, elements = float(state["step"]), parameter.numel()
            wanted.append((number, count, elements, _addresses(state)))
        self._store.read(wanted, torch.get_num_threads())
        return full

    def install(self, states: States, names: Mapping[torch.Tensor, str]) -> None:
        """Replaces the file by what is in memory, and lets go of that."""
        self._numbers.clear()
        self._orders.clear()
        loaded = [parameter for parameter in names if states.get(parameter)]
        given = []
        for number, parameter in enumerate(loaded):
            state = states[parameter]
            if _is_half(parameter) and MASTER not in state:
                state[MASTER] = zeros_like(parameter)
            count, elements = float(state["step"]), parameter.numel()
            given.append((number, count, elements, _addresses(state)))
        self._store.load(_shapes(loaded, names), given, torch.get_num_threads())
        for number, parameter in enumerate(loaded):
            self._place(parameter, number)
        for parameter in loaded:
            for key in (FIRST, SECOND, MASTER):
                states[parameter].pop(key, None)

    def report(self) -> Report:
        """What the file has cost."""
        return Report(os.fspath(self._store.path), **json.loads(self._store.report()))

    def _add(self, new: list[Moving], states: States) -> None:
        if not new:
            return
        names = {each.parameter: each.name for each in new}
        first = self._store.add(_shapes(list(names), names))
        for number, parameter in enumerate(names, first):
            self._place(parameter, number)
            states[parameter]["step"] = fresh_step()

    def _place(self, parameter: torch.Tensor, number: int) -> None:
        self._numbers[parameter] = number
        self._orders[parameter] = parameter.stride()

    def _empty(self, parameter: torch.Tensor) -> torch.Tensor:
        flat = torch.empty(parameter.numel(), dtype=torch.float32)
        return flat.as_strided(parameter.shape, self._orders[parameter])

    def _check_order(self, moving: Moving) -> None:
        if moving.parameter.stride() != self._orders[moving.parameter]:
            raise InvalidInput(
                f"{moving.name} has got another memory format since its first step, and its state "
                "on disk has not; load state_dict() back after such a change"
            )

    def _compare(self) -> None:
        """Whether the parameters are those that the resumed state belongs to."""
        for parameter in self._numbers:
            check_parameter(parameter, "a parameter of a resumed optimizer")
        self._store.belongs_to(
            [(parameter.data_ptr(), parameter.nbytes) for parameter in self._numbers]
        )


def keeper_of(state: str, resume: bool) -> InMemory | OnDisk:
    """From the argument ``state``."""
    if state == "memory":
        if resume:
            raise InvalidInput('resume=True continues state on disk; give state="ssd:DIRECTORY"')
        return InMemory()
    kind, _, directory = state.partition(":")
    if kind != "ssd" or not directory:
        raise InvalidInput(f'state is {state!r}, it must be "memory" or "ssd:DIRECTORY"')
    return OnDisk(directory, resume)
