"""Dictionaries that outlive their process: a file for each file system, in the user's cache."""

from __future__ import annotations

import hashlib
import os
import threading

from tensorferry import _lib
from tensorferry._errors import Error


class Kept:
    """Where dictionaries that were learned in one way are kept."""

    def __init__(self, name: str) -> None:
        self._name = name

    def read(self, mount: str) -> _lib.Dictionary | None:
        """The dictionary of a file system. What can't be read is learned again."""
        try:
            with open(self._path(mount), encoding="utf-8") as file:
                return _lib.Dictionary.from_json(file.read())
        except (OSError, ValueError, Error):
            return None

    def write(self, mount: str, dictionary: _lib.Dictionary) -> None:
        """Writes a dictionary down. That it can't is no reason to fail a save."""
        path = self._path(mount)
        draft = f"{path}.{os.getpid()}-{threading.get_ident()}"
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(draft, "w", encoding="utf-8") as file:
                file.write(dictionary.to_json())
            os.replace(draft, path)
        except OSError:
            return

    def _path(self, mount: str) -> str:
        home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        digest = hashlib.sha256(mount.encode(errors="replace")).hexdigest()[:16]
        return os.path.join(home, "tensorferry", "tools", f"{digest}-{self._name}.json")
