"""Names of the files of several ranks. All lie beside the index."""

from __future__ import annotations

import os
import re

TOKEN = re.compile(r"g[0-9]{1,15}[a-z0-9]{0,48}")


def rank_file(path: str, rank: int, world_size: int, token: str) -> str:
    """``model-00001-of-00004-g7n2.ferry`` for the index ``model.ferry``."""
    stem, suffix = os.path.splitext(os.path.basename(path))
    return f"{stem}-{rank:05}-of-{world_size:05}-{token}{suffix}"


def beside(path: str, name: str) -> str:
    """A file in the directory of the index."""
    return os.path.join(os.path.dirname(path), name)


def is_plain(name: object) -> bool:
    """Whether it is a name that can only mean a file beside the index."""
    return (
        isinstance(name, str)
        and name not in ("", ".", "..")
        and "/" not in name
        and "\0" not in name
    )
