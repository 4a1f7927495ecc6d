"""A part of a tensor that is whole in one file, or cut between several."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from types import EllipsisType
from typing import Any

import torch


def indexed(parts: Sequence[torch.Tensor], dim: int, index: Any) -> torch.Tensor:
    """``torch.cat(parts, dim)[index]``, of which only the parts are touched that the index needs.

    That holds for integers, slices and dots; any other index puts all parts together.
    """
    if len(parts) == 1:
        return parts[0][index]
    items = _items(index, parts[0].dim())
    if items is None:
        return torch.cat(list(parts), dim)[index]
    ends = list(accumulate(part.shape[dim] for part in parts))
    start, stop, items[dim] = _bounds(items[dim], ends[-1])
    held = [
        number
        for number, (part, end) in enumerate(zip(parts, ends, strict=True))
        if end > start and end - part.shape[dim] < stop
    ] or [0]
    first = ends[held[0]] - parts[held[0]].shape[dim]
    items[dim] = _moved(items[dim], first)
    return torch.cat([parts[number] for number in held], dim)[tuple(items)]


def _items(index: Any, dimensions: int) -> list[Any] | None:
    """An integer or a slice for each dimension, or nothing where it is not that simple."""
    items = list(index) if isinstance(index, tuple) else [index]
    if not all(type(item) in (int, slice, EllipsisType) for item in items):
        return None
    dots = [number for number, item in enumerate(items) if item is ...]
    missing = dimensions - len(items) + len(dots)
    if len(dots) > 1 or missing < 0:
        return None
    at = dots[0] if dots else len(items)
    items[at : at + len(dots)] = [slice(None)] * missing
    return items


def _bounds(item: int | slice, size: int) -> tuple[int, int, int | slice]:
    """What an integer or a slice means in a dimension of this size: from where, to where, and
    itself without negative ends."""
    if isinstance(item, slice):
        start, stop, step = item.indices(size)
        return start, stop, slice(start, max(start, stop), step)
    if not -size <= item < size:
        raise IndexError(f"index {item} is out of bounds for a dimension of size {size}")
    return item % size, item % size + 1, item % size


def _moved(item: int | slice, by: int) -> int | slice:
    if isinstance(item, slice):
        return slice(item.start - by, item.stop - by, item.step)
    return item - by
