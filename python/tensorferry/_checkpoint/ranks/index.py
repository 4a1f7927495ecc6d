"""The index: which files make up a checkpoint, and which tensors are where.

It is outside bytes. What comes out of ``parse`` is consistent in itself: files are plain names of
files beside the index, one for each rank, and every tensor is of a known kind with ranks that exist
and sizes that add up. What the files hold is compared when they are opened.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from tensorferry import _lib
from tensorferry._checkpoint.ranks.group import WORLD_SIZE_MAX
from tensorferry._checkpoint.ranks.names import TOKEN, beside, is_plain, rank_file
from tensorferry._checkpoint.ranks.split import chunk_sizes
from tensorferry._checkpoint.recognise import recognise
from tensorferry._checkpoint.tools import put
from tensorferry._errors import (
    Corrupt,
    Error,
    InvalidInput,
    Io,
    NotFound,
    PermissionDenied,
    Unsupported,
)
from tensorferry._structure.flatten import DIMENSIONS_MAX

VERSION = 1

_BEGIN = b'{"tensorferry_index"'

INDEX_BYTES_MAX = 100_000_000
"""Longer ones are refused, as headers are."""


@dataclass(frozen=True, slots=True)
class Sharded:
    """Cut along ``dim``; ``shape`` is that of the whole."""

    dtype: str
    shape: list[int]
    dim: int


@dataclass(frozen=True, slots=True)
class Replicated:
    """The same on every rank, and stored by one."""

    dtype: str
    shape: list[int]
    rank: int


@dataclass(frozen=True, slots=True)
class Private:
    """Stored by each of ``ranks``."""

    ranks: Sequence[int]
    equal: bool
    """Whether all ranks have it, and it is the same on all."""
    own: bool = False
    """Whether other numbers of ranks get it as rank 0 has it, if it does."""


Tensor: TypeAlias = Sharded | Replicated | Private


@dataclass(frozen=True, slots=True)
class Index:
    """What the index of a checkpoint of several ranks says."""

    token: str
    generation: int
    files: list[str]
    """By rank."""
    tensors: dict[str, Tensor]

    @property
    def world_size(self) -> int:
        """How many ranks saved it."""
        return len(self.files)

    def text(self) -> str:
        """As it stands in the file."""
        return json.dumps(
            {
                "tensorferry_index": VERSION,
                "token": self.token,
                "generation": self.generation,
                "world_size": self.world_size,
                "files": self.files,
                "tensors": {
                    name: _said(tensor, self.world_size) for name, tensor in self.tensors.items()
                },
                "weight_map": self._weight_map(),
            },
            ensure_ascii=False,
        )

    def encoded(self) -> bytes:
        """The same, unless no reader would take it."""
        raw = self.text().encode()
        if len(raw) > INDEX_BYTES_MAX:
            what = f"the index of the checkpoint would have {len(raw)} bytes"
            hint = "save fewer tensors, or tensors with shorter names"
            raise InvalidInput(f"{what}, and {INDEX_BYTES_MAX} are the most; {hint}")
        return raw

    def _weight_map(self) -> dict[str, str]:
        """Tensors that are whole in a file, for readers that know no ranks."""
        whole = {}
        for name, tensor in self.tensors.items():
            if isinstance(tensor, Replicated):
                whole[name] = self.files[tensor.rank]
            elif isinstance(tensor, Private) and tensor.equal:
                whole[name] = self.files[0]
        return whole


@dataclass(frozen=True, slots=True)
class WeightMap:
    """An index as others write it: plain safetensors files, each tensor whole in one of them."""

    files: dict[str, str] = field(default_factory=dict)
    """By the names of tensors."""


def read(path: str) -> Index | WeightMap:
    """Reads an index, or says what is wrong with it."""
    raw = _beginning(path, INDEX_BYTES_MAX + 1)
    try:
        return parse(raw)
    except Corrupt as error:
        raise Corrupt(f"{error} (file: {path})") from None


def _beginning(path: str, size: int) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(size)
    except OSError as error:
        what = f"can't read what is there: {error.strerror} (file: {path})"
        raise _KINDS.get(type(error), Io)(what, errno=error.errno) from error


_KINDS: dict[type[OSError], type[Error]] = {
    FileNotFoundError: NotFound,
    PermissionError: PermissionDenied,
}


def existing(path: str) -> Index | None:
    """The index of ours that is there, if one is, and makes sense."""
    if not os.path.isfile(path):
        # A pipe would keep who opens it.
        return None
    try:
        # What can't be read may be an index all the same; to go on would be to guess.
        _beginning(path, 1)
        found = read(path) if recognise(path) == "index" else None
    except (NotFound, Corrupt, Unsupported):
        return None
    return found if isinstance(found, Index) else None


def replaceable(path: str) -> Index | None:
    """The same, for who is going to replace it; says, in the words of every save and before a file
    of a rank is written, if nothing can be saved there."""
    _lib.Draft(path).discard()
    return existing(path)


def latest_generation(path: str) -> int:
    """That of the newest index beside a path, if its files were saved to this path: one that was
    moved keeps its files, which nothing new may be named like."""
    latest = 0
    try:
        with os.scandir(os.path.dirname(path)) as entries:
            for entry in entries:
                latest = max(latest, _generation(entry, path))
    except OSError:
        # A directory that can't be listed can be saved to.
        return latest
    return latest


def _generation(entry: os.DirEntry[str], path: str) -> int:
    try:
        if not entry.is_file() or _beginning(entry.path, len(_BEGIN)) != _BEGIN:
            return 0
        index = existing(entry.path)
    except OSError:
        # The error of one file must not hide the others.
        return 0
    return index.generation if index and _own(index, path) & set(index.files) else 0


def write(raw: bytes, path: str, *, durable: bool) -> None:
    """Puts an index in its place, whole or not at all."""
    draft = _lib.Draft(path)
    try:
        put(lambda file: file.write_bytes(raw), draft.path, path)
        draft.publish(durable)
    finally:
        draft.discard()


def parse(raw: bytes) -> Index | WeightMap:
    """Judges the bytes of an index."""
    if len(raw) > INDEX_BYTES_MAX:
        raise Corrupt(f"an index has at most {INDEX_BYTES_MAX} bytes")
    try:
        said = json.loads(raw, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise Corrupt(f"the file is neither a checkpoint nor an index: {error}") from None
    if type(said) is dict and "tensorferry_index" in said:
        return _index(said)
    if type(said) is dict and "weight_map" in said:
        return _weight_map(said["weight_map"])
    raise Corrupt("the file is JSON, but no index of a checkpoint")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("a key stands twice")
    return made


def _index(said: dict[str, Any]) -> Index:
    version = said["tensorferry_index"]
    if type(version) is int and version > VERSION:
        hint = f"in version {version} of its index; upgrade to load it"
        raise Unsupported(f"the checkpoint was saved by a newer tensorferry, {hint}")
    _check(type(version) is int and version >= 1, "its version is no positive integer")
    token: Any = said.get("token")
    _check(type(token) is str and TOKEN.fullmatch(token), "its token makes no sense")
    generation: Any = said.get("generation")
    _check(_is_count(generation), "its generation is no number")
    files: Any = said.get("files")
    _check(type(files) is list and files, "it names no files")
    for name in files:
        _check_file(name)
    _check(len(set(files)) == len(files), "it names a file twice")
    _check(len(files) <= WORLD_SIZE_MAX, "it names too many files")
    _check(said.get("world_size") == len(files), "it does not name a file for each rank")
    tensors: Any = said.get("tensors")
    _check(type(tensors) is dict, "it has no tensors")
    judged = {name: _tensor(name, tensor, len(files)) for name, tensor in tensors.items()}
    return Index(token, generation, files, judged)


def _tensor(name: str, said: Any, world_size: int) -> Tensor:
    what = f"what it says of the tensor {name!r} makes no sense"
    _check(type(said) is dict, what)
    kind = said.get("kind")
    if kind == "private":
        ranks = _ranks(said, world_size, what)
        equal, own = said.get("equal"), said.get("own", False)
        _check(type(equal) is bool and type(own) is bool, what)
        _check(not equal or len(ranks) == world_size, what)
        return Private(ranks, equal, own)
    dtype, shape = said.get("dtype"), said.get("shape")
    _check(type(dtype) is str and type(shape) is list and all(map(_is_count, shape)), what)
    _check(len(shape) <= DIMENSIONS_MAX, what)
    if kind == "replicated":
        rank = said.get("rank")
        _check(_is_count(rank) and rank < world_size, what)
        return Replicated(dtype, shape, rank)
    dim = said.get("dim")
    _check(kind == "sharded" and _is_count(dim) and dim < len(shape), what)
    return Sharded(dtype, shape, dim)


def _ranks(said: dict[str, Any], world_size: int, what: str) -> Sequence[int]:
    """Those that have a private tensor: all, if none are named."""
    if "ranks" not in said:
        return range(world_size)
    ranks = said["ranks"]
    _check(type(ranks) is list and ranks, what)
    _check(all(_is_count(rank) and rank < world_size for rank in ranks), what)
    _check(ranks == sorted(set(ranks)), what)
    return ranks if len(ranks) < world_size else range(world_size)


def _said(tensor: Tensor, world_size: int) -> dict[str, Any]:
    if isinstance(tensor, Private):
        some = {"ranks": list(tensor.ranks)} if len(tensor.ranks) < world_size else {}
        own = {"own": True} if tensor.own else {}
        return {"kind": "private", **some, "equal": tensor.equal, **own}
    said = {"dtype": tensor.dtype, "shape": tensor.shape}
    if isinstance(tensor, Replicated):
        return {"kind": "replicated", **said, "rank": tensor.rank}
    return {"kind": "sharded", **said, "dim": tensor.dim}


def _weight_map(said: Any) -> WeightMap:
    _check(type(said) is dict, "its weight_map is no object")
    for name in said.values():
        _check_file(name)
    return WeightMap(said)


def _check_file(name: Any) -> None:
    _check(is_plain(name), f"{name!r} is no name of a file beside it")


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 63


def _check(good: object, why: str) -> None:
    if not good:
        raise Corrupt(f"the index of the checkpoint is damaged: {why}")


def shard_shape(tensor: Sharded, rank: int, world_size: int) -> list[int]:
    """The shape of a rank's part."""
    shape = list(tensor.shape)
    shape[tensor.dim] = chunk_sizes(shape[tensor.dim], world_size)[rank]
    return shape


def remove_replaced(old: Index | None, new: Index | None, path: str) -> None:
    """Removes the files that only the old index names, and that were saved to this path: an index
    that was copied shares its files with another one."""
    if old is not None:
        remove(_own(old, path) & set(old.files) - set(new.files if new else ()), path)


def remove(files: Iterable[str], path: str) -> None:
    """Removes files beside an index. What can't be removed is left behind."""
    for name in files:
        with suppress(OSError):
            os.unlink(beside(path, name))


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[None]:
    """Around the save of a plain file: if that replaces an index, its files go with it."""
    real = os.path.realpath(path)
    old = existing(real) if recognise(real) == "index" else None
    yield
    remove_replaced(old, None, real)


def _own(index: Index, path: str) -> set[str]:
    """The files of an index, had it been saved to a path."""
    ranks = range(index.world_size)
    return {rank_file(path, rank, index.world_size, index.token) for rank in ranks}
