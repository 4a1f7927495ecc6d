"""Who keeps the state between steps: the process, or a file.

Both leave ``optimizer.state`` as torch has it, as far as they hold it: all of it in memory, only
``step`` for a file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import torch

from tensorferry import _errors, _lib
from tensorferry._errors import InvalidInput
from tensorferry._optim.shards import here, part_of, whole
from tensorferry._optim.step import Moving, Settings, counts
from tensorferry._optim.tensors import check_parameter, laid_out, zeros_like

State: TypeAlias = dict[str, Any]
States: TypeAlias = Mapping[torch.Tensor, State]

Address: TypeAlias = tuple[str, int]
Work: TypeAlias = tuple[int, float, int, Address, Address, tuple[int, int, int]]
"""A tensor's step, as the core takes it."""

KEYS = FIRST, SECOND, MASTER = "exp_avg", "exp_avg_sq", "master"
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

    def check(self) -> None:
        """Raises if it was closed."""

    def close(self) -> None:
        """Lets go of files and memory."""


@contextmanager
def _counted(steps: list[torch.Tensor]) -> Iterator[None]:
    """Counts a step that is taken, also if somebody presses Control-C meanwhile: that is raised
    when the core has taken it, and before anything else could be done here."""
    torch._foreach_add_(steps, 1)
    try:
        yield
    except Exception:
        torch._foreach_sub_(steps, 1)
        raise


def fresh_step() -> torch.Tensor:
    """As torch counts."""
    return torch.zeros((), dtype=torch.float32, device="cpu")


def plain(state: State, owner: torch.Tensor, name: str) -> State:
    """Loaded state as the core can take it."""
    if not state:
        return state
    for key in ("step", FIRST, SECOND):
        if key not in state:
            raise InvalidInput(f"the state of {name} has no {key}: it is not Adam's")
    made = dict(state)
    step = made["step"]
    made["step"] = fresh_step() + float(step)
    if owner.dtype == torch.float32:
        made.pop(MASTER, None)
    for place, key in enumerate(KEYS):
        if key in made:
            made[key], _ = _laid_out(made[key], owner, here(owner), f"{key} of {name}", place)
    return made


