"""Waiting too long for a batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tensorferry._errors import Timeout

NAMED_MAX = 16


class DataTimeout(Timeout, RuntimeError):
    """A batch did not come in time. Also a ``RuntimeError``, which torch's loader raises then."""


def timed_out(timeout: float | None, indices: Sequence[Any]) -> str:
    """What to say of a batch of these samples: torch's words, and more."""
    what = f"DataLoader timed out after {timeout} seconds; waiting for samples {_named(indices)}"
    return f"{what}. The dataset may hang or be slower than timeout= allows"


def _named(indices: Sequence[Any]) -> str:
    shown = ", ".join(repr(index) for index in indices[:NAMED_MAX])
    return f"[{shown}{', ...' if len(indices) > NAMED_MAX else ''}]"
