"""Parts of an object in memory, by dotted path."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tensorferry._errors import NotFound


def part(obj: Any, path: str) -> Any:
    """What lies at a dotted path; keys may contain dots themselves."""
    for found in _at(obj, path):
        return found
    top = ", ".join(repr(name) for name, _ in list(_children(obj))[:10])
    raise NotFound(f"the checkpoint has nothing at {path!r}; at the top there are {top}")


def _at(obj: Any, path: str) -> Iterator[Any]:
    for name, item in _children(obj):
        if name == path:
            yield item
        elif path.startswith(f"{name}."):
            yield from _at(item, path[len(name) + 1 :])


def _children(obj: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(obj, Mapping):
        yield from ((str(key), item) for key, item in obj.items())
    elif isinstance(obj, list | tuple):
        yield from ((str(index), item) for index, item in enumerate(obj))
