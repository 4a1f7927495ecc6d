"""The directory that files go to, and the lines that tell how far everything is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import IO, Any, Generic, TypeVar

from tensorferry_bench.table import Curves, Table

S = TypeVar("S")
"""How much of everything: what a package of workloads calls its scale."""


class Bench(Generic[S]):
    """What every workload is given."""

    def __init__(self, directory: Path, scale: S, steps: int, out: IO[str]) -> None:
        self.directory = directory
        self.scale = scale
        self._steps, self._done, self._out = steps, 0, out

    def step(self, what: str) -> None:
        """Says what is done next."""
        self.say(step={"what": what, "done": min(self._done / max(self._steps, 1), 1.0)})
        self._done += 1

    def show(self, told: Table | Curves) -> None:
        """Hands a table or a figure over."""
        self.say(**{"curves" if isinstance(told, Curves) else "table": told.plain()})

    def say(self, **message: Any) -> None:
        """One line."""
        print(json.dumps(message), file=self._out, flush=True)
