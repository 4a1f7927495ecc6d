"""From an index and its files to the object of one rank, of as many as saved it or of others."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import torch

from tensorferry._checkpoint.location import is_meta, placer
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
from tensorferry._checkpoint.recognise import recognise
from tensorferry._checkpoint.tools import LoadOptions
from tensorferry._errors import Corrupt, InvalidInput, NotFound
from tensorferry._structure import build, names, select

ATTEMPTS_MAX = 3
"""How often an index is read again that was replaced while its files were opened."""


def load(path: str, options: LoadOptions, *, rank: int, world_size: int) -> Any:
    """Loads the object of rank ``rank`` of ``world_size``; rank 0 of 1 gets everything.

    What was not saved by ranks is the same for all of them.
    """
    path = os.path.realpath(path)
    for attempt in range(ATTEMPTS_MAX):
        if recognise(path) != "index":
            from tensorferry._checkpoint import run

            return run.load(path, options)
        index = read(path)
        try:
            if isinstance(index, WeightMap):
                return _load_whole(path, index, options)
            return _Loading(path, index, options, rank, world_size).object()
        except _Missing as missing:
            if attempt + 1 == ATTEMPTS_MAX or _unchanged(path, index):
                raise NotFound(str(missing)) from None
    raise AssertionError


class _Missing(Exception):
    """A file that the index names is not there."""


def _unchanged(path: str, index: Index | WeightMap) -> bool:
    return recognise(path) == "index" and read(path) == index


def _missing(path: str, index_path: str) -> _Missing:
    return _Missing(f"the checkpoint lacks a file: {path} (file: {index_path})")


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
        whole: dict[int, list[str]] = {}
        cuts: list[Cut] = []
        for name in names(node):
            tensor = self.index.tensors.get(name)
            if tensor is None:
                raise self.corrupt(f"the index does not know the tensor {name!r}")
            if isinstance(tensor, Sharded) and not self.same:
                cuts.append(Cut(name, tensor, self.index.world_size, self.rank, self.world_size))
            else:
                whole.setdefault(self.keeper(name, tensor), []).append(name)
        fetch = _fetch(node, self.options)
        tensors: dict[str, torch.Tensor] = {}
        for rank, wanted in whole.items():
            tensors |= fetch.whole(self.part(rank), wanted)
        for cut in cuts:
            for rank in {cut.witness, *cut.ranges}:
                self.check(cut.name, cut.tensor, rank)
        tensors |= fetch.cut(cuts, self.part)
        return build(node, tensors.pop, placer(self.options.map_location))

    def keeper(self, name: str, tensor: Sharded | Replicated | Private) -> int:
        """The rank whose file has a tensor for us."""
        if isinstance(tensor, Replicated):
            self.check(name, tensor, tensor.rank)
            return tensor.rank
        if isinstance(tensor, Sharded):
            self.check(name, tensor, self.home)
        elif not (self.same or tensor.equal or tensor.own):
            raise self.not_the_same(name)
        return self.home

    def check(self, name: str, tensor: Sharded | Replicated, rank: int) -> None:
        """Whether a file has of a tensor what the index says."""
        part = self.part(rank)
        shape = tensor.shape
        if isinstance(tensor, Sharded):
            shape = shard_shape(tensor, rank, self.index.world_size)
        number = part.numbers.get(name)
        if number is None or part.tensors[number][1:3] != (tensor.dtype, shape):
            what = f"the tensor {name!r} is not {tensor.dtype} {shape} in the file of rank {rank}"
            raise self.corrupt(f"{what}, as the index says")

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
        if rank not in self.opened:
            path = beside(self.path, self.index.files[rank])
            try:
                self.opened[rank], _ = open_part(
                    path,
                    self.index.token,
                    rank,
                    self.index.world_size,
                    verify=self.options.verify,
                )
            except NotFound:
                raise _missing(path, self.path) from None
        return self.opened[rank]

    def corrupt(self, why: str) -> Corrupt:
        return Corrupt(f"{why} (file: {self.path})")


def _fetch(node: Any, options: LoadOptions) -> Fetch:
    """How the tensors of a tree are taken; arrays and long bytes always have their data."""
    bare = names(node, tags=("tensor",)) if is_meta(options.map_location) else ()
    return Fetch(mmap=options.mmap, verify=options.verify, bare=frozenset(bare))


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
            raise _missing(file, path) from None
        _check_names(opened, wanted)
        tensors |= fetch.whole(opened, wanted)
    return build(node, tensors.pop, placer(options.map_location))


def _check_names(opened: Opened, wanted: Iterable[str]) -> None:
    for name in wanted:
        if name not in opened.numbers:
            what = f"the index says that the tensor {name!r} is in this file, but it is not"
            raise Corrupt(f"{what} (file: {opened.path})")
