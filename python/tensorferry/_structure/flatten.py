"""From an object to stored tensors and a tree of nodes.

Every container is visited once, every leaf is recorded; which leaves share memory is decided when
all are known (``sharing``). What can't be saved is found before that, so that a save that must fail
has written nothing, and is named by its path (``refusal``).
"""

from __future__ import annotations

import base64
import json
import struct
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from types import NoneType
from typing import Any, TypeAlias

import numpy as np
import torch
from torch.torch_version import TorchVersion

from tensorferry._errors import InvalidInput
from tensorferry._kinds import resolved
from tensorferry._structure.dtypes import (
    KNOWN_TO_NUMPY,
    is_plain,
    torch_name,
)
from tensorferry._structure.refusal import (
    ELEMENTS,
    KEYS,
    NO_RECORDS,
    CannotSave,
    another_type,
    check_text,
    key_step,
    reason,
    type_name,
)
from tensorferry._structure.sharing import (
    ArrayLeaf,
    BytesLeaf,
    Leaf,
    TensorLeaf,
    Ties,
    store,
)
from tensorferry._structure.stored import Stored
from tensorferry._structure.values import key_text

NESTING_MAX = 40
"""Containers inside one another. JSON readers stop at 128 levels, and one of ours takes up to 3."""

INLINE_BYTES_MAX = 4096
"""Longer ``bytes`` become a stored tensor."""

ITEMSIZE_MAX = 65536
"""Longer elements of arrays are refused."""

INT_BITS_MAX = 65536
"""Longer integers are refused."""

SAFE_INT_BITS_MAX = 255 * 8 - 1
"""Longer ones are pickled in a way that torch's safe loader does not know."""

DIMENSIONS_MAX = 64
"""Tensors with more are refused; torch hardly computes with them."""

Node: TypeAlias = Any
"""What ``json`` takes and gives."""


@dataclass(slots=True)
class Flat:
    """What an object consists of."""

    stored: list[Stored]
    object: Node
    """The tree of nodes, for ``structure_text``."""
    nbytes: int
    """Bytes of all stored tensors."""
    only_torch: bool
    """Whether ``torch.load(weights_only=True)`` could read what ``torch.save`` makes of it."""
    single: bool
    """Whether it is one tensor and nothing else, of a dtype that NumPy knows."""
    version: int
    """Of the text: that in which a reader has to understand it."""
    beside: dict[str, Any] = field(default_factory=dict)
    """Further keys for the text."""


def flatten(obj: object, ties: Ties = "names") -> Flat:
    """Takes an object apart; ``InvalidInput`` names what can't be saved. ``ties`` says whether what
    shares memory is stored under each of its names, or once."""
    if ties not in ("names", "shared"):
        raise InvalidInput(f"ties is 'names' or 'shared', not {ties!r}")
    walk = _Visit(ties)
    try:
        node = walk.visit(obj, None, 0)
    except CannotSave as error:
        raise InvalidInput(error.message()) from None
    stored = store(walk.leaves, ties)
    nbytes = sum(tensor.nbytes for tensor in stored)
    tied = walk.objects or any(type(leaf) is TensorLeaf and leaf.component for leaf in walk.leaves)
    version = 2 if ties == "names" and tied else 1
    return Flat(stored, node, nbytes, walk.only_torch, _is_single(obj), version)


def _is_single(obj: object) -> bool:
    # An array would come back as a tensor.
    if type(obj) is not torch.Tensor:
        return False
    return obj.dtype in KNOWN_TO_NUMPY and obj.is_cpu and not obj.requires_grad


