"""From a tree of nodes to the object that it describes.

The nodes were judged by the core: tags are known, names exist, views lie inside what is stored.
What only torch or NumPy can know (whether a dtype exists here) is judged now.
"""

from __future__ import annotations

import warnings
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np
import torch

from tensorferry._errors import Corrupt, Unsupported
from tensorferry._kinds import fakes, without_modes
from tensorferry._structure.dtypes import BY_TORCH_NAME, span
from tensorferry._structure.memory import Memory, memories
from tensorferry._structure.select import leaves
from tensorferry._structure.values import VALUES

Fetch: TypeAlias = Callable[[str], torch.Tensor]
Place: TypeAlias = Callable[[torch.Tensor, str], torch.Tensor]


def build(node: Any, tensor: Fetch, place: Place | None = None) -> Any:
    """Builds the object.

    ``tensor`` gives a stored tensor by its name, in its stored dtype and shape, in the host's
    memory; it is asked once for each, and the object owns what it gives. ``place`` moves it to
    where it belongs, given the device that it was saved from, before views of it are made: what
    was tied stays tied. Subtrees that share tensors have to be built in one call, as values of one
    dict.
    """
    found = leaves(node)
    shared = memories(found)
    return _Builder(tensor, place, shared, _units(found, shared)).build(node)


