"""What autograd keeps in place of a tensor that it saved.

A tensor is packed as the range of bytes of its storage that it covers, and how it lies in that
range. One storage saved several times is one :class:`Stored`. Neither refers to the tensor itself:
one that is the output of the operation that saved it would keep itself alive for ever.

torch checks that a saved tensor was not changed in place before it is used, but not behind hooks.
So that is done here: a tensor without bytes that shares the counter of changes tells how often
its twin was changed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch

from tensorferry import _lib

_EMPTY: dict[torch.dtype, torch.Tensor] = {}


class _Address:
    """While this is held, no other storage gets the same address. It is no part of its owner's
    own end: that comes before weak references to the owner are cleared."""

    __slots__ = ("_storage",)

    def __init__(self, storage: torch.UntypedStorage) -> None:
        self._storage = storage._weak_ref()

    def __del__(self, free=torch.UntypedStorage._free_weak_ref) -> None:  # type: ignore[no-untyped-def]
        free(self._storage)


class Stored:
    """A range of the bytes of a storage, as they were at one version of it."""

    __slots__ = (
        "__weakref__",
        "_address",
        "_begin",
        "_block",
        "_element",
        "activation",
        "start",
        "stop",
        "version",
    )

    def __init__(
        self,
        activation: _lib.Activation,
        storage: torch.UntypedStorage,
        span: tuple[int, int],
        version: int,
        element: str,
    ) -> None:
        self.activation = activation
        self.start, self.stop = span
        self.version = version
        self._element = element
        self._address = _Address(storage)
        self._begin = storage.data_ptr()
        self._block = _lib.BlockWatch(self._begin)

    def covers(
        self, storage: torch.UntypedStorage, span: tuple[int, int], version: int, element: str
    ) -> bool:
        """Whether these bytes are here, at this version. What was stored as float32, and perhaps
        narrowed, is nothing else. A storage that was resized, or got another's bytes, has others
        without a new version."""
        is_exact = self._element != "float32" or element == "float32"
        is_there = self.start <= span[0] and span[1] <= self.stop
        is_same = storage.data_ptr() == self._begin and not self._block.freed
        return is_exact and is_there and self.version == version and is_same


class Watched:
    """A tensor's counter of changes, and what it should say."""

    __slots__ = ("_maker", "_output", "_shape", "_twin", "_version")

    def __init__(self, tensor: torch.Tensor, twin: torch.Tensor) -> None:
        self._twin = twin
        self._version = twin._version
        self._shape = tensor.shape
        self._maker = None if tensor.grad_fn is None else tensor.grad_fn.name()
        self._output = tensor.output_nr

    def check(self) -> None:
        """Raises what torch raises when a saved tensor was changed in place."""
        if self._twin._version != self._version:
            raise RuntimeError(
                "one of the variables needed for gradient computation has been modified by an "
                f"inplace operation: {self._name()}, is at version {self._twin._version}; expected "
                f"version {self._version} instead."
            )

    def _name(self) -> str:
        name = f"[{self._twin.type()} {list(self._shape)}]"
        if self._maker is not None:
            name += f", which is output {self._output} of {self._maker}"
        return name


def extent(shape: Iterable[int], stride: Iterable[int]) -> int:
    """Elements from a tensor's first to its last one, both included; none of its sizes is zero."""
    return 1 + sum((size - 1) * step for size, step in zip(shape, stride, strict=True))


@dataclass(slots=True)
class Kept:
    """A tensor that stays where it is.

    A leaf is kept itself, as torch does: whoever puts other bytes in its place between forward and
    backward, as those who shard parameters do, finds them used. It can't be an output of the
    operation that saved it.
    """

    tensor: torch.Tensor
    watched: Watched | None

    def unpack(self) -> torch.Tensor:
        if self.watched is not None:
            self.watched.check()
        return self.tensor


@dataclass(slots=True)
class Packed:
    """A tensor whose bytes are the core's."""

    stored: Stored
    watched: Watched | None
    offset: int
    """Bytes from the beginning of what is stored."""
    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    """As it is stored."""
    original_stride: tuple[int, ...]
    """As it lay in memory, if that had holes which are not stored."""
    device: torch.device

    def unpack(self) -> torch.Tensor:
        if self.watched is not None:
            self.watched.check()
        memory = self.stored.activation.take()
        count = extent(self.shape, self.stride) * self.dtype.itemsize
        flat = torch.frombuffer(memory, dtype=torch.uint8, count=count, offset=self.offset)
        tensor = flat.view(self.dtype).as_strided(self.shape, self.stride)
        strides = self.original_stride
        if strides != self.stride and self.device.type == "cpu":
            tensor = torch.empty_strided(self.shape, strides, dtype=self.dtype).copy_(tensor)
        return tensor if self.device.type == "cpu" else tensor.to(self.device)


def keep(tensor: torch.Tensor) -> Kept:
    """Leaves a tensor where it is."""
    detached = tensor if tensor.is_leaf else tensor.detach()
    return Kept(detached, None if tensor.is_inference() else Watched(tensor, detached))


def copy(tensor: torch.Tensor) -> Kept:
    """Keeps a tensor without the rest of its storage."""
    return Kept(spanned(tensor), watch(tensor))


def spanned(tensor: torch.Tensor) -> torch.Tensor:
    """A copy of what lies between its first and its last element, with the same strides."""
    flat = tensor.detach().as_strided((extent(tensor.shape, tensor.stride()),), (1,)).clone()
    return flat.as_strided(tensor.shape, tensor.stride())


def watch(tensor: torch.Tensor) -> Watched | None:
    """Watches a tensor for changes without keeping its bytes."""
    if tensor.is_inference():
        return None
    if tensor.dtype not in _EMPTY:
        _EMPTY[tensor.dtype] = torch.empty(0, dtype=tensor.dtype)
    twin = tensor.detach()
    empty = _EMPTY[tensor.dtype]
    twin.data = empty if tensor.device.type == "cpu" else empty.to(tensor.device)
    return Watched(tensor, twin)
