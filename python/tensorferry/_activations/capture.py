"""Which saved tensors are given to the core, and what of them.

Never parameters, nor views and casts of them: they are there anyway, or belong to them. Nothing
small: a transfer costs more than it frees. But a small part of a large storage is copied, because
keeping it would keep all of that; and so is a larger one of less than half, so that what counts is
what is held. Nothing whose bytes are not plainly in a storage: sparse tensors, subclasses, lazily
conjugated ones.

A storage may lose its bytes while they are on their way: it is resized, or another's are put into
its place. What came from torch's own allocator is *lent*, and freed when it is not read any more;
bytes from anywhere else, parts of storages, and all where frees are not seen, are copied.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable

import torch

from tensorferry import _lib
from tensorferry._activations.outside import Uncounted, is_cast_of_parameter
from tensorferry._activations.packed import (
    Kept,
    Packed,
    Stored,
    copy,
    extent,
    keep,
    spanned,
    watch,
)
from tensorferry._kinds import obstacle

_sequence_number: Callable[[], int] = torch._C._autograd._get_sequence_nr
PLAIN = (torch.Tensor, torch.nn.Parameter)


class Capture:
    """The two hooks, and what they remember of storages."""

    def __init__(self, store: _lib.Activations, min_bytes: int) -> None:
        self._store = store
        self._min_bytes = min_bytes
        self.outside = Uncounted(min_bytes)
        self._stored: weakref.WeakValueDictionary[int, Stored] = weakref.WeakValueDictionary()

    def pack(self, tensor: torch.Tensor) -> Kept | Packed:
        """Called by autograd when an operation saves a tensor."""
        if is_parameter(tensor):
            return keep(tensor)
        if not _is_plain(tensor):
            self.outside.add(tensor)
            return keep(tensor)
        if is_cast_of_parameter(tensor):
            self.outside.add_cast(tensor)
            return keep(tensor)
        if tensor.device.type == "cpu":
            return self._pack(tensor, tensor)
        if tensor.nbytes < self._min_bytes:
            return keep(tensor)
        # Untested on hardware: no accelerator was at hand.
        return self._pack(tensor, tensor.detach().to("cpu"))

    @staticmethod
    def unpack(packed: Kept | Packed) -> torch.Tensor:
        """Called by autograd when backward needs the tensor."""
        return packed.unpack()

    def _pack(self, tensor: torch.Tensor, host: torch.Tensor) -> Kept | Packed:
        storage = host.untyped_storage()
        if storage.nbytes() < self._min_bytes:
            return keep(tensor)
        if _counts_for_itself(host):
            # What others do to the same storage meanwhile does not show in its counter of changes.
            if host.nbytes < self._min_bytes:
                return copy(tensor)
            host = _alone(host)
            storage = host.untyped_storage()
        span = own = _span(host)
        if 2 * (span[1] - span[0]) >= storage.nbytes():
            span = (0, storage.nbytes())
        if span[1] - span[0] < self._min_bytes:
            return copy(tensor)
        stored = self._store_once(host, span, described(tensor))
        return Packed(
            stored=stored,
            watched=watch(tensor),
            offset=own[0] - stored.start,
            dtype=host.dtype,
            shape=tuple(host.shape),
            stride=tuple(host.stride()),
            original_stride=tuple(tensor.stride()),
            device=tensor.device,
        )

    def _store_once(
        self,
        host: torch.Tensor,
        span: tuple[int, int],
        name: str,
    ) -> Stored:
        storage, element = host.untyped_storage(), _element(host.dtype)
        version = 0 if host.is_inference() else host._version
        operation = operation_now()
        known = self._stored.get(storage._cdata)
        if known is not None and known.covers(storage, span, version, element):
            known.activation.share(operation)
            return known
        start, size = span[0], span[1] - span[0]
        if element == "float32" and size != host.nbytes:
            # Nobody knows what the rest is: it is not for narrowing.
            element = "four"
        is_lent = size == storage.nbytes() and is_torchs(storage)
        address = storage.data_ptr() + start
        activation = self._store.save((address, size), is_lent, name, element, operation)
        stored = Stored(activation, storage, span, version, element)
        self._stored[storage._cdata] = stored
        return stored


def operation_now() -> tuple[int, int]:
    """The operation that saves tensors now: this thread, and a number. torch counts the nodes of
    the graph as they are made, and a node saves its tensors before the next one is made."""
    return threading.get_ident(), _sequence_number()


def is_torchs(storage: torch.UntypedStorage) -> bool:
    """Whether its bytes are a block of torch's own allocator, which we see being freed."""
    return frees_are_seen() and storage.resizable() and not storage.is_pinned()


@functools.cache
def frees_are_seen() -> bool:
    """Whether a block that torch frees stays as long as it is lent: tried, not believed. Where the
    process has another allocator, it is not."""
    storage = torch.empty(4096, dtype=torch.uint8).untyped_storage()
    watch = _lib.BlockWatch(storage.data_ptr())
    storage.resize_(0)
    return watch.freed


def is_parameter(tensor: torch.Tensor) -> bool:
    """Whether it is a parameter, a leaf that collects a gradient, or a view of one."""
    base = tensor if tensor._base is None else tensor._base
    return isinstance(base, torch.nn.Parameter) or (base.is_leaf and base.requires_grad)


def described(tensor: torch.Tensor) -> str:
    """What a tensor is called in plans and errors: who made it, and what it is."""
    maker = "input" if tensor.grad_fn is None else tensor.grad_fn.name().removesuffix("Backward0")
    dtype = str(tensor.dtype).removeprefix("torch.")
    return f"{maker} {dtype}{list(tensor.shape)}"


def _is_plain(tensor: torch.Tensor) -> bool:
    return type(tensor) in PLAIN and tensor.numel() > 0 and obstacle(tensor) is None


def _counts_for_itself(tensor: torch.Tensor) -> bool:
    """Whether it is a part of a storage whose other parts have counters of changes of their own, as
    those that ``torch.unsafe_chunk`` makes in the cells of recurrent networks."""
    root = tensor if tensor._base is None else tensor._base
    return root.nbytes < root.untyped_storage().nbytes()


def _alone(tensor: torch.Tensor) -> torch.Tensor:
    """A copy without the rest of its storage, nor its holes if they are most of it."""
    mostly_holes = 2 * tensor.numel() <= extent(tensor.shape, tensor.stride())
    if mostly_holes and 0 not in tensor.stride():
        return tensor.detach().clone(memory_format=torch.contiguous_format)
    return spanned(tensor)


def _span(tensor: torch.Tensor) -> tuple[int, int]:
    """The bytes of its storage that a tensor covers, holes included."""
    start = int(tensor.storage_offset())
    stop = start + extent(tensor.shape, tensor.stride())
    return start * tensor.itemsize, stop * tensor.itemsize


def _element(dtype: torch.dtype) -> str:
    if dtype is torch.float32:
        return "float32"
    return {4: "four", 2: "two"}.get(dtype.itemsize, "other")