class _Builder:
    def __init__(
        self,
        fetch: Fetch,
        place: Place | None,
        shared: dict[int, Memory],
        units: dict[str, int],
    ) -> None:
        self.fetch = fetch
        self.place = place
        self.units = units
        self.memories = shared
        self.fetched: dict[str, torch.Tensor] = {}
        self.placed: dict[str, torch.Tensor] = {}
        self.gathered: dict[int, torch.Tensor] = {}
        self.given: set[str] = set()
        self.objects: dict[int, Any] = {}

    def build(self, node: Any) -> Any:
        kind = type(node)
        if kind is list:
            return [self.build(item) for item in node]
        if kind is not dict:
            return node
        if len(node) == 1:
            for tag, content in node.items():
                value = VALUES.get(tag)
                return value(content) if value else _TAGS[tag](self, content)
        made = OrderedDict(self.items(node["odict"]))
        made._metadata = self.build(node["metadata"])  # type: ignore[attr-defined]
        return made

    # -- containers --

    def items(self, content: Any) -> Any:
        if type(content) is dict:
            return {key: self.build(item) for key, item in content.items()}
        return {self.build(key): self.build(item) for key, item in content}

    def odict(self, content: Any) -> Any:
        return OrderedDict(self.items(content))

    def counter(self, content: Any) -> Any:
        made: Counter[Any] = Counter()
        dict.update(made, self.items(content))
        return made

    def tuple_(self, content: Any) -> Any:
        return tuple([self.build(item) for item in content])

    def set_(self, content: Any) -> Any:
        return {self.build(item) for item in content}

    def frozenset_(self, content: Any) -> Any:
        return frozenset([self.build(item) for item in content])

    # -- values --

    def complex_(self, content: Any) -> Any:
        return complex(self.build(content[0]), self.build(content[1]))

    def size(self, content: Any) -> Any:
        return torch.Size(content)

    def dtype(self, content: Any) -> Any:
        return _dtype(content)

    def device(self, content: Any) -> Any:
        try:
            return torch.device(content)
        except RuntimeError as error:
            raise Unsupported(f"this torch knows no device {content!r}") from error

    def scalar(self, content: Any) -> Any:
        name, digits = content
        with _as_corrupt(f"a scalar of dtype {name}"):
            dtype = np.dtype(name)
            if not dtype.itemsize:
                return dtype.type()
            return np.frombuffer(bytes.fromhex(digits), dtype)[0]

    # -- leaves --

    def blob(self, name: Any) -> Any:
        with without_modes():
            return self.stored(name).numpy().tobytes()

    def bytearray_blob(self, name: Any) -> Any:
        return bytearray(self.blob(name))

    def array(self, leaf: Any) -> Any:
        number = leaf.get("object")
        if number in self.objects:
            return self.objects[number]
        stored = self.stored(leaf["name"])
        with _as_corrupt(f"the array {leaf['name']!r}"), without_modes():
            dtype = np.dtype(leaf["numpy"])
            shape = stored.shape[:-1] if "itemsize" in leaf else stored.shape
            raw = stored.reshape(-1).view(torch.uint8).numpy().view(dtype).reshape(shape)
        made = raw if raw.flags.aligned else raw.copy()
        if number is not None:
            self.objects[number] = made
        return made

    def tensor(self, leaf: Any) -> Any:
        if type(leaf) is str:
            return self.as_stored(leaf, "cpu")
        number = leaf.get("object")
        if number in self.objects:
            return self.objects[number]
        name, device = leaf["name"], leaf.get("device", "cpu")
        made = self.view(name, device, leaf)
        parameter = leaf.get("parameter", False)
        with _as_corrupt(f"the tensor {name!r}"):
            if parameter:
                made = torch.nn.Parameter(made, requires_grad=leaf.get("grad", True))
            elif leaf.get("grad", False):
                made.requires_grad_()
        if number is not None:
            self.objects[number] = made
        return made

    def view(self, name: str, device: str, leaf: dict[str, Any]) -> torch.Tensor:
        """The elements that a leaf describes."""
        if "memory" in leaf:
            return self.shared(device, leaf)
        if "shape" not in leaf and "dtype" not in leaf:
            return self.as_stored(name, device)
        return self.viewed(self.base(name, device), leaf)

    def shared(self, device: str, leaf: dict[str, Any]) -> torch.Tensor:
        """The elements of a leaf that shares its memory with others."""
        memory = self.memories[leaf["memory"]]
        alone = {key: said for key, said in leaf.items() if key != "memory"}
        if memory.cover is None:
            base = self.together(leaf["memory"], device)
        elif "shape" in leaf:
            base = self.base(memory.cover["name"], device)
        else:
            return self.view(memory.cover["name"], device, alone)
        alone["offset"] -= memory.start
        return self.viewed(base, alone)

    def together(self, number: int, device: str) -> torch.Tensor:
        """Memory that is put together from all leaves, in its place."""
        base = self.gathered.get(number)
        if base is None:
            memory = self.memories[number]
            base = memory.put_together([self.stored(leaf["name"]) for leaf in memory.leaves])
            if self.place is not None:
                base = self.place(base, device)
            self.gathered[number] = base
        return base

    def viewed(self, base: torch.Tensor, leaf: dict[str, Any]) -> torch.Tensor:
        """The elements that a leaf describes, in the memory of a stored tensor."""
        name = leaf["name"]
        dtype = _dtype(leaf["dtype"]) if "dtype" in leaf else base.dtype
        if dtype.itemsize != leaf.get("itemsize", dtype.itemsize):
            what = f"elements of {leaf['itemsize']} bytes are not of dtype {leaf['dtype']}"
            raise Corrupt(f"{what} (tensor: {name})")
        shape = leaf["shape"] if "shape" in leaf else base.shape[:-1]
        stride = leaf["stride"] if "shape" in leaf else _strides(shape)
        offset = leaf.get("offset", 0)
        if offset + span(shape, stride) * dtype.itemsize > base.nbytes:
            # Torch would make the memory larger, and move it away from under others.
            raise Corrupt(f"a view reaches beyond the bytes of its tensor (tensor: {name})")
        offset += base.storage_offset() * base.element_size()
        with _as_corrupt(f"the tensor {name!r}"):
            empty = _empty(dtype, base.device)
            return empty.set_(base.untyped_storage(), offset // dtype.itemsize, shape, stride)

    def as_stored(self, name: str, device: str) -> torch.Tensor:
        """A stored tensor: itself, and from the second time on another object on its memory."""
        base = self.base(name, device)
        if name in self.given:
            return base.data
        self.given.add(name)
        return base

    def base(self, name: str, device: str) -> torch.Tensor:
        """A stored tensor in its place."""
        base = self.placed.get(name)
        if base is None:
            base = self.stored(name)
            if self.place is not None:
                base = self.place(base, device)
            self.placed[name] = base = _aligned(base, self.units.get(name, 1))
        return base

    def stored(self, name: str) -> torch.Tensor:
        """A stored tensor, asked for once."""
        stored = self.fetched.get(name)
        if stored is None:
            self.fetched[name] = stored = self.fetch(name)
        return stored


def _units(found: list[Any], shared: dict[int, Memory]) -> dict[str, int]:
    """Of stored tensors with views in other dtypes: the bytes of their largest element."""
    units: dict[str, int] = {}
    for leaf in found:
        if type(leaf) is dict and "itemsize" in leaf:
            memory = shared.get(leaf.get("memory", -1))
            name = leaf["name"] if memory is None or memory.cover is None else memory.cover["name"]
            units[name] = max(leaf["itemsize"], units.get(name, 1))
    return units


def _aligned(base: torch.Tensor, unit: int) -> torch.Tensor:
    """Bytes lie anywhere in a file, and so in memory; elements that are made of them must not."""
    start = base.storage_offset() * base.element_size() if unit > 1 else 0
    if unit == 1 or base.is_meta or fakes() or (start % unit == 0 and base.data_ptr() % unit == 0):
        return base
    return base.clone()


def _dtype(name: str) -> torch.dtype:
    dtype = BY_TORCH_NAME.get(name)
    if dtype is None:
        raise Unsupported(f"this torch ({torch.__version__}) has no dtype {name!r}")
    return dtype


def _empty(dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    if dtype is not torch.complex32:
        return torch.empty(0, dtype=dtype, device=device)
    with warnings.catch_warnings():
        # It warns that few operations are supported: the user knows, and saved it.
        warnings.simplefilter("ignore")
        return torch.empty(0, dtype=dtype, device=device)


def _strides(shape: torch.Size) -> list[int]:
    strides = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return strides[::-1]


@contextmanager
def _as_corrupt(what: str) -> Iterator[None]:
    """What torch or NumPy refuse to make was not described by a save."""
    try:
        yield
    except (ValueError, TypeError, RuntimeError, OverflowError, SystemError) as error:
        raise Corrupt(f"{what} can't be made from what the file says: {error}") from error


_TAGS: dict[str, Callable[[_Builder, Any], Any]] = {
    "tensor": _Builder.tensor,
    "array": _Builder.array,
    "blob": _Builder.blob,
    "bytearray_blob": _Builder.bytearray_blob,
    "dict": _Builder.items,
    "odict": _Builder.odict,
    "counter": _Builder.counter,
    "tuple": _Builder.tuple_,
    "set": _Builder.set_,
    "frozenset": _Builder.frozenset_,
    "complex": _Builder.complex_,
    "size": _Builder.size,
    "dtype": _Builder.dtype,
    "device": _Builder.device,
    "scalar": _Builder.scalar,
}
