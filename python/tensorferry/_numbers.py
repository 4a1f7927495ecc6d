"""Numbers in arguments, judged before the core sees them."""

from __future__ import annotations

import operator
from typing import Any

from tensorferry._errors import InvalidInput

LARGEST = (1 << 63) - 1
"""No file, and no count of anything, is larger."""


def whole(name: str, value: Any, least: int = 0, most: int = LARGEST) -> int:
    """A whole number, also another library's; True is none, though it is an int to Python."""
    try:
        if isinstance(value, bool):
            raise TypeError
        number = operator.index(value)
    except TypeError:
        raise InvalidInput(f"{name} is a whole number, not {value!r}") from None
    if number < least:
        raise InvalidInput(f"{name} is at least {least}, not {number}")
    if number > most:
        raise InvalidInput(f"{name} is at most {most}, not {number}")
    return number
