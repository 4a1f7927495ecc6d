"""Labels as plain numbers, judged: what is no number is an error, and no other number."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Set
from typing import Any

from tensorferry._errors import InvalidInput

INT_MIN, INT_MAX = -(1 << 63), (1 << 63) - 1


def numbers_of(labels: Any) -> list[bool] | list[int] | list[float | None]:
    """Labels of one kind, in order: bools if all are, floats if one is. NaN becomes None, for which
    JSON has a word."""
    plain = [_number(at, label) for at, label in enumerate(_listed(labels))]
    if any(isinstance(label, float) for label in plain):
        return [None if math.isnan(label) else float(label) for label in plain]
    if all(isinstance(label, bool) for label in plain):
        return [bool(label) for label in plain]
    return [int(label) for label in plain]


def _listed(labels: Any) -> list[Any]:
    """In order, as Python's values where an array can give them."""
    if hasattr(labels, "tolist"):
        labels = labels.tolist()
    if isinstance(labels, str | bytes | Mapping | Set) or not isinstance(labels, Iterable):
        what = f"labels are a list of numbers, one for each file in order, not {_shown(labels)}"
        raise InvalidInput(what)
    return list(labels)


def _number(at: int, label: Any) -> bool | int | float:
    """A plain number: NumPy's and torch's have ``item``."""
    if hasattr(label, "item") and getattr(label, "ndim", 0) == 0:
        label = label.item()
    if not isinstance(label, int | float):
        how = "number classes from 0, and convert text with int() or float()"
        raise InvalidInput(f"labels are numbers, and label {at} is {_shown(label)}; {how}")
    if isinstance(label, int) and not INT_MIN <= label <= INT_MAX:
        raise InvalidInput(f"label {at} is {label}, which int64 can't hold")
    if math.isinf(label):
        raise InvalidInput(f"label {at} is {label}; labels are finite, or NaN")
    return label


def _shown(value: Any) -> str:
    shown = repr(value)
    return f"{shown if len(shown) <= 60 else shown[:57] + '...'} ({type(value).__name__})"
