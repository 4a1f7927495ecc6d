"""What a contest came to, as the command reads it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Unit = Literal["count", "samples_per_second", "bytes_per_second", "seconds", "bytes", "share"]
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


@dataclass(frozen=True)
class Finding:
    """A number that a contest was held for; ``met`` says whether it is as it should be."""

    what: str
    value: float
    aim: str | None = None
    met: bool | None = None


@dataclass
class Table:
    """One contest; ``absent`` says why there are no rows."""

    name: str
    note: str
    measures: list[Measure]
    rows: list[Row] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    absent: str | None = None

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


@dataclass
class Curve:
    """A line: values at equal distances."""

    name: str
    role: Role
    values: list[float]


@dataclass
class Curves:
    """Lines in one figure."""

    name: str
    note: str
    across: str
    """What goes from left to right."""
    up: str
    curves: list[Curve]

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)
