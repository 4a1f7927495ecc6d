"""The index: which files make up a checkpoint, and which tensors are where.

It is outside bytes, and judged by the core before it comes here: files are plain names of files
beside the index, one for each rank, every tensor is of a known kind with ranks that exist, and the
checksum is right. What the files hold is compared when they are opened.
"""

from __future__ import annotations

import codecs
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from tensorferry import _lib
from tensorferry._checkpoint.ranks.names import beside, rank_file
from tensorferry._checkpoint.ranks.split import chunk_sizes
from tensorferry._checkpoint.recognise import is_index
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
        raw = _lib.seal_index(self.text())
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
    except (Corrupt, Unsupported) as error:
        raise type(error)(f"{error} (file: {path})") from None


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
        found = read(path) if is_index(path) else None
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
    """Reads the bytes of an index; the core judges them."""
    if len(raw) > INDEX_BYTES_MAX:
        raise Corrupt(f"an index has at most {INDEX_BYTES_MAX} bytes")
    _lib.judge_index(raw)
    said = json.loads(raw.removeprefix(codecs.BOM_UTF8))
    if "tensorferry_index" not in said:
        return _weight_map(said["weight_map"])
    world_size = said["world_size"]
    tensors = {name: _tensor(kept, world_size) for name, kept in said["tensors"].items()}
    return Index(said["token"], said["generation"], said["files"], tensors)


def _weight_map(files: dict[str, str]) -> WeightMap:
    pickled = next((file for file in files.values() if file.endswith(".bin")), None)
    if pickled is not None:
        what = f"the index is of files of torch.save, such as {pickled}, which are no safetensors"
        raise Unsupported(f"{what}; load each of them by ferry.load, and put the dicts together")
    return WeightMap(files)


def _tensor(said: dict[str, Any], world_size: int) -> Tensor:
    kind = said["kind"]
    if kind == "private":
        ranks = said.get("ranks", ())
        some = 0 < len(ranks) < world_size
        return Private(ranks if some else range(world_size), said["equal"], said.get("own", False))
    if kind == "replicated":
        return Replicated(said["dtype"], said["shape"], said["rank"])
    return Sharded(said["dtype"], said["shape"], said["dim"])


def _said(tensor: Tensor, world_size: int) -> dict[str, Any]:
    if isinstance(tensor, Private):
        some = {"ranks": list(tensor.ranks)} if len(tensor.ranks) < world_size else {}
        own = {"own": True} if tensor.own else {}
        return {"kind": "private", **some, "equal": tensor.equal, **own}
    said = {"dtype": tensor.dtype, "shape": tensor.shape}
    if isinstance(tensor, Replicated):
        return {"kind": "replicated", **said, "rank": tensor.rank}
    return {"kind": "sharded", **said, "dim": tensor.dim}


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
    old = existing(real) if is_index(real) else None
    yield
    remove_replaced(old, None, real)


def _own(index: Index, path: str) -> set[str]:
    """The files of an index, had it been saved to a path."""
    ranks = range(index.world_size)
    return {rank_file(path, rank, index.world_size, index.token) for rank in ranks}
