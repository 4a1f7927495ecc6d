"""What a file is, by its content; the core tells, for all who ask."""

from __future__ import annotations

import os
from typing import Literal, TypeAlias

from tensorferry import _lib
from tensorferry._errors import Error

Format: TypeAlias = Literal["safetensors", "torch", "numpy", "index"]


def recognise(path: str | os.PathLike[str]) -> Format:
    """The format of a file, or an error that says what it is instead. What nobody knows counts as
    safetensors: reading it says why it is not."""
    return _lib.recognise(path)


def is_index(path: str) -> bool:
    """Whether it is an index of several files, or may be one, as far as can be told."""
    try:
        return recognise(path) == "index"
    except Error:
        return False
