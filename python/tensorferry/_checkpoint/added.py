"""A user's tool among ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tensorferry import _lib
from tensorferry._checkpoint.refused import by_tool
from tensorferry._checkpoint.tools import LoadOptions, SaveOptions, by_draft, parts
from tensorferry._errors import Error, InvalidInput, Io, Unsupported
from tensorferry._structure import Flat
from tensorferry._tool import Tool

BEGINNING_BYTES = 64
"""So many of a file are shown to tools, to be recognised."""


class AddedTool:
    """What the user's tool does, in the words of ours: whole files, options, errors."""

    def __init__(self, tool: Tool) -> None:
        self._tool = tool
        self.name = _text(tool, "name", tool.name)
        self.format = _text(tool, "format", tool.format or self.name)
        for what in ("save", "load"):
            if getattr(type(tool), what) is getattr(Tool, what):
                raise InvalidInput(f"the tool {self.name!r} has no method {what!r}")
        _lib.add_tool(self.name, self.format)

    def refuses(self, obj: object, flat: Flat) -> str | None:
        """Why the tool does not take the object."""
        reason = self._tool.refuses(obj)
        if reason is None or isinstance(reason, str):
            return reason
        what = f"the method 'refuses' of the tool {self.name!r} gives a reason or None"
        raise InvalidInput(f"{what}, not {reason!r}")

    def save(self, obj: object, flat: Flat, path: str, options: SaveOptions) -> dict[str, Any]:
        """Saves, and waits until it is done."""

        def write(draft: Path) -> None:
            try:
                self._tool.save(obj, str(draft))
            except (Error, OSError):
                raise
            except Exception as error:
                what = f"the tool {self.name!r} can't save: {type(error).__name__}: {error}"
                raise Io(f"{what} (file: {path})") from error
            if not draft.is_file() or (flat.nbytes and not draft.stat().st_size):
                raise Io(f"the tool {self.name!r} has written nothing (file: {path})")

        return by_draft(self.name, path, options, write)

    def load(self, path: str, options: LoadOptions) -> Any:
        """Loads the object."""
        if options.mmap:
            raise Unsupported(f"the tool {self.name!r} maps no files (file: {path})")
        try:
            loaded = self._tool.load(path, options.map_location)
        except Error:
            raise
        except Exception as error:
            raise by_tool(error, f"the tool {self.name!r}", path) from error
        return parts(loaded, options.keys)

    def recognises(self, path: str) -> bool:
        """Whether a file that no loader of ours knows is in the tool's own format."""
        with open(path, "rb") as file:
            return bool(self._tool.recognises(file.read(BEGINNING_BYTES)))


def _text(tool: Tool, what: str, given: object) -> str:
    if isinstance(given, str):
        return given
    raise InvalidInput(f"the {what} of {type(tool).__name__} is a text, not {given!r}")
