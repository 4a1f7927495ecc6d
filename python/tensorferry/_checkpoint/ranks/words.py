"""What the file of a rank says about itself, beside the structure of its object."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tensorferry._checkpoint.opened import Opened
from tensorferry._checkpoint.ranks.names import TOKEN
from tensorferry._errors import Corrupt
from tensorferry._structure import Structure, parse


@dataclass(frozen=True, slots=True)
class Words:
    """Whose file it is."""

    token: str
    rank: int
    world_size: int
    begun: float
    """When the save was begun, in seconds since 1970."""
    sharded: dict[str, int]
    replicated: list[str]
    unmatched: list[str]
    """Patterns of sharded and replicated that match no name of this rank's."""
    elsewhere: dict[str, tuple[str, list[int]]]
    """Dtype and shape of tensors that another rank stores."""

    @classmethod
    def of(cls, opened: Opened) -> Words:
        """Judges the words of a file."""
        text = opened.metadata.get("tensorferry")
        structure = None if text is None else parse(text)
        said = None if structure is None else structure.beside.get("rank")
        if structure is None or type(said) is not dict:
            what = "the file is not a part of a checkpoint of several ranks"
            raise Corrupt(f"{what} (file: {opened.path})")
        if not _makes_sense(said):
            what = "what the file says about its rank makes no sense"
            raise Corrupt(f"{what} (file: {opened.path})")
        return cls(
            token=said["token"],
            rank=said["rank"],
            world_size=said["world_size"],
            begun=said["begun"],
            sharded=said["sharded"],
            replicated=said["replicated"],
            unmatched=said.get("unmatched", []),
            elsewhere=_elsewhere(structure),
        )


def open_part(
    path: str, token: str, rank: int, world_size: int, *, verify: bool = True
) -> tuple[Opened, Words]:
    """Opens the file of a rank, and makes sure that it is the one that is meant."""
    opened = Opened(path, verify=verify)
    words = Words.of(opened)
    if (words.token, words.rank, words.world_size) != (token, rank, world_size):
        meant = f"rank {rank} of {world_size} in save {token}"
        found = f"rank {words.rank} of {words.world_size} in save {words.token}"
        raise Corrupt(f"the file is that of {found}, not of {meant} (file: {path})")
    return opened, words


def _elsewhere(structure: Structure) -> dict[str, tuple[str, list[int]]]:
    # Judged by the core.
    said = structure.beside.get("elsewhere", [])
    return {name: (dtype, shape) for name, dtype, shape in said}


def _makes_sense(said: dict[str, Any]) -> bool:
    token, sharded, replicated = said.get("token"), said.get("sharded"), said.get("replicated")
    unmatched = said.get("unmatched", [])
    return (
        type(token) is str
        and TOKEN.fullmatch(token) is not None
        and type(said.get("rank")) is int
        and type(said.get("world_size")) is int
        and type(said.get("begun")) in (int, float)
        and type(sharded) is dict
        and all(type(dim) is int for dim in sharded.values())
        and all(
            type(names) is list and all(type(name) is str for name in names)
            for names in (replicated, unmatched)
        )
    )
