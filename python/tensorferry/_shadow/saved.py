"""What autograd keeps of a forward.

A parameter, or a view of one, is kept as its name and shape: backward finds it wherever it is then.
Anything else goes to the hooks that were there before ours, or stays where it is. What stays is on
the device, and counts as its work; what other hooks have taken away, as ``ActivationOffload`` does,
does not.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from tensorferry._activations.packed import Kept, keep
from tensorferry._shadow.host_memory import Slot
from tensorferry._shadow.layers import Layer

Pack = Callable[[torch.Tensor], Any]
Unpack = Callable[[Any], torch.Tensor]


@dataclass(slots=True)
class ParameterView:
    """A view of a parameter."""

    layer: Layer
    slot: Slot
    dtype: torch.dtype
    shape: torch.Size
    stride: tuple[int, ...]
    offset: int
    version: int
    read_bytes: int
    """What a kernel reads that uses it in place."""

    def of(self, parameter: torch.Tensor) -> torch.Tensor:
        """The view, where the parameter is now."""
        empty = torch.empty(0, dtype=self.dtype)
        return empty.set_(parameter.untyped_storage(), self.offset, self.shape, self.stride)

    def check(self) -> None:
        """Raises what torch raises when a saved tensor was changed in place."""
        now = self.slot.parameter._version
        if now != self.version:
            raise RuntimeError(
                "one of the variables needed for gradient computation has been modified by an "
                f"inplace operation: the parameter {self.slot.name} is at version {now}; expected "
                f"version {self.version} instead."
            )


@dataclass(slots=True)
class OuterPacked:
    """What other hooks have made of a tensor."""

    packed: Any
    unpack: Unpack
    counted: CountedStorage | None
    """If they have left it where it is."""


class CountedStorage:
    """A storage that stays, and counts as work of the device as long as it does."""

    __slots__ = ("_live", "_storage")

    def __init__(self, tensor: torch.Tensor, live: LiveBytes) -> None:
        storage = tensor.untyped_storage()
        self._live = live
        self._storage = storage._cdata
        live.add(self._storage, storage.nbytes())

    def __del__(self) -> None:
        self._live.remove(self._storage)


class LiveBytes:
    """Bytes of what is kept, each storage once, and the most that there were."""

    def __init__(self) -> None:
        self.peak = 0
        self._bytes = 0
        self._held: dict[int, list[int]] = {}
        self._gone: deque[int] = deque()
        """Storages that somebody has stopped to keep. The collector may say so at any moment, also
        in the middle of a count."""

    def add(self, storage: int, nbytes: int) -> None:
        """Somebody keeps this storage."""
        self._forget_gone()
        held = self._held.setdefault(storage, [0, nbytes])
        if held[0] == 0:
            self._bytes += nbytes
            self.peak = max(self.peak, self._bytes)
        held[0] += 1

    def remove(self, storage: int) -> None:
        """And does no longer."""
        self._gone.append(storage)

    def restart(self) -> None:
        """From now on the most counts anew."""
        self._forget_gone()
        self.peak = self._bytes

    def _forget_gone(self) -> None:
        while self._gone:
            storage = self._gone.popleft()
            held = self._held[storage]
            held[0] -= 1
            if held[0] == 0:
                self._bytes -= held[1]
                del self._held[storage]


class Finder(Protocol):
    """Who knows parameters, and where they are."""

    @property
    def live(self) -> LiveBytes:
        """Counts what is saved."""

    def find(self, tensor: torch.Tensor) -> tuple[Layer, Slot] | None:
        """Whose bytes these are."""

    def locate(self, view: ParameterView) -> torch.Tensor:
        """Where the parameter is, for a kernel of backward."""


class Hooks:
    """The two hooks, above those that were there before."""

    def __init__(self, finder: Finder) -> None:
        self._finder = finder
        self._beneath: tuple[Pack, Unpack] | None = top_hooks()
        hooks = torch.autograd.graph.saved_tensors_hooks(self.pack, self.unpack)
        self._hooks: torch.autograd.graph.saved_tensors_hooks | None = hooks
        hooks.__enter__()

    def remove(self) -> None:
        """They must be the last that were put up. The graph holds them on; what is beneath may hold
        all that a forward was given, and goes when the graph does, without the collector."""
        hooks, self._hooks, self._beneath = self._hooks, None, None
        assert hooks is not None
        hooks.__exit__(None, None, None)

    def pack(
        self, tensor: torch.Tensor
    ) -> ParameterView | OuterPacked | tuple[Kept, CountedStorage | None]:
        """Called by autograd when an operation saves a tensor."""
        found = self._finder.find(tensor)
        if found is not None:
            layer, slot = found
            return ParameterView(
                layer,
                slot,
                tensor.dtype,
                tensor.shape,
                tensor.stride(),
                int(tensor.storage_offset()),
                slot.parameter._version,
                layer.read_bytes(tensor.nbytes),
            )
        if self._beneath is not None:
            pack, unpack = self._beneath
            packed = pack(tensor)
            return OuterPacked(packed, unpack, self._count(_left(packed, tensor)))
        return keep(tensor), self._count(tensor)

    def unpack(
        self, packed: ParameterView | OuterPacked | tuple[Kept, CountedStorage | None]
    ) -> torch.Tensor:
        """Called by autograd when backward needs the tensor."""
        match packed:
            case ParameterView():
                packed.check()
                return packed.of(self._finder.locate(packed))
            case OuterPacked():
                return packed.unpack(packed.packed)
        return packed[0].unpack()

    def _count(self, stays: torch.Tensor | None) -> CountedStorage | None:
        has_storage = stays is not None and _has_storage(stays)
        return (
            CountedStorage(stays, self._finder.live) if stays is not None and has_storage else None
        )


def top_hooks() -> tuple[Pack, Unpack] | None:
    """The hooks that autograd would call now."""
    hooks: tuple[Pack, Unpack] | None = torch._C._autograd._top_saved_tensors_default_hooks(True)
    return hooks


def ours_are_on_top() -> bool:
    """Whether they are of this kind."""
    hooks = top_hooks()
    return hooks is not None and isinstance(getattr(hooks[0], "__self__", None), Hooks)


def _left(packed: Any, tensor: torch.Tensor) -> torch.Tensor | None:
    """What stays on the device of a tensor that other hooks have packed."""
    if isinstance(packed, Kept):
        return packed.tensor
    if not isinstance(packed, torch.Tensor) or not _has_storage(packed):
        return None
    same = packed.untyped_storage()._cdata == tensor.untyped_storage()._cdata
    return packed if same else None


def _has_storage(tensor: torch.Tensor) -> bool:
    return tensor.layout is torch.strided and type(tensor) in (torch.Tensor, torch.nn.Parameter)
