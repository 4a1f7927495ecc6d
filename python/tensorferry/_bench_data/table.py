"""What a contest came to, as the command reads it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Unit = Literal["samples_per_second", "bytes_per_second", "seconds", "bytes", "share"]
Role = Literal["ours", "rival", "limit"]


@dataclass(frozen=True)
class Measure:
    """A column: what was measured of everybody."""

    name: str
    unit: Unit
    better: Literal["more", "less"]


@dataclass
class Row:
    """A contestant and its raw samples by measure; the first row is what others are compared to."""

    name: str
    role: Role
    values: dict[str, list[float]] = field(default_factory=dict)
    absent: str | None = None

    def add(self, measure: Measure, value: float) -> None:
        """One more sample."""
        self.values.setdefault(measure.name, []).append(value)


@dataclass
class Table:
    """One contest; ``absent`` says why there are no rows."""

    name: str
    note: str
    measures: list[Measure]
    rows: list[Row] = field(default_factory=list)
    absent: str | None = None

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)
