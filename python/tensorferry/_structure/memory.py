"""Leaves that share memory: what of them is read, and where each lies in it.

Each is a tensor of the file under its own name, in order, so that every reader finds it. The text
says beside it which leaves lay in one memory, and where. Of the leaves that are wanted, one often
covers the others: it alone is read, and the others are views of it. Otherwise all are read and put
into their places. Leaves that were the same view have no places: any of them is all of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from tensorferry._errors import OutOfMemory
from tensorferry._kinds import fakes
from tensorferry._structure.dtypes import span
from tensorferry._structure.pieces import copy_into

Leaf: TypeAlias = dict[str, Any]


class Memory:
    """What some leaves have in common; offsets and sizes in bytes."""

    def __init__(self, leaves: list[Leaf]) -> None:
        self.leaves = leaves
        self.cover: Leaf | None = leaves[0]
        self.start = 0
        self.nbytes = 0
        if "shape" not in leaves[0]:
            return
        unit = max(leaf["itemsize"] for leaf in leaves)
        first, end = min(leaf["offset"] for leaf in leaves), max(map(_end, leaves))
        whole = (leaf for leaf in leaves if (leaf["offset"], _end(leaf)) == (first, end))
        self.cover = next((leaf for leaf in whole if _is_contiguous(leaf)), None)
        # Seen from another start, elements might no longer stand at multiples of their size.
        if any((leaf["offset"] - first) % leaf["itemsize"] for leaf in leaves):
            self.cover = None
        self.start = first if self.cover else first // unit * unit
        self.nbytes = end - self.start

    def read(self) -> list[str]:
        """The names of the tensors that are read for them."""
        if self.cover is not None:
            return [self.cover["name"]]
        return [leaf["name"] for leaf in self.leaves]

    def put_together(self, stored: list[torch.Tensor]) -> torch.Tensor:
        """The memory, from the tensors of all leaves."""
        if stored[0].is_meta or fakes():
            return torch.empty(self.nbytes, dtype=torch.uint8, device=stored[0].device)
        try:
            raw = np.empty(self.nbytes, np.uint8)
        except (MemoryError, ValueError) as error:
            what = f"no memory for the {self.nbytes} bytes that tensors of the file share"
            raise OutOfMemory(f"{what}: {error}") from error
        for leaf, tensor in zip(self.leaves, stored, strict=True):
            _put(tensor, leaf, raw, self.start)
        return torch.frombuffer(raw, dtype=torch.uint8)


def memories(found: Iterable[Any]) -> dict[int, Memory]:
    """By number, from what a tree says of stored tensors."""
    leaves: dict[int, dict[str, Leaf]] = {}
    for leaf in found:
        if type(leaf) is dict and "memory" in leaf:
            leaves.setdefault(leaf["memory"], {})[leaf["name"]] = leaf
    return {number: Memory(list(named.values())) for number, named in leaves.items()}


_KINDS = {1: "u1", 2: "u2", 4: "u4", 8: "u8"}
"""What NumPy copies fast; numbers are not looked at."""


def _put(stored: torch.Tensor, leaf: Leaf, raw: npt.NDArray[np.uint8], start: int) -> None:
    """Puts a leaf's elements into their places in the memory."""
    kind = np.dtype(_KINDS.get(leaf["itemsize"], f"V{leaf['itemsize']}"))
    elements = stored.reshape(-1).view(torch.uint8).numpy().view(kind).reshape(leaf["shape"])
    steps = [step * leaf["itemsize"] for step in leaf["stride"]]
    # One element in several places of the leaf, and dimensions of which NumPy knows fewer.
    once = [dim for dim, size in enumerate(leaf["shape"]) if size == 1 or not steps[dim]]
    kept = [dim for dim in range(len(steps)) if dim not in once]
    elements = elements[tuple(0 if dim in once else slice(None) for dim in range(len(steps)))]
    places = np.ndarray(
        [leaf["shape"][dim] for dim in kept],
        kind,
        raw,
        leaf["offset"] - start,
        [steps[dim] for dim in kept],
    )
    copy_into(elements, places)


def _end(leaf: Leaf) -> int:
    end: int = leaf["offset"] + span(leaf["shape"], leaf["stride"]) * leaf["itemsize"]
    return end


def _is_contiguous(leaf: Leaf) -> bool:
    step = 1
    for size, stride in zip(reversed(leaf["shape"]), reversed(leaf["stride"]), strict=True):
        if size != 1 and stride != step:
            return False
        step *= size
    return True
