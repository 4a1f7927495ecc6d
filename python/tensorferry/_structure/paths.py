"""Dotted paths into nested things, such as ``"optimizer.state.3"``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

Children = Callable[[Any], Mapping[str, Any]]
"""What a thing holds, by the names that flattening gives; nothing, if it holds nothing."""


def find(thing: Any, path: str, children: Children) -> Iterator[Any]:
    """Everything at a path: where keys contain dots, there may be several ways to split it."""
    held = children(thing)
    if path in held:
        yield held[path]
    dot = path.find(".")
    while dot >= 0:
        if path[:dot] in held:
            yield from find(held[path[:dot]], path[dot + 1 :], children)
        dot = path.find(".", dot + 1)
