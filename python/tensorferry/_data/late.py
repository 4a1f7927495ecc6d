"""Waiting too long for a batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tensorferry._errors import Timeout

NAMED_MAX = 16


class DataTimeout(Timeout, RuntimeError):
    """A batch did not come in time. Also a ``RuntimeError``, which torch's loader raises then."""


def named(indices: Sequence[Any]) -> str:
    """Indices for a message, not all of many."""
    shown = ", ".join(repr(index) for index in indices[:NAMED_MAX])
    return f"[{shown}{', ...' if len(indices) > NAMED_MAX else ''}]"