def _laid_out(
    value: torch.Tensor, owner: torch.Tensor, parameter: torch.Tensor, what: str, place: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """A piece of state as the core can take it, and what of it is here."""
    part = part_of(value, owner, what)
    shard = laid_out(part, parameter, what, place)
    is_there = shard is part and part is here(value)
    return value if is_there else whole(shard, owner), shard


def _is_half(parameter: torch.Tensor) -> bool:
    """Whether it has a master."""
    return parameter.dtype != torch.float32


def _shapes(
    parameters: list[torch.Tensor], names: Mapping[torch.Tensor, str]
) -> list[tuple[str, int, bool]]:
    return [(names[each], here(each).numel(), _is_half(each)) for each in parameters]


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
    # Not asked as much as a parameter is: it was laid out here, when it was made or loaded.
    return (
        type(first) is type(second) is torch.Tensor
        and first.dtype is second.dtype is torch.float32
        and first.is_cpu
        and second.is_cpu
        and first.is_contiguous()
        and second.is_contiguous()
        and first.numel() == second.numel() == parameter.numel()
    )


class InMemory:
    """State as torch's own optimizers have it, and masters beside it."""

    def step(self, groups: Sequence[Settings], moving: list[Moving], states: States) -> None:
        """All tensors in one call."""
        steps, work = self.work(moving, states)
        with _counted(steps):
            _lib.adam_step(groups, work, torch.get_num_threads())

    def work(self, moving: list[Moving], states: States) -> tuple[list[torch.Tensor], list[Work]]:
        """What the core is to do, and the counters of steps that go up when it has done so."""
        found = [self._state(each, states[each.owner]) for each in moving]
        steps = [state["step"] for state in found]
        work = []
        for each, state, count in zip(moving, found, counts(steps), strict=True):
            parameter, gradient = each.addresses()
            elements = each.parameter.numel()
            work.append((each.group, count + 1, elements, parameter, gradient, _addresses(state)))
        return steps, work

    def _state(self, moving: Moving, state: State) -> State:
        """The state of what is here of a parameter, made where there is none."""
        owner, parameter = moving.owner, moving.parameter
        if owner is parameter and parameter.dtype is torch.float32 and _is_ready(state, parameter):
            return state
        if not state:
            state["step"] = fresh_step()
            state[FIRST] = whole(zeros_like(parameter, 0), owner)
            state[SECOND] = whole(zeros_like(parameter, 1), owner)
        if not moving.is_half:
            state.pop(MASTER, None)
        elif MASTER not in state:
            # The first step takes it from the parameter.
            state[MASTER] = whole(zeros_like(parameter, 2), owner)
        found = {"step": state["step"]}
        for place, key in enumerate(KEYS[: 2 + moving.is_half]):
            what = f"{key} of {moving.name}"
            state[key], found[key] = _laid_out(state[key], owner, parameter, what, place)
        return found

    def whole(self, states: States) -> dict[torch.Tensor, State]:
        """It is all there."""
        return dict(states)

    def install(self, states: States, names: Mapping[torch.Tensor, str]) -> None:
        """Nothing to do: it lies where it is."""

    def report(self) -> Report:
        """Nothing but memory."""
        return Report("memory")

    def check(self) -> None:
        """Nothing was closed."""

    def close(self) -> None:
        """The state is the optimizer's."""


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
            found = (here(parameter).numel(), _is_half(parameter))
            if found != (elements, master):
                raise InvalidInput(f"the state to resume has {name} in another size or dtype")
            self._place(parameter, number)
            states[parameter]["step"] = fresh_step() + step

    def step(self, groups: Sequence[Settings], moving: list[Moving], states: States) -> None:
        """Streams all state past the tensors."""
        if self._store.is_resumed:
            self._compare()
        self._add([each for each in moving if each.owner not in self._numbers], states)
        steps = [states[each.owner]["step"] for each in moving]
        work = []
        for each, count in zip(moving, counts(steps), strict=True):
            self._check_order(each)
            number, elements = self._numbers[each.owner], each.parameter.numel()
            work.append((number, each.group, count + 1, elements, *each.addresses()))
        with _counted(steps):
            self._store.step(groups, work, torch.get_num_threads())

    def whole(self, states: States) -> dict[torch.Tensor, State]:
        """Reads all of it into memory."""
        full = {parameter: dict(state) for parameter, state in states.items()}
        wanted = []
        for parameter, number in self._numbers.items():
            state = full[parameter]
            found = {key: self._empty(parameter) for key in KEYS[: 2 + _is_half(parameter)]}
            count, elements = float(state["step"]), here(parameter).numel()
            wanted.append((number, count, elements, _addresses(found)))
            state.update({key: whole(shard, parameter) for key, shard in found.items()})
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
                state[MASTER] = whole(zeros_like(here(parameter)), parameter)
            count, elements = float(state["step"]), here(parameter).numel()
            found = {key: here(state[key]) for key in KEYS if key in state}
            given.append((number, count, elements, _addresses(found)))
        self._store.load(_shapes(loaded, names), given, torch.get_num_threads())
        for number, parameter in enumerate(loaded):
            self._place(parameter, number)
        for parameter in loaded:
            for key in KEYS:
                states[parameter].pop(key, None)

    def report(self) -> Report:
        """What the file has cost."""
        return Report(os.fspath(self._store.path), **json.loads(self._store.report()))

    def check(self) -> None:
        """Whoever uses it is told."""

    def close(self) -> None:
        """Closes the file, which stays."""
        self._store.close()

    def _add(self, new: list[Moving], states: States) -> None:
        if not new:
            return
        names = {each.owner: each.name for each in new}
        first = self._store.add(_shapes(list(names), names))
        for number, parameter in enumerate(names, first):
            self._place(parameter, number)
            states[parameter]["step"] = fresh_step()

    def _place(self, parameter: torch.Tensor, number: int) -> None:
        self._numbers[parameter] = number
        self._orders[parameter] = here(parameter).stride()

    def _empty(self, parameter: torch.Tensor) -> torch.Tensor:
        shard = here(parameter)
        flat = torch.empty(shard.numel(), dtype=torch.float32, device="cpu")
        return flat.as_strided(shard.shape, self._orders[parameter])

    def _check_order(self, moving: Moving) -> None:
        if moving.parameter.stride() != self._orders[moving.owner]:
            raise InvalidInput(
                f"{moving.name} has got another memory format since its first step, and its state "
                "on disk has not; load state_dict() back after such a change"
            )

    def _compare(self) -> None:
        """Whether the parameters are those that the resumed state belongs to."""
        name = "a parameter of a resumed optimizer"
        parameters = [check_parameter(owner, name) for owner in self._numbers]
        self._store.belongs_to([(each.data_ptr(), each.nbytes) for each in parameters])


class Closed:
    """Nobody keeps the state any more."""

    def __init__(self, last: Report) -> None:
        self._last = last

    def check(self) -> None:
        """It was closed."""
        hint = "" if self._last.where == "memory" else ", with resume=True to go on with its file"
        raise _errors.Closed(f"the optimizer is closed; make another one{hint}")

    def step(self, *_: Any) -> None:
        """There is no state."""
        self.check()

    def whole(self, _: States) -> dict[torch.Tensor, State]:
        """There is no state."""
        self.check()
        raise AssertionError

    def install(self, *_: Any) -> None:
        """There is no place for it."""
        self.check()

    def report(self) -> Report:
        """What it had cost."""
        return self._last

    def close(self) -> None:
        """It is."""


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
