"""Which leaves share memory, and what is stored for them.

Leaves whose bytes overlap in one storage form a component. What is stored for it is the caller's
choice (``ties``). With ``"names"`` every leaf is stored under its own name, in order, as if it had
memory of its own, so that every reader finds it; beside it stands where it lay in the memory of the
component, so that ours can tie it again (``memory``).

With ``"shared"`` one tensor is stored for the component:

- all its leaves are the same view: that view, in order, never the storage around it;
- one leaf, in order, covers all others: that leaf, and the others are views of it;
- otherwise: the bytes from the first to the last, and all leaves are views of them.

Either way what was tied stays tied, and a slice costs what a slice holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from tensorferry._structure.dtypes import OF_NUMPY, OF_TORCH, address_of, span, torch_name
from tensorferry._structure.stored import Stored

Ties: TypeAlias = Literal["names", "shared"]
"""Whether leaves that share memory are stored each under its name, or once."""

RESERVED = "__metadata__"
"""Has a meaning of its own in the header of a checkpoint."""


class TensorLeaf:
    """A tensor or parameter in the object. Its node is complete once it is stored."""

    __slots__ = (
        "address",
        "component",
        "contiguous",
        "end",
        "name",
        "nbytes",
        "node",
        "object",
        "original",
        "tensor",
    )

    def __init__(self, name: str, original: torch.Tensor, tensor: torch.Tensor) -> None:
        """``tensor`` is the original, or a copy of it without pending operations."""
        self.node: dict[str, Any] = {"tensor": None}
        self.name = name
        self.original = original
        self.tensor = tensor
        self.nbytes = tensor.nbytes
        self.contiguous = tensor.is_contiguous()
        self.address = tensor.data_ptr()
        self.end = self.address + self.nbytes
        if not self.contiguous:
            elements = span(tensor.shape, tensor.stride())
            self.end = self.address + elements * tensor.element_size()
        self.component: Component | None = None
        self.object: int | None = None

    def named(self, name: str) -> TensorLeaf:
        """The same at another place of the object."""
        return TensorLeaf(name, self.original, self.tensor)

    def view(self) -> tuple[object, ...]:
        """Equal for leaves that are the same elements at the same places."""
        tensor = self.tensor
        return self.address, tensor.dtype, tensor.shape, tensor.stride()

    def is_plain(self) -> bool:
        """Whether the stored tensor says everything. Most are; this is the short way."""
        original = self.original
        return (
            type(original) is torch.Tensor
            and self.object is None
            and original.is_cpu
            and not original.requires_grad
            and original.dtype in OF_TORCH
        )

    def store(self, name: str) -> Stored:
        """The tensor by itself."""
        tensor = self.tensor
        shape = tuple(tensor.shape)
        dtype = OF_TORCH.get(tensor.dtype)
        if dtype is None:
            dtype, shape = "U8", (*shape, tensor.element_size())
        address = self.address if self.contiguous and tensor.is_cpu else None
        return Stored(name, dtype, shape, self.nbytes, tensor, address)

    def refer(self, stored: Stored, offset: int | None = None, memory: int | None = None) -> None:
        """Completes the node: the stored tensor as it is, or a view of it at an offset in bytes; of
        the memory with a number, if one is given."""
        if offset is None and memory is None and self.is_plain():
            self.node["tensor"] = stored.name
            return
        tensor = self.tensor
        leaf: dict[str, Any] = {"name": stored.name}
        is_placed = memory is not None and offset is not None
        if is_placed or OF_TORCH.get(tensor.dtype) != stored.dtype:
            leaf["dtype"] = torch_name(tensor.dtype)
            leaf["itemsize"] = tensor.element_size()
        if offset is not None:
            leaf["shape"] = list(tensor.shape)
            leaf["stride"] = list(tensor.stride())
            leaf["offset"] = offset
        if memory is not None:
            leaf["memory"] = memory
        parameter = type(self.original) is torch.nn.Parameter
        if parameter:
            leaf["parameter"] = True
        if self.original.requires_grad != parameter:
            leaf["grad"] = not parameter
        if not tensor.is_cpu:
            leaf["device"] = str(tensor.device)
        if self.object is not None:
            leaf["object"] = self.object
        self.node["tensor"] = leaf


class ArrayLeaf:
    """A NumPy array in the object. Its memory is its own: views of one array are stored apart."""

    __slots__ = ("array", "name", "node", "object")

    def __init__(self, name: str, array: npt.NDArray[Any]) -> None:
        self.node: dict[str, Any] = {"array": None}
        self.name = name
        self.array = array
        self.object: int | None = None

    def named(self, name: str) -> ArrayLeaf:
        """The same at another place of the object."""
        return ArrayLeaf(name, self.array)

    def store(self, name: str) -> Stored:
        """The array by itself."""
        array = self.array
        dtype, shape = OF_NUMPY.get(array.dtype.str), array.shape
        if dtype is None:
            dtype, shape = "U8", (*shape, array.dtype.itemsize)
        address = address_of(array) if array.flags.c_contiguous else None
        return Stored(name, dtype, shape, array.nbytes, array, address)

    def refer(self, stored: Stored) -> None:
        """Completes the node."""
        leaf: dict[str, Any] = {"name": stored.name, "numpy": self.array.dtype.str}
        if self.array.dtype.str not in OF_NUMPY:
            leaf["itemsize"] = self.array.dtype.itemsize
        if self.object is not None:
            leaf["object"] = self.object
        self.node["array"] = leaf


class BytesLeaf:
    """Bytes too long for the text; ``tag`` tells ``bytes`` from ``bytearray``."""

    __slots__ = ("content", "name", "node", "tag")

    def __init__(self, name: str, content: bytes, tag: str) -> None:
        self.node: dict[str, Any] = {tag: None}
        self.name = name
        self.content = content
        self.tag = tag

    def store(self, name: str) -> Stored:
        """The bytes as a tensor."""
        size = len(self.content)
        address = address_of(np.frombuffer(self.content, np.uint8))
        return Stored(name, "U8", (size,), size, self.content, address)

    def refer(self, stored: Stored) -> None:
        """Completes the node."""
        self.node[self.tag] = stored.name


Leaf: TypeAlias = TensorLeaf | ArrayLeaf | BytesLeaf


def store(leaves: list[Leaf], ties: Ties) -> list[Stored]:
    """Names what has to be stored, in the order of the leaves, and completes their nodes."""
    _join_overlapping([leaf for leaf in leaves if type(leaf) is TensorLeaf and leaf.nbytes])
    names = _Names()
    if ties == "names":
        return _store_each(leaves, names)
    tensors = []
    for leaf in leaves:
        component = leaf.component if type(leaf) is TensorLeaf else None
        if component is None:
            stored = leaf.store(names.take(leaf.name))
            leaf.refer(stored)
        elif component.stored:
            continue
        else:
            stored = component.store(names)
        tensors.append(stored)
    return tensors


def _store_each(leaves: list[Leaf], names: _Names) -> list[Stored]:
    """Every leaf under its own name."""
    numbers: dict[Component, int] = {}
    tensors = []
    for leaf in leaves:
        stored = leaf.store(names.take(leaf.name))
        component = leaf.component if type(leaf) is TensorLeaf else None
        if type(leaf) is not TensorLeaf or component is None or component.is_one_object():
            leaf.refer(stored)
        else:
            memory = numbers.setdefault(component, len(numbers))
            leaf.refer(stored, component.place(leaf), memory)
        tensors.append(stored)
    return tensors


class Component:
    """Leaves whose bytes overlap, in the order in which they stand in the object."""

    def __init__(self, leaves: list[TensorLeaf]) -> None:
        self.leaves = leaves
        self.stored = False
        self.start: int | None = None
        for leaf in leaves:
            leaf.component = self

    def is_one_object(self) -> bool:
        """Whether it is one object of Python in several places."""
        return all(leaf.original is self.leaves[0].original for leaf in self.leaves)

    def place(self, leaf: TensorLeaf) -> int | None:
        """Where in the memory that they share a leaf begins; nothing if all are the same view."""
        if self.start is None:
            if self._are_one_view():
                return None
            self.start = self._bounds()[0]
        return leaf.address - self.start

    def store(self, names: _Names) -> Stored:
        """What is stored for all of them; completes their nodes."""
        self.stored = True
        cover = self._cover()
        if cover is None:
            start, stored = self._whole(names)
        else:
            start, stored = cover.address, cover.store(names.take(cover.name))
        for leaf in self.leaves:
            if cover is not None and leaf.view() == cover.view():
                leaf.refer(stored)
            else:
                leaf.refer(stored, leaf.address - start)
        return stored

    def _cover(self) -> TensorLeaf | None:
        """A leaf of which all others are views."""
        if self._are_one_view():
            return self.leaves[0]
        start = min(leaf.address for leaf in self.leaves)
        end = max(leaf.end for leaf in self.leaves)
        # Seen from another start, elements might no longer stand at multiples of their size.
        if any((leaf.address - start) % leaf.tensor.element_size() for leaf in self.leaves):
            return None
        covering = (leaf.address == start and leaf.end == end for leaf in self.leaves)
        whole = (leaf for leaf, covers in zip(self.leaves, covering, strict=True) if covers)
        return next((leaf for leaf in whole if leaf.contiguous), None)

    def _are_one_view(self) -> bool:
        first = self.leaves[0].view()
        return all(leaf.view() == first for leaf in self.leaves)

    def _bounds(self) -> tuple[int, int]:
        """The addresses between which all elements stand at multiples of their size."""
        base = self._storage().data_ptr()
        # Every leaf stands so from the storage's start, and must so again.
        unit = max(leaf.tensor.element_size() for leaf in self.leaves)
        first = min(leaf.address for leaf in self.leaves)
        return base + (first - base) // unit * unit, max(leaf.end for leaf in self.leaves)

    def _storage(self) -> torch.UntypedStorage:
        storages = (leaf.tensor.untyped_storage() for leaf in self.leaves)
        return max(storages, key=lambda storage: storage.nbytes())

    def _whole(self, names: _Names) -> tuple[int, Stored]:
        """The address from which bytes are stored, and they."""
        storage, (start, end) = self._storage(), self._bounds()
        size = end - start
        empty = torch.empty(0, dtype=torch.uint8, device=storage.device)
        source = empty.set_(storage, start - storage.data_ptr(), (size,), (1,))
        name = names.take(f"{self.leaves[0].name}.storage")
        address = start if source.is_cpu else None
        return start, Stored(name, "U8", (size,), size, source, address)


def _join_overlapping(leaves: list[TensorLeaf]) -> None:
    """Forms components; leaves that overlap with none stay alone."""
    for near in _overlapping(leaves, range(len(leaves))):
        storages: dict[tuple[str, int], list[int]] = {}
        for index in near:
            tensor = leaves[index].tensor
            storage = str(tensor.device), tensor.untyped_storage().data_ptr()
            storages.setdefault(storage, []).append(index)
        for indices in storages.values():
            for members in _overlapping(leaves, indices):
                Component([leaves[index] for index in sorted(members)])


def _overlapping(leaves: list[TensorLeaf], indices: Iterable[int]) -> Iterator[list[int]]:
    """The groups, of two or more, whose bytes overlap."""
    spans = sorted((leaves[index].address, leaves[index].end, index) for index in indices)
    group: list[int] = []
    reached = -1
    for address, end, index in spans:
        if address >= reached:
            if len(group) > 1:
                yield group
            group = []
        group.append(index)
        reached = max(reached, end)
    if len(group) > 1:
        yield group


class _Names:
    """Gives each name out once."""

    def __init__(self) -> None:
        self.taken = {RESERVED}
        self.counts: dict[str, int] = {}

    def take(self, name: str) -> str:
        free = name
        while free in self.taken:
            # Counted by name, so that many leaves of one name are not tried again and again.
            self.counts[name] = self.counts.get(name, 1) + 1
            free = f"{name}#{self.counts[name]}"
        self.taken.add(free)
        return free
