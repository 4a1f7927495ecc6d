"""The text that stands in a checkpoint's header, around the tree of nodes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tensorferry._structure.flatten import Flat


@dataclass(frozen=True, slots=True)
class Structure:
    """What the text says."""

    version: int
    checksum: bool
    """Whether the tensors have checksums."""
    tool: str
    """What wrote it."""
    object: Any
    """The tree of nodes."""
    beside: dict[str, Any]
    """What else the text says. Only ``elsewhere`` was judged."""


def structure_text(flat: Flat, *, checksum: bool, tool: str) -> str:
    """The text for what ``flatten`` gave."""
    whole = {"version": flat.version, "checksum": checksum, "tool": tool, "object": flat.object}
    whole |= flat.beside
    # Nodes of tensors that occur twice are shared; that none contains itself, `flatten` saw to.
    return json.dumps(
        whole, ensure_ascii=False, check_circular=False, allow_nan=False, separators=(",", ":")
    )


def parse(text: str) -> Structure:
    """Reads a text that the core has judged."""
    whole = json.loads(text)
    return Structure(
        version=whole.pop("version"),
        checksum=whole.pop("checksum"),
        tool=whole.pop("tool"),
        object=whole.pop("object"),
        beside=whole,
    )