class _Visit:
    """One walk through an object. ``name`` is the dotted path, None at the root; ``depth`` counts
    the containers around."""

    def __init__(self, ties: Ties) -> None:
        self.ties = ties
        self.leaves: list[Leaf] = []
        self.only_torch = True
        # By identity; the object outlives the walk.
        self.known: dict[int, TensorLeaf | ArrayLeaf] = {}
        self.objects = 0
        self.open: set[int] = set()

    def visit(self, value: Any, name: str | None, depth: int) -> Node:
        visitor = _VISITORS.get(type(value))
        if visitor is None:
            return self.visit_other(value)
        return visitor(self, value, name, depth)

    # -- containers --

    def enter(self, container: object, depth: int) -> None:
        if id(container) in self.open:
            raise CannotSave("", again=id(container))
        if depth >= NESTING_MAX:
            raise CannotSave(f"more than {NESTING_MAX} containers inside one another")
        self.open.add(id(container))

    def visit_dict(self, value: Any, name: str | None, depth: int) -> Node:
        return {"dict": self.visit_items(value, name, depth)}

    def visit_counter(self, value: Any, name: str | None, depth: int) -> Node:
        self.only_torch = False
        return {"counter": self.visit_items(value, name, depth)}

    def visit_odict(self, value: Any, name: str | None, depth: int) -> Node:
        node = {"odict": self.visit_items(value, name, depth)}
        # Modules keep the versions of their formats beside their state.
        for attribute, content in vars(value).items():
            if attribute != "_metadata":
                what = f"an OrderedDict with the attribute {attribute!r}, which would be lost"
                raise CannotSave(f"{what}; delete the attribute or pass OrderedDict(...)")
            try:
                node["metadata"] = self.visit(content, _dotted(name, "_metadata"), depth + 1)
            except CannotSave as error:
                error.leave(value, "._metadata")
        return node

    def visit_items(self, value: Any, name: str | None, depth: int) -> Node:
        if not set(map(type, value)) <= {str}:
            return self.visit_pairs(value, name, depth)
        self.enter(value, depth)
        prefix = "" if name is None else f"{name}."
        depth += 1
        node = {}
        key = ""
        try:
            for key, item in value.items():
                if not key.isascii():
                    check_text(key)
                visitor = _VISITORS.get(type(item))
                if visitor is None:
                    node[key] = self.visit_other(item)
                else:
                    node[key] = visitor(self, item, prefix + key, depth)
        except CannotSave as error:
            error.leave(value, key_step(key))
        self.open.discard(id(value))
        return node

    def visit_pairs(self, value: Any, name: str | None, depth: int) -> Node:
        self.enter(value, depth)
        node = []
        key: object = None
        try:
            for key, item in value.items():
                key_node = self.visit_hashable(key, depth + 1, KEYS)
                node.append([key_node, self.visit(item, _dotted(name, key_text(key)), depth + 1)])
        except CannotSave as error:
            error.leave(value, key_step(key))
        self.open.discard(id(value))
        return node

    def visit_list(self, value: Any, name: str | None, depth: int) -> Node:
        self.enter(value, depth)
        node: list[Node] = []
        try:
            for item in value:
                node.append(self.visit(item, _dotted(name, str(len(node))), depth + 1))
        except CannotSave as error:
            error.leave(value, f"[{len(node)}]")
        self.open.discard(id(value))
        return node

    def visit_tuple(self, value: Any, name: str | None, depth: int) -> Node:
        return {"tuple": self.visit_list(value, name, depth)}

    def visit_set(self, value: Any, name: str | None, depth: int) -> Node:
        self.only_torch = False
        self.enter(value, depth)
        try:
            nodes = [self.visit_hashable(item, depth + 1, ELEMENTS) for item in value]
        except CannotSave as error:
            error.leave(value, "")
        self.open.discard(id(value))
        # Their order changes from process to process; the same set gives the same file.
        nodes.sort(key=json.dumps)
        return {type(value).__name__: nodes}

    def visit_hashable(self, value: Any, depth: int, allowed: str) -> Node:
        kind = type(value)
        if kind in (NoneType, bool, int, float, str):
            return self.visit(value, None, depth)
        if kind is bytes and len(value) <= INLINE_BYTES_MAX:
            return self.visit(value, None, depth)
        if kind is tuple:
            self.enter(value, depth)
            nodes = [self.visit_hashable(item, depth + 1, allowed) for item in value]
            self.open.discard(id(value))
            return {"tuple": nodes}
        if kind is frozenset and allowed is ELEMENTS:
            return self.visit_set(value, None, depth)
        what = "a dict with a key" if allowed is KEYS else "a set with an element"
        if kind is bytes:
            raise CannotSave(f"{what} of {len(value)} bytes; {INLINE_BYTES_MAX} are the most")
        raise CannotSave(f"{what} of type {type_name(kind)}; {allowed}")

    # -- values --

    def visit_itself(self, value: Any, name: str | None, depth: int) -> Node:
        return value

    def visit_int(self, value: Any, name: str | None, depth: int) -> Node:
        if -(1 << 63) <= value < 1 << 63:
            return value
        if value.bit_length() > INT_BITS_MAX:
            raise CannotSave(f"an int of {value.bit_length()} bits; {INT_BITS_MAX} are the most")
        if value.bit_length() > SAFE_INT_BITS_MAX:
            self.only_torch = False
        return {"int": hex(value)}

    def visit_float(self, value: Any, name: str | None, depth: int) -> Node:
        if value - value == 0:
            return value
        return {"float": struct.pack(">d", value).hex()}

    def visit_complex(self, value: Any, name: str | None, depth: int) -> Node:
        self.only_torch = False
        return {
            "complex": [self.visit_float(part, name, depth) for part in (value.real, value.imag)]
        }

    def visit_str(self, value: Any, name: str | None, depth: int) -> Node:
        if not value.isascii():
            check_text(value)
        return value

    def visit_version(self, value: Any, name: str | None, depth: int) -> Node:
        self.only_torch = False
        return self.visit_str(str(value), name, depth)

    def visit_bytes(self, value: Any, name: str | None, depth: int) -> Node:
        self.only_torch = False
        array = type(value) is bytearray
        if len(value) <= INLINE_BYTES_MAX:
            return {type(value).__name__: base64.b64encode(value).decode()}
        leaf = BytesLeaf(
            "bytes" if name is None else name, bytes(value), "bytearray_blob" if array else "blob"
        )
        self.leaves.append(leaf)
        return leaf.node

    def visit_size(self, value: Any, name: str | None, depth: int) -> Node:
        return {"size": [int(size) for size in value]}

    def visit_dtype(self, value: Any, name: str | None, depth: int) -> Node:
        return {"dtype": torch_name(value)}

    def visit_device(self, value: Any, name: str | None, depth: int) -> Node:
        return {"device": str(value)}

    def visit_other(self, value: Any) -> Node:
        if isinstance(value, np.generic):
            return self.visit_scalar(value)
        if isinstance(value, torch.Tensor):
            raise CannotSave(another_type(value))
        raise CannotSave(reason(value))

    def visit_scalar(self, value: np.generic) -> Node:
        self.only_torch = False
        if not is_plain(value.dtype):
            raise CannotSave(f"a NumPy scalar of dtype {value.dtype}; {NO_RECORDS}")
        if value.itemsize > ITEMSIZE_MAX:
            size = f"of {value.itemsize} bytes"
            raise CannotSave(f"a NumPy scalar {size}; {ITEMSIZE_MAX} are the most")
        # An empty text has no bytes, but gives four.
        return {"scalar": [value.dtype.str, value.tobytes()[: value.itemsize].hex()]}

    # -- leaves --

    def visit_tensor(self, value: Any, name: str | None, depth: int) -> Node:
        known = self.known.get(id(value))
        if known is not None:
            return self.again(known, name)
        try:
            leaf = TensorLeaf("tensor" if name is None else name, value, _resolved(value))
        except RuntimeError as error:
            # Tensors inside of transforms, and some devices, have no address.
            raise CannotSave(f"a tensor whose bytes torch won't give: {error}") from None
        if value.dim() > DIMENSIONS_MAX:
            raise CannotSave(f"a tensor of {value.dim()} dimensions; {DIMENSIONS_MAX} are the most")
        if value.__dict__:
            # Attributes are pickled too, whatever they are.
            self.only_torch = False
        self.known[id(value)] = leaf
        self.leaves.append(leaf)
        return leaf.node

    def visit_array(self, value: Any, name: str | None, depth: int) -> Node:
        self.only_torch = False
        known = self.known.get(id(value))
        if known is not None:
            return self.again(known, name)
        if not is_plain(value.dtype):
            raise CannotSave(f"a NumPy array of dtype {value.dtype}; {NO_RECORDS}")
        if not 0 < value.itemsize <= ITEMSIZE_MAX:
            size = f"elements of {value.itemsize} bytes"
            raise CannotSave(f"a NumPy array with {size}; they have 1 to {ITEMSIZE_MAX}")
        leaf = ArrayLeaf("tensor" if name is None else name, value)
        self.known[id(value)] = leaf
        self.leaves.append(leaf)
        return leaf.node

    def again(self, leaf: TensorLeaf | ArrayLeaf, name: str | None) -> Node:
        """The node of an object that was seen before, at another place."""
        if leaf.object is None:
            leaf.object = self.objects
            self.objects += 1
        if self.ties == "shared":
            return leaf.node
        # None stands for the root, which is in one place only.
        twin = leaf.named(name or "")
        twin.object = leaf.object
        self.leaves.append(twin)
        return twin.node


