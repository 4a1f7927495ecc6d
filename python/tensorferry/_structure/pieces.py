"""Large copies, a piece at a time: an interruption is heard between pieces."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from tensorferry import _lib

PIECE_BYTES = 16 << 20
"""A piece is at most so long: copied in far less than a quarter of a second, wherever its elements
lie."""

Index: TypeAlias = tuple[int | slice, ...]


def copied(source: torch.Tensor) -> torch.Tensor:
    """A tensor's elements in order, in host memory."""
    into = torch.empty(source.shape, dtype=source.dtype)
    for index in pieces(source.shape, source.element_size()):
        into[index].copy_(source[index])
        _lib.check_caller()
    return into


def copied_array(source: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The same of an array."""
    into = np.empty(source.shape, source.dtype)
    copy_into(source, into)
    return into


def copy_into(source: npt.NDArray[Any], into: npt.NDArray[Any]) -> None:
    """Copies elements into those of another array of the same shape."""
    for index in pieces(source.shape, source.itemsize):
        into[index] = source[index]
        _lib.check_caller()


def pieces(shape: Sequence[int], itemsize: int, most: int = PIECE_BYTES) -> Iterator[Index]:
    """The indices of parts of at most so many bytes; of one element, at least."""
    row = itemsize
    for size in shape[1:]:
        row *= size
    if not shape or shape[0] * row <= most:
        yield ()
    elif row <= most:
        rows = most // row
        for start in range(0, shape[0], rows):
            yield (slice(start, start + rows),)
    else:
        for number in range(shape[0]):
            for index in pieces(shape[1:], itemsize, most):
                yield (number, *index)
