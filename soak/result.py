"""What came of the scenarios of a path: a table for people, JSON for a record."""

from __future__ import annotations

import json
import platform
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FAILURES_KEPT = 20
"""With their transcripts; further ones are counted."""


@dataclass
class Count:
    """Of one kind of scenario."""

    done: int = 0
    failed: int = 0
    passed_over: int = 0
    seconds: float = 0.0


@dataclass
class Result:
    """Of one path."""

    path: str
    seed: int
    seconds: float = 0.0
    scenarios: int = 0
    kinds: dict[str, Count] = field(default_factory=dict)
    saw: Counter[str] = field(default_factory=Counter)
    """Disturbances that did hit."""
    not_here: Counter[str] = field(default_factory=Counter)
    failures: list[dict[str, Any]] = field(default_factory=list)

    @property
    def failed(self) -> int:
        """Scenarios with a failure."""
        return sum(count.failed for count in self.kinds.values())

    def write(self, path: Path) -> None:
        """As JSON, with the machine."""
        path.parent.mkdir(parents=True, exist_ok=True)
        machine = {"system": platform.platform(), "python": platform.python_version()}
        kinds = {name: vars(count) for name, count in self.kinds.items()}
        told = {**vars(self), "kinds": kinds, "machine": machine}
        path.write_text(json.dumps(told, indent=1) + "\n")


def table(results: list[dict[str, Any]]) -> str:
    """Rows of Markdown, one for each kind of scenario."""
    rows = ["| path | scenario | done | failed | not possible here |", "|---|---|---:|---:|---:|"]
    for result in results:
        for kind, count in sorted(result["kinds"].items()):
            numbers = (count["done"], count["failed"], count["passed_over"])
            rows.append(f"| {result['path']} | {kind} | {' | '.join(map(str, numbers))} |")
    for result in results:
        saw = ", ".join(f"{times} {what}" for what, times in sorted(result["saw"].items()) if times)
        minutes = result["seconds"] / 60
        rows.append("")
        rows.append(
            f"{result['path']}: seed {result['seed']}, {minutes:.0f} minutes, "
            f"{result['scenarios']} scenarios; {saw or 'no disturbance'}."
        )
    return "\n".join(rows)
