"""Which rank this is, and what it says about its tensors."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from tensorferry._errors import InvalidInput

WORLD_SIZE_MAX = 100_000
"""Ranks have five digits in names."""


@dataclass(frozen=True, slots=True)
class Group:
    """A rank among others. Patterns are tried in order, ``sharded`` ones first."""

    rank: int
    world_size: int
    sharded: tuple[tuple[str, int], ...] = ()
    replicated: tuple[str, ...] = ()

    def dim(self, name: str) -> int | None:
        """Along which dimension a tensor is cut, if it is."""
        return next((dim for pattern, dim in self.sharded if fnmatchcase(name, pattern)), None)

    def is_replicated(self, name: str) -> bool:
        """Whether a tensor that is not cut is the same on every rank."""
        return any(fnmatchcase(name, pattern) for pattern in self.replicated)

    def unmatched(self, names: Collection[str]) -> list[str]:
        """Patterns that match none of these names. That "*" does says nothing."""
        patterns = dict.fromkeys([*(pattern for pattern, _ in self.sharded), *self.replicated])
        patterns.pop("*", None)
        return [pattern for pattern in patterns if not matches(pattern, names)]

    def saying(self, sharded: Mapping[str, int] | None, replicated: Sequence[str] | bool) -> Group:
        """The same rank, with what it says about its tensors."""
        return replace(self, sharded=_dims(sharded), replicated=_patterns(replicated))


def matches(pattern: str, names: Collection[str]) -> bool:
    """Whether a pattern matches one of these names."""
    return pattern in names or any(fnmatchcase(name, pattern) for name in names)


def group_of(rank: int | None, world_size: int | None) -> Group:
    """Judges who a caller is."""
    if rank is None or world_size is None:
        missing = "rank" if rank is None else "world_size"
        raise InvalidInput(f"rank and world_size belong together; {missing} is missing")
    for name, value in (("rank", rank), ("world_size", world_size)):
        if type(value) is not int:
            raise InvalidInput(f"{name} is a number, not {value!r}")
    if not 0 < world_size <= WORLD_SIZE_MAX:
        raise InvalidInput(f"world_size is 1 to {WORLD_SIZE_MAX}, not {world_size}")
    if not 0 <= rank < world_size:
        raise InvalidInput(f"of {world_size} ranks, rank is 0 to {world_size - 1}, not {rank}")
    return Group(rank, world_size)


def check_tool(tool: str) -> None:
    """Files of ranks are in our own format."""
    if tool not in ("auto", "direct", "buffered"):
        what = f"several ranks can't save with the tool {tool!r}"
        raise InvalidInput(f"{what}; use 'auto', 'direct' or 'buffered'")


def _dims(sharded: Mapping[str, int] | None) -> tuple[tuple[str, int], ...]:
    if sharded is None:
        return ()
    if not isinstance(sharded, Mapping):
        hint = 'a dict from patterns of names to dimensions, such as {"*.weight": 0}'
        raise InvalidInput(f"sharded is {hint}, not {sharded!r}")
    for pattern, dim in sharded.items():
        if not isinstance(pattern, str):
            raise InvalidInput(f"sharded has patterns of names as keys, not {pattern!r}")
        if type(dim) is not int:
            raise InvalidInput(f"sharded gives {pattern!r} the dimension {dim!r}; it is a number")
    return tuple(sharded.items())


def _patterns(replicated: Sequence[str] | bool) -> tuple[str, ...]:
    if isinstance(replicated, bool):
        return ("*",) if replicated else ()
    if isinstance(replicated, str):
        return (replicated,)
    if not isinstance(replicated, Sequence):
        raise InvalidInput(f"replicated is True or a list of patterns, not {replicated!r}")
    for pattern in replicated:
        if not isinstance(pattern, str):
            raise InvalidInput(f"replicated is a list of patterns of names; it has {pattern!r}")
    return tuple(replicated)
