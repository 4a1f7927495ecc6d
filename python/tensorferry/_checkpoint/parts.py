"""Parts of an object in memory, by dotted path."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from tensorferry._errors import NotFound
from tensorferry._structure.paths import find
from tensorferry._structure.values import key_text


def part(obj: Any, path: str) -> Any:
    """What lies at a dotted path: the same as in a checkpoint of ours that holds the object."""
    for found in find(obj, path, _children):
        return found
    top = ", ".join(map(repr, itertools.islice(_children(obj), 10)))
    raise NotFound(f"the checkpoint has nothing at {path!r}; at the top there are {top}")


def _children(obj: Any) -> dict[str, Any]:
    """What a container holds by name; the first of a name counts."""
    if isinstance(obj, list | tuple):
        return {str(index): item for index, item in enumerate(obj)}
    children: dict[str, Any] = {}
    if isinstance(obj, Mapping):
        for key, item in obj.items():
            children.setdefault(key_text(key), item)
    return children
