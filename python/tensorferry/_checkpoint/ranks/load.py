"""From an index and its files to the object of one rank, of as many as saved it or of others."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch

from tensorferry._checkpoint.location import placer, without_data
from tensorferry._checkpoint.opened import Opened, as_keys
from tensorferry._checkpoint.ranks.index import (
    Index,
    Private,
    Replicated,
    Sharded,
    WeightMap,
    read,
    shard_shape,
)
from tensorferry._checkpoint.ranks.names import beside
from tensorferry._checkpoint.ranks.pieces import Cut, Fetch
from tensorferry._checkpoint.ranks.words import open_part
from tensorferry._checkpoint.recognise import is_index, recognise
from tensorferry._checkpoint.tools import LoadOptions
from tensorferry._errors import Corrupt, InvalidInput, NotFound
from tensorferry._kinds import outside_of_transforms
from tensorferry._structure import build, names, select

ATTEMPTS_MAX = 3
"""How often an index is read again that was replaced while its files were read."""

OPEN_MAX = 32
"""Files that are kept open from when they are judged until their tensors are loaded, so that a save
meanwhile does not matter. Others are opened again: of many ranks, not all can be open at once."""


def load(path: str, options: LoadOptions, *, rank: int, world_size: int) -> Any:
    """Loads the object of rank ``rank`` of ``world_size``; rank 0 of 1 gets everything.

    What was not saved by ranks is the same for all of them.
    """
    path = os.path.realpath(path)
    for attempt in range(ATTEMPTS_MAX):
        if recognise(path) != "index":
            from tensorferry._checkpoint import run

            return run.load_as_found(path, options)
        index = read(path)
        try:
            with outside_of_transforms():
                if isinstance(index, WeightMap):
                    return _load_whole(path, index, options)
                return _Loading(path, index, options, rank, world_size).object()
        except NotFound:
            # A file that the index names is not there, or no longer.
            if attempt + 1 == ATTEMPTS_MAX or _unchanged(path, index):
                raise
    raise AssertionError


def _unchanged(path: str, index: Index | WeightMap) -> bool:
    return is_index(path) and read(path) == index


def missing(path: str, index_path: str) -> NotFound:
    """An index names a file that is not there."""
    return NotFound(f"the checkpoint lacks a file: {path} (file: {index_path})")


def check_tensor(part: Opened, rank: int, name: str, index: Index, path: str) -> None:
    """Whether the file of a rank has of a tensor what the index says."""
    tensor = index.tensors[name]
    if isinstance(tensor, Private):
        return
    shape = tensor.shape
    if isinstance(tensor, Sharded):
        shape = shard_shape(tensor, rank, index.world_size)
    number = part.numbers.get(name)
    if number is None or part.tensors[number][1:3] != (tensor.dtype, shape):
        what = f"the tensor {name!r} is not {tensor.dtype} {shape} in the file of rank {rank}"
        raise Corrupt(f"{what}, as the index says (file: {path})")


@dataclass(slots=True)
class _Share:
    """What a load takes from the file of one rank."""

    whole: list[str] = field(default_factory=list)
    cuts: list[Cut] = field(default_factory=list)


class _Loading:
    """One load."""

    def __init__(
        self, path: str, index: Index, options: LoadOptions, rank: int, world_size: int
    ) -> None:
        self.path = path
        self.index = index
        self.options = options
        self.rank = rank
        self.world_size = world_size
        self.same = world_size == index.world_size
        """As many ranks as saved it: each gets exactly its own object."""
        self.home = rank if self.same else 0
        """The rank whose object it is, apart from its tensors."""
        self.opened: dict[int, Opened] = {}

    def object(self) -> Any:
        node = self.part(self.home).node()
        if self.options.keys is not None:
            node = {"dict": select(node, as_keys(self.options.keys))}
        elif not self.same:
            self.refuse_strays()
        work = self.divided(names(node))
        for rank, share in work.items():
            self.check(rank, [*share.whole, *(cut.name for cut in share.cuts)])
        fetch = _fetch(node, self.options)
        tensors: dict[str, torch.Tensor] = {}
        for rank, share in work.items():
            part = self.part(rank)
            tensors |= fetch.whole(part, share.whole)
            fetch.cut(part, rank, share.cuts, tensors)
            self.opened.pop(rank, None)
        return build(node, tensors.pop, placer(self.options.map_location))

    def divided(self, wanted: Iterable[str]) -> dict[int, _Share]:
        """What is to be had from the files of which ranks."""
        work: defaultdict[int, _Share] = defaultdict(_Share)
        for name in wanted:
            tensor = self.index.tensors.get(name)
            if tensor is None:
                raise self.corrupt(f"the index does not know the tensor {name!r}")
            if isinstance(tensor, Sharded) and not self.same:
                cut = Cut(name, tensor, self.index.world_size, self.rank, self.world_size)
                for rank in cut.holders:
                    work[rank].cuts.append(cut)
            else:
                work[self.keeper(name, tensor)].whole.append(name)
        return work

    def keeper(self, name: str, tensor: Sharded | Replicated | Private) -> int:
        """The rank whose file has a tensor for us."""
        if isinstance(tensor, Replicated):
            return tensor.rank
        if isinstance(tensor, Private) and not (self.same or tensor.equal or tensor.own):
            raise self.not_the_same(name)
        return self.home

    def check(self, rank: int, wanted: Iterable[str]) -> None:
        """Whether a file has of these tensors what the index says."""
        part = self.part(rank)
        for name in wanted:
            check_tensor(part, rank, name, self.index, self.path)

    def refuse_strays(self) -> None:
        """What rank 0 does not have would be lost."""
        for name, tensor in self.index.tensors.items():
            if isinstance(tensor, Private) and tensor.ranks[0] != 0 and not tensor.own:
                raise self.not_the_same(name)

    def not_the_same(self, name: str) -> InvalidInput:
        saved = f"{self.index.world_size} ranks saved it, and {self.world_size} load it"
        hint = (
            "save it as sharded={name: dimension} or, if it is the same on all, as replicated; "
            f"or load with world_size={self.index.world_size}, or keys= without it"
        )
        what = f"{name!r} is not the same on all ranks, nor sharded"
        return InvalidInput(f"can't load for another number of ranks: {saved}, but {what}; {hint}")

    def part(self, rank: int) -> Opened:
        """A rank's file."""
        if rank in self.opened:
            return self.opened[rank]
        path = beside(self.path, self.index.files[rank])
        saved = (self.index.token, rank, self.index.world_size)
        try:
            opened, _ = open_part(path, *saved, verify=self.options.verify)
        except NotFound:
            raise missing(path, self.path) from None
        if len(self.opened) < OPEN_MAX:
            self.opened[rank] = opened
        return opened

    def corrupt(self, why: str) -> Corrupt:
        return Corrupt(f"{why} (file: {self.path})")


