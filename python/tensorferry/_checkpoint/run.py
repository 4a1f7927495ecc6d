"""Saving and loading: what is chosen, done, and learned from."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

from tensorferry import _lib, _machine
from tensorferry._checkpoint import chooser as choosers
from tensorferry._checkpoint.chooser import Chooser, Clock
from tensorferry._checkpoint.recognise import is_index, recognise
from tensorferry._checkpoint.report import SaveReport
from tensorferry._checkpoint.tools import (
    TOOLS,
    AnyTool,
    CoreTool,
    LoadOptions,
    SaveOptions,
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


def save(chooser: Chooser, obj: object, path: str, options: SaveOptions) -> SaveReport:
    """Saves with the tool that is chosen among those that can."""
    flat = flatten(obj, options.ties)
    report = save_flat(chooser, obj, flat, path, options, chooser.tools.values())
    chooser.remembered.add(path, flat.nbytes, report.tool)
    return report


def save_over(chooser: Chooser, obj: object, path: str, options: SaveOptions) -> SaveReport:
    """The same; if it replaces the index of several ranks, their files go with it."""
    if not is_index(path):
        return save(chooser, obj, path, options)
    from tensorferry._checkpoint.ranks.index import replacing

    with replacing(path):
        return save(chooser, obj, path, options)


def save_core(
    chooser: Chooser, obj: object, flat: Flat, path: str, options: SaveOptions
) -> SaveReport:
    """Saves in our own format: that of the files of several ranks."""
    core = [tool for tool in chooser.tools.values() if isinstance(tool, CoreTool)]
    return save_flat(chooser, obj, flat, path, options, core)


def save_flat(
    chooser: Chooser,
    obj: object,
    flat: Flat,
    path: str,
    options: SaveOptions,
    tools: Iterable[AnyTool],
) -> SaveReport:
    """Saves an object whose parts are known."""
    able = [tool.name for tool in tools if tool.refuses(obj, flat) is None]
    chosen = chooser.to_save(path, flat.nbytes, durable=options.durable, among=able)
    clock = Clock()
    report = SaveReport.of(path, chosen.tool.save(obj, flat, path, options))
    chosen.took(*clock.read())
    return report


def save_behind(
    obj: object, path: str, tool: str, options: SaveOptions
) -> tuple[_lib.Saving, Callable[[float], None] | None]:
    """Starts a save that goes on behind the caller; and whoever wants to know how long it took."""
    named = None if tool == "auto" else tool_named(tool)
    flat = flatten(obj, options.ties)
    if named is None:
        chooser = choosers.behind()
        among = list(chooser.tools)
        chosen = chooser.to_save(path, flat.nbytes, durable=options.durable, among=among)
        assert isinstance(chosen.tool, CoreTool)
        return chosen.tool.save_behind(flat, path, options), chosen.took
    if not isinstance(named, CoreTool):
        raise InvalidInput(f"the tool {tool!r} can't save behind its caller; use 'direct'")
    reason = named.refuses(obj, flat)
    if reason is not None:
        raise InvalidInput(f"can't save with the tool {tool!r}: {reason}")
    return named.save_behind(flat, path, options), None


def load(chooser: Chooser, path: str, options: LoadOptions) -> Any:
    """Loads with the tool that is chosen among those that read the file."""
    # Before anything is read: looking into a small file makes it warm.
    probe = _lib.probe(path)
    if probe is None:
        return load_as_found(path, options)
    warm, stamp = probe
    known = chooser.remembered.of(stamp) or _look(path, chooser)
    if known is None:
        return load_as_found(path, options)
    chosen = chooser.to_load(path, stamp, *known, warm=warm)
    if chosen is None:
        return load_as_found(path, options)
    clock = Clock()
    loaded = chosen.tool.load(path, options)
    if options.reads_all:
        chosen.took(*clock.read())
    return loaded


def load_as_found(path: str, options: LoadOptions) -> Any:
    """Loads as what the file is, or says why it can't."""
    found = recognise(path)
    if found == "index":
        from tensorferry._checkpoint.ranks.load import load as load_parts

        return load_parts(path, options, rank=0, world_size=1)
    if found == "safetensors":
        return load_core(path, options)
    return TOOLS[found].load(path, options)


def _look(path: str, chooser: Chooser) -> tuple[int, str] | None:
    """Size of the object in a file that this process has not saved, and the tool that wrote it;
    nothing of an index of several files."""
    found = recognise(path)
    if found == "index":
        return None
    if found != "safetensors":
        return os.path.getsize(path), found
    # What nobody knows counts as safetensors.
    theirs = next((tool.name for tool in chooser.added if tool.recognises(path)), None)
    if theirs is not None:
        return os.path.getsize(path), theirs
    opened = _lib.Checkpoint(path, tool="buffered", verify=False)
    tool = opened.written_with
    return opened.nbytes, tool if tool in ("direct", "buffered") else "direct"
