"""Values that JSON has no word for, from their tags."""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable
from typing import Any


def _float(content: str) -> float:
    value: float = struct.unpack(">d", bytes.fromhex(content))[0]
    return value


def key_text(key: object) -> str:
    """A key of a dict as names and paths show it."""
    try:
        return str(key)
    except ValueError:
        # Python refuses to write integers of thousands of digits in decimal.
        return f"<{type(key).__name__}>"


VALUES: dict[str, Callable[[Any], Any]] = {
    "int": lambda content: int(content, 16),
    "float": _float,
    "bytes": base64.b64decode,
    "bytearray": lambda content: bytearray(base64.b64decode(content)),
}
"""Of those that need neither torch nor NumPy, what makes the value."""
