"""What a file is, by its content."""

from __future__ import annotations

import os
from typing import Literal, TypeAlias

Format: TypeAlias = Literal["safetensors", "torch", "numpy", "index"]

HEADER_BYTES_MAX = 100_000_000


def recognise(path: str | os.PathLike[str]) -> Format:
    """The format of a file. What nobody knows counts as safetensors: reading it says why it is
    not."""
    if not os.path.isfile(path):
        # Opening it says what it is, in the same words for all tools, and does not wait at a pipe.
        return "safetensors"
    try:
        with open(path, "rb") as file:
            first = file.read(9)
    except OSError:
        return "safetensors"
    if first.startswith(b"\x93NUMPY"):
        return "numpy"
    if first.startswith(b"PK\x03\x04"):
        return "torch"
    header_bytes = int.from_bytes(first[:8], "little")
    if first[8:9] == b"{" and header_bytes <= HEADER_BYTES_MAX:
        return "safetensors"
    if first.startswith((b"\x80\x02", b"\x80\x03", b"\x80\x04")) and first[8:9] != b"{":
        # What torch wrote before it used archives.
        return "torch"
    if first.lstrip().startswith(b'{"') or first.lstrip().startswith(b"{\n"):
        return "index"
    return "safetensors"
