"""A checksum of what a stream yields, which tells whether it repeats itself.

Numbers, text, bytes, arrays and tensors count, also within tuples, lists, dicts and dataclasses;
of anything else, the name of its type. Of what is large a part counts, spread over the whole, so
that a checksum costs little beside the item.
"""

from __future__ import annotations

import dataclasses
import zlib
from collections import UserDict
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

import numpy as np
import torch

ENTRIES_MAX = 64
"""Of a container, and per dimension of an array that has gaps."""
DEPTH_MAX = 8
WHOLE_BYTES_MAX = 4096
"""What is larger counts in blocks."""
BLOCKS = 16

_SCALARS = (bool, int, float, complex, type(None))


def of(item: object, before: int, depth: int = 0) -> int:
    """With an item more than ``before``."""
    kind = type(item)
    if kind in _SCALARS:
        return zlib.crc32(repr(item).encode(), before)
    before = zlib.crc32(kind.__name__.encode(), before)
    if isinstance(item, str):
        return _of_bytes(item.encode("utf-8", "surrogatepass"), before)
    if isinstance(item, bytes | bytearray):
        return _of_bytes(item, before)
    if isinstance(item, torch.Tensor):
        return _of_tensor(item, before)
    if isinstance(item, np.ndarray | np.generic):
        return _of_array(np.asarray(item), before)
    if depth < DEPTH_MAX:
        for entry in _entries(item):
            before = of(entry, before, depth + 1)
    return before


def _entries(item: object) -> Iterable[object]:
    """What a container has in it, and how much."""
    if isinstance(item, dict | UserDict):
        return (len(item), *(part for pair in islice(item.items(), ENTRIES_MAX) for part in pair))
    if isinstance(item, tuple | list):
        return (len(item), *(item[at] for at in _spread(len(item), ENTRIES_MAX)))
    if dataclasses.is_dataclass(item):
        return [getattr(item, each.name, None) for each in dataclasses.fields(item)]
    return ()


def _of_tensor(tensor: torch.Tensor, before: int) -> int:
    before = zlib.crc32(f"{tensor.dtype}{tuple(tensor.shape)}".encode(), before)
    is_plain = type(tensor) in (torch.Tensor, torch.nn.Parameter)
    if not (is_plain and tensor.is_cpu and tensor.layout is torch.strided):
        return before
    if tensor.is_quantized or not tensor.numel():
        return before
    tensor = tensor.detach().resolve_conj().resolve_neg()
    if not tensor.is_contiguous():
        tensor = tensor[_thinned(tensor.shape)].contiguous()
    return _of_bytes(tensor.view(-1).view(torch.uint8).numpy(), before)


def _of_array(array: np.ndarray[Any, Any], before: int) -> int:
    before = zlib.crc32(f"{array.dtype}{array.shape}".encode(), before)
    if array.dtype.hasobject or not array.size:
        return before
    if not array.flags.c_contiguous:
        array = np.ascontiguousarray(array[_thinned(array.shape)])
    return _of_bytes(array.reshape(-1).view(np.uint8), before)


def _thinned(shape: Sequence[int]) -> tuple[slice, ...]:
    """A part of each dimension, no more than some thousand elements of all."""
    most = max(2, round(ENTRIES_MAX ** (2 / max(len(shape), 1))))
    return tuple(slice(None, None, -(-size // most) or 1) for size in shape)


def _of_bytes(given: Any, before: int) -> int:
    view = memoryview(given).cast("B")
    size = len(view)
    before = zlib.crc32(b"%d" % size, before)
    if size <= WHOLE_BYTES_MAX:
        return zlib.crc32(view, before)
    block = WHOLE_BYTES_MAX // BLOCKS
    for at in _spread(size - block + 1, BLOCKS):
        before = zlib.crc32(view[at : at + block], before)
    return before


def _spread(length: int, at_most: int) -> Iterable[int]:
    """Places from the first to the last."""
    if length <= at_most:
        return range(length)
    return (at * (length - 1) // (at_most - 1) for at in range(at_most))