def _fetch(node: Any, options: LoadOptions) -> Fetch:
    """How the tensors of a tree are taken; arrays and long bytes always have their data."""
    device = without_data(options.map_location)
    if device is None:
        return Fetch(options.mmap, options.verify)
    bare = frozenset(names(node, tags=("tensor",)))
    return Fetch(options.mmap, options.verify, bare, device)


def _load_whole(path: str, index: WeightMap, options: LoadOptions) -> Any:
    """Loads plain files: a dict of all tensors."""
    node: Any = {"dict": {name: {"tensor": name} for name in index.files}}
    if options.keys is not None:
        node = {"dict": select(node, as_keys(options.keys))}
    by_file: dict[str, list[str]] = {}
    for name in names(node):
        by_file.setdefault(beside(path, index.files[name]), []).append(name)
    fetch = _fetch(node, options)
    tensors: dict[str, torch.Tensor] = {}
    for file, wanted in by_file.items():
        try:
            opened = Opened(file, verify=options.verify)
        except NotFound:
            raise missing(file, path) from None
        _check_names(opened, wanted)
        tensors |= fetch.whole(opened, wanted)
    return build(node, tensors.pop, placer(options.map_location))


def _check_names(opened: Opened, wanted: Iterable[str]) -> None:
    for name in wanted:
        if name not in opened.numbers:
            what = f"the index says that the tensor {name!r} is in this file, but it is not"
            raise Corrupt(f"{what} (file: {opened.path})")