def _resolved(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, without pending conjugation or negation; refuses what has no bytes in a row."""
    tensor, why = resolved(tensor)
    if why is not None:
        raise CannotSave(str(why))
    return tensor


def _dotted(name: str | None, step: str) -> str:
    return step if name is None else f"{name}.{step}"


_VISITORS: dict[type, Callable[[_Visit, Any, str | None, int], Node]] = {
    torch.Tensor: _Visit.visit_tensor,
    torch.nn.Parameter: _Visit.visit_tensor,
    np.ndarray: _Visit.visit_array,
    dict: _Visit.visit_dict,
    OrderedDict: _Visit.visit_odict,
    Counter: _Visit.visit_counter,
    list: _Visit.visit_list,
    tuple: _Visit.visit_tuple,
    set: _Visit.visit_set,
    frozenset: _Visit.visit_set,
    NoneType: _Visit.visit_itself,
    bool: _Visit.visit_itself,
    int: _Visit.visit_int,
    float: _Visit.visit_float,
    complex: _Visit.visit_complex,
    str: _Visit.visit_str,
    TorchVersion: _Visit.visit_version,
    bytes: _Visit.visit_bytes,
    bytearray: _Visit.visit_bytes,
    torch.Size: _Visit.visit_size,
    torch.dtype: _Visit.visit_dtype,
    torch.device: _Visit.visit_device,
}
