"""The largest size that fits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tensorferry_bench.contest import Measures
from tensorferry_bench.table import Role, Row


class DoesNotFit(Exception):
    """Of a size, with the reason."""


class Largest:
    """Doubles until a size does not fit, then halves the rest.

    Args:
        probe: What a size comes to, in a process of its own; :class:`DoesNotFit` if it does not.
        first: The size to begin with.
        most: None above this is tried.
        precision: The search ends within one of so many parts of the size.
    """

    def __init__(
        self,
        probe: Callable[[int], dict[str, Any]],
        first: int,
        most: int,
        precision: int | None = None,
    ) -> None:
        self._probe = probe
        self._answers: dict[int, dict[str, Any]] = {}
        self._refusal = "nothing was tried"
        fits, fails = self._doubled(first, most)
        while fails - fits > max(1, fits // precision if precision else 1):
            middle = (fits + fails) // 2
            fits, fails = (middle, fails) if self._fits(middle) else (fits, middle)
        self.best = fits

    def row(self, name: str, role: Role, measures: Measures) -> Row:
        """What the largest came to."""
        row = Row(name, role)
        if not self.best:
            row.absent = self._refusal
            return row
        for field, measure in measures.items():
            row.add(measure, self._answers[self.best][field])
        return row

    def _doubled(self, first: int, most: int) -> tuple[int, int]:
        """The last that fits, or none, and the first that does not."""
        fits, next_ = 0, first
        while next_ <= most:
            if not self._fits(next_):
                return fits, next_
            fits, next_ = next_, 2 * next_
        return fits, fits + 1

    def _fits(self, size: int) -> bool:
        try:
            self._answers[size] = self._probe(size)
        except DoesNotFit as reason:
            self._refusal = str(reason)
            return False
        return True
