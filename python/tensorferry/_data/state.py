"""Where a loader stands, as plain data.

An epoch is a global order of ``length`` samples. Its first ``base`` samples were consumed under
earlier divisions between ranks; the rest is divided between ``world_size`` ranks in batches of
``batch_size``, and each rank has got ``batches`` of them. Nothing here is about one rank: any
rank's state may be loaded by all ranks, by any number of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from tensorferry._data.engine import FRESH, Resume
from tensorferry._errors import InvalidInput

VERSION = 2


@dataclass(frozen=True, slots=True)
class State:
    """What ``state_dict`` gives, and ``load_state_dict`` takes."""

    order: str
    """The kind of order: seeded, global, generator, sequential, sampler, batch_sampler or
    iterable."""
    length: int | None
    seed: int | None
    """From which the orders of all epochs follow; None where torch's generators say them."""
    chance: int | None
    """From which transforms of our datasets, and substitutes, follow; None before it is drawn."""
    shuffle: bool
    world_size: int
    batch_size: int | None
    epoch: int
    base: int = 0
    batches: int = 0
    beyond: list[int] = field(default_factory=list)
    """Batches that came before their turn, with ``in_order=False``."""
    base_seed: int | None = None
    """What torch draws when an epoch begins; None before that."""
    drawn: int | None = None
    """What the order of this epoch follows from, where it is a number; None before it is needed."""
    generator: str | None = None
    """The state of the user's generator before it shuffles this epoch, in hexadecimal."""
    sampler: dict[str, Any] | None = None
    """What brings the user's sampler back to its place."""
    places: list[Any] = field(default_factory=list)
    """Where each worker's dataset stands, of those that keep a place; as they tell it."""
    bad: dict[str, Any] | None = None
    """Bad samples so far."""

    def plain(self) -> dict[str, Any]:
        """As plain data."""
        return {"version": VERSION, **asdict(self)}

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> State:
        """From plain data, which may come from anywhere."""
        if not isinstance(plain, Mapping) or "version" not in plain:
            raise _strange("it has no version")
        if plain["version"] != VERSION:
            what = f"it has version {plain['version']!r}, this tensorferry reads {VERSION}"
            raise _strange(what)
        names = {each.name for each in fields(cls)}
        if names != set(plain) - {"version"}:
            missing = ", ".join(sorted(names ^ (set(plain) - {"version"})))
            raise _strange(f"missing or unknown: {missing}")
        state = cls(**{name: plain[name] for name in names})
        _judge(state)
        return state

    def divided(self, world_size: int, batch_size: int | None) -> State:
        """The same place, seen by other ranks or with another batch size."""
        if (self.world_size, self.batch_size) == (world_size, batch_size):
            return self
        if self.order in ("batch_sampler", "iterable"):
            what = f"the order of kind {self.order!r} can't be divided anew in mid-epoch"
            if self.batches:
                raise InvalidInput(f"{what}; load with batch_size={self.batch_size}")
        if self.beyond:
            what = "it was saved with in_order=False while batches had come before their turn"
            raise InvalidInput(f"{what}; it can only be loaded with the same batch and world size")
        base = self.base + self.batches * (self.batch_size or 1) * self.world_size
        if self.length is not None and self.order not in ("sampler", "batch_sampler"):
            base = min(self.length, base)
        return replace(self, base=base, batches=0, world_size=world_size, batch_size=batch_size)

    @property
    def known_chance(self) -> int:
        """Once it is drawn."""
        assert self.chance is not None
        return self.chance

    def resume(self) -> Resume:
        """For the engine."""
        if all(each is None for each in self.places):
            return FRESH
        return Resume(self.places, self.batches)

    def check_workers(self, workers: int) -> None:
        """Refuses to go on with other workers, where each has a place of its own."""
        if any(each is not None for each in self.places) and len(self.places) != workers:
            what = f"the state has the places of {len(self.places)} workers in the dataset"
            raise InvalidInput(f"{what}, this loader has {workers}; load with as many")

    def check_fits(self, other: State) -> None:
        """Refuses to go on with ``other``, the state of a loader of another kind."""
        for name, meaning in (
            ("order", "another kind of order"),
            ("length", "a dataset of another length"),
            ("shuffle", "another shuffle"),
            ("seed", "another seed"),
        ):
            saved, present = getattr(self, name), getattr(other, name)
            if saved != present and not _are_alike(name, saved, present):
                what = f"the state is of a loader with {meaning}"
                raise InvalidInput(f"{what}: {name} was {saved!r}, here it is {present!r}")


def _are_alike(name: str, saved: Any, present: Any) -> bool:
    """An epoch's shuffle follows from a number, whether that was drawn or is a seed's; and a loader
    without a seed goes on with any."""
    if name == "order":
        return {saved, present} == {"seeded", "global"}
    return name == "seed" and None in (saved, present)


def _judge(state: State) -> None:
    for name in ("epoch", "base", "batches", "world_size"):
        value = getattr(state, name)
        if type(value) is not int or value < 0:
            raise _strange(f"{name} is {value!r}")
    if type(state.chance) is not int and (state.chance is not None or state.base_seed is not None):
        raise _strange(f"chance is {state.chance!r}")
    for name in ("length", "batch_size", "base_seed", "seed", "drawn"):
        if type(getattr(state, name)) not in (int, type(None)):
            raise _strange(f"{name} is {getattr(state, name)!r}")
    if state.world_size < 1 or (state.batch_size is not None and state.batch_size < 1):
        raise _strange("world_size and batch_size are at least 1")
    if not isinstance(state.beyond, list) or any(type(each) is not int for each in state.beyond):
        raise _strange(f"beyond is {state.beyond!r}")
    if not isinstance(state.places, list):
        raise _strange("places is no list")
    if not isinstance(state.generator, str | None):
        raise _strange("generator is no text")
    for name in ("sampler", "bad"):
        if not isinstance(getattr(state, name), Mapping | None):
            raise _strange(f"{name} is no dict")


def _strange(what: str) -> InvalidInput:
    return InvalidInput(f"this is no state of a DataLoader: {what}")
