"""What of an object one rank stores, and what it says about the rest.

A tensor is *sharded* (each rank stores its part), *replicated* (one of the ranks stores it, and all
work out the same one) or *private* (each rank stores its own).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from tensorferry._checkpoint.ranks.group import Group
from tensorferry._checkpoint.ranks.split import share_out
from tensorferry._errors import InvalidInput
from tensorferry._structure import Flat, Stored
from tensorferry._structure.select import leaves


@dataclass(frozen=True, slots=True)
class Part:
    """A rank's part."""

    flat: Flat
    """Without what others store."""
    sharded: dict[str, int]
    replicated: list[str]
    unmatched: list[str]
    """Patterns that match none of the names here."""

    def with_words(self, **words: Any) -> Flat:
        """What to save: the file says whose it is."""
        words |= {"sharded": self.sharded, "replicated": self.replicated}
        if self.unmatched:
            words["unmatched"] = self.unmatched
        return replace(self.flat, beside=self.flat.beside | {"rank": words})


def divide(flat: Flat, group: Group) -> Part:
    """Finds the part of ``group.rank``."""
    sharded: dict[str, int] = {}
    replicated: dict[str, int] = {}
    views, tied = _viewed(flat), _tied(flat)
    for stored in flat.stored:
        if isinstance(stored.source, bytes):
            # Bytes of Python are no tensor: each rank keeps its own, as it does shorter ones.
            continue
        names = tied.get(stored.name, [stored.name])
        dim = _one_dim(group, names)
        if dim is not None:
            sharded[stored.name] = _judged(stored, dim, views)
        elif any(map(group.is_replicated, names)):
            replicated[stored.name] = stored.nbytes
    shares = share_out(replicated, group.world_size)
    here: list[Stored] = []
    elsewhere: list[Stored] = []
    for stored in flat.stored:
        own = shares.get(stored.name, group.rank) == group.rank
        (here if own else elsewhere).append(stored)
    part = replace(
        flat,
        stored=here,
        nbytes=sum(stored.nbytes for stored in here),
        beside={"elsewhere": [[t.name, t.dtype, list(t.shape)] for t in elsewhere]},
    )
    return Part(part, sharded, list(replicated), group.unmatched({*tied, *_names(flat)}))


def _names(flat: Flat) -> set[str]:
    return {stored.name for stored in flat.stored}


def _viewed(flat: Flat) -> set[str]:
    """Stored tensors of which the object has views."""
    return {leaf["name"] for leaf in leaves(flat.object) if type(leaf) is dict and "shape" in leaf}


def _tied(flat: Flat) -> dict[str, list[str]]:
    """All names of tensors that are the same one, by each of these names."""
    groups: dict[tuple[str, int], list[str]] = {}
    for leaf in leaves(flat.object):
        if type(leaf) is dict and "memory" in leaf:
            groups.setdefault(("memory", leaf["memory"]), []).append(leaf["name"])
        elif type(leaf) is dict and "object" in leaf:
            groups.setdefault(("object", leaf["object"]), []).append(leaf["name"])
    return {name: names for names in groups.values() for name in names}


def _one_dim(group: Group, names: list[str]) -> int | None:
    """Along which dimension a tensor of these names is cut: what is said of one is said of all."""
    dims = {name: dim for name in names if (dim := group.dim(name)) is not None}
    if len(set(dims.values())) > 1:
        said = ", ".join(f"{name!r} along {dim}" for name, dim in dims.items())
        raise InvalidInput(f"can't save one tensor as sharded in several ways: {said}")
    return next(iter(dims.values()), None)


def _judged(stored: Stored, dim: int, views: set[str]) -> int:
    """The dimension, counted from the front."""
    if stored.name in views:
        what = f"can't save {stored.name!r} as sharded: it shares memory with other tensors"
        raise InvalidInput(f"{what}; save clones, or leave it out of sharded")
    dimensions = len(stored.source.shape)  # type: ignore[union-attr]
    if not -dimensions <= dim < dimensions:
        raise InvalidInput(
            f"can't save {stored.name!r} as sharded along dimension {dim}: it has {dimensions}"
        )
    return dim % dimensions
