"""Saving and loading, once it is known what, where and how."""

from __future__ import annotations

from typing import Any

from tensorferry import _lib, _machine
from tensorferry._checkpoint.recognise import recognise
from tensorferry._checkpoint.report import SaveReport
from tensorferry._checkpoint.tools import (
    DIRECT,
    TOOLS,
    CoreTool,
    LoadOptions,
    SaveOptions,
    Tool,
    load_core,
    tool_named,
)
from tensorferry._errors import InvalidInput
from tensorferry._structure import Flat, flatten

STAGING_SHARE = 8
"""By default, one in so many bytes of the memory of this process may be used for staging."""

STAGING_BYTES_MIN, STAGING_BYTES_MAX = 256 << 20, 8 << 30
"""Whatever may be used, while memory is short little is."""


def staging_bytes(asked: str | int | None) -> int:
    """How much memory saves may stage in."""
    if asked is not None:
        return _lib.parse_size(asked)
    share = _machine.memory_bytes() // STAGING_SHARE
    return min(max(share, STAGING_BYTES_MIN), STAGING_BYTES_MAX)


def save_with(tool: Tool, obj: object, flat: Flat, path: str, options: SaveOptions) -> SaveReport:
    """Saves with this tool, or says why it can't."""
    reason = tool.refuses(flat)
    if reason is not None:
        raise InvalidInput(f"can't save with the tool {tool.name!r}: {reason}")
    return SaveReport.of(path, tool.save(obj, flat, path, options))


def save_behind(obj: object, path: str, tool: str, options: SaveOptions) -> _lib.Saving:
    """Starts a save that goes on behind the caller."""
    chosen = DIRECT if tool == "auto" else tool_named(tool)
    flat = flatten(obj, options.ties)
    if not isinstance(chosen, CoreTool):
        raise InvalidInput(f"the tool {tool!r} can't save behind its caller; use 'direct'")
    reason = chosen.refuses(flat)
    if reason is not None:
        raise InvalidInput(f"can't save with the tool {tool!r}: {reason}")
    return chosen.save_behind(flat, path, options)


def load(path: str, options: LoadOptions) -> Any:
    """Loads as what the file is."""
    found = recognise(path)
    if found == "index":
        from tensorferry._checkpoint.ranks.load import load as load_parts

        return load_parts(path, options, rank=0, world_size=1)
    if found == "safetensors":
        return load_core(path, options)
    return TOOLS[found].load(path, options)
