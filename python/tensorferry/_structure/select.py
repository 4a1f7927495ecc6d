"""Parts of a tree of nodes: by dotted path, and the stored tensors that they need."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from tensorferry._errors import NotFound
from tensorferry._structure.memory import memories
from tensorferry._structure.paths import find
from tensorferry._structure.values import VALUES, key_text

BLOBS = ("blob", "bytearray_blob")
"""Bytes of Python that are stored as tensors."""

_LEAVES = ("tensor", "array", *BLOBS)
_CONTAINERS = ("dict", "odict", "counter", "tuple")

SUGGESTED_FROM_MAX = 5000
"""Paths that are compared with one that does not exist."""


def select(node: Any, keys: Sequence[str]) -> dict[str, Any]:
    """The subtrees at dotted paths, such as ``"model"`` or ``"optimizer.state.3"``.

    Keys may contain dots themselves; ``"a.b"`` finds what ``names`` of tensors would suggest.
    """
    return {key: _find_or_raise(node, key) for key in keys}


def names(node: Any, tags: Sequence[str] = _LEAVES) -> list[str]:
    """The stored tensors that are read for these tags of a tree, each once, in order."""
    found = leaves(node, tags)
    shared = memories(found)
    objects: set[int] = set()
    read: dict[str, None] = {}
    for leaf in found:
        if type(leaf) is str:
            read[leaf] = None
        elif "memory" in leaf:
            read |= dict.fromkeys(shared[leaf["memory"]].read())
        elif leaf.get("object") not in objects:
            # One object in several places is made once, from the first.
            read[leaf["name"]] = None
            if "object" in leaf:
                objects.add(leaf["object"])
    return list(read)


def leaves(node: Any, tags: Sequence[str] = _LEAVES) -> list[Any]:
    """What a tree says of stored tensors: a name, or an object with one."""
    found: list[Any] = []
    _collect(node, tags, found)
    return found


def _collect(node: Any, tags: Sequence[str], found: list[Any]) -> None:
    if type(node) is list:
        for item in node:
            _collect(item, tags, found)
    elif type(node) is dict:
        for tag, content in node.items():
            if tag in tags:
                found.append(content)
            elif tag == "metadata":
                _collect(content, tags, found)
            elif tag in _CONTAINERS:
                # Keys hold no tensors.
                items = content.values() if type(content) is dict else content
                for item in items:
                    value = item if type(content) is dict or tag == "tuple" else item[1]
                    _collect(value, tags, found)


def _find_or_raise(node: Any, key: str) -> Any:
    for found in find(node, key, _children):
        return found
    paths = itertools.islice(_paths(node, ""), SUGGESTED_FROM_MAX)
    near = difflib.get_close_matches(key, list(paths), n=3)
    hint = f"; close to it: {', '.join(map(repr, near))}" if near else ""
    if not hint and (top := list(itertools.islice(_children(node), 10))):
        hint = f"; at the top there are {', '.join(map(repr, top))}"
    raise NotFound(f"the checkpoint has nothing at {key!r}{hint}")


def _paths(node: Any, prefix: str) -> Iterator[str]:
    """All paths, those of a container before those inside of its items."""
    children = _children(node)
    yield from (prefix + name for name in children)
    for name, item in children.items():
        yield from _paths(item, f"{prefix}{name}.")


def _children(node: Any) -> dict[str, Any]:
    """What a container holds, by the names that flattening gives; the first of a name counts."""
    if type(node) is list:
        return {str(index): item for index, item in enumerate(node)}
    if type(node) is not dict:
        return {}
    for tag in _CONTAINERS:
        content = node.get(tag)
        if type(content) is dict:
            return content
        if type(content) is list and tag == "tuple":
            return _children(content)
        if type(content) is list:
            children: dict[str, Any] = {}
            for key, item in content:
                children.setdefault(_shown(key), item)
            return children
    return {}


def _shown(key: Any) -> str:
    """A key as flattening shows it in names."""
    return key_text(_key(key))


def _key(node: Any) -> Any:
    if type(node) is not dict:
        return node
    ((tag, content),) = node.items()
    if tag == "tuple":
        return tuple(map(_key, content))
    return VALUES[tag](content)
