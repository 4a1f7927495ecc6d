"""Rounds and turns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tensorferry_bench.bench import Bench
from tensorferry_bench.child import Child
from tensorferry_bench.table import Measure, Role, Row


@dataclass(frozen=True)
class Entry:
    """A contestant: the case it is asked for, with what that needs."""

    name: str
    role: Role
    case: str
    needs: dict[str, Any] = field(default_factory=dict)


Measures = dict[str, Measure]
"""Columns, by the field of an answer that fills them."""
Heard = Callable[[Entry, dict[str, Any]], None]
"""Told every answer, whoever gave it."""


def hold(
    bench: Bench[Any],
    contest: str,
    entries: Sequence[Entry],
    rounds: int,
    measures: Measures,
    heard: Heard | None = None,
) -> list[Row]:
    """Everybody has a turn in each round, in a process that lives for all of them."""
    rows = [Row(entry.name, entry.role) for entry in entries]
    children = [Child() for _ in entries]
    try:
        for round_ in range(rounds):
            for turn in range(len(entries)):
                # Who goes first changes: the first of a round finds the machine rested.
                place = (turn + round_) % len(entries)
                bench.step(f"{contest}: {entries[place].name}")
                if rows[place].absent is not None:
                    continue
                answer = take(rows[place], children[place], entries[place], measures)
                if heard is not None and answer:
                    heard(entries[place], answer)
    finally:
        for child in children:
            child.end()
    return rows


def once(
    bench: Bench[Any], contest: str, entry: Entry, row: Row, measures: Measures
) -> dict[str, Any]:
    """A turn in a process of its own, which finds nothing that an earlier one left."""
    bench.step(f"{contest}: {entry.name}")
    if row.absent is not None:
        return {}
    child = Child()
    try:
        return take(row, child, entry, measures)
    finally:
        child.end()


def take(row: Row, child: Child, entry: Entry, measures: Measures) -> dict[str, Any]:
    """One turn."""
    answer = child.ask(entry.case, **entry.needs)
    if "error" in answer:
        row.absent = str(answer["error"])
        return {}
    for name, measure in measures.items():
        told = answer.get(name)
        for value in told if isinstance(told, list) else [told]:
            if value is not None:
                row.add(measure, float(value))
    return answer
