"""The directory that files go to, and the lines that tell how far everything is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import IO, Any

from tensorferry._bench_data.scale import Scale
from tensorferry._bench_data.table import Table


class Bench:
    """What every workload is given."""

    def __init__(self, directory: Path, scale: Scale, steps: int, out: IO[str]) -> None:
        self.directory = directory
        self.scale = scale
        self._steps, self._done, self._out = steps, 0, out

    def step(self, what: str) -> None:
        """Says what is done next."""
        self.say(step={"what": what, "done": min(self._done / max(self._steps, 1), 1.0)})
        self._done += 1

    def show(self, table: Table) -> None:
        """Hands a table over."""
        self.say(table=table.plain())

    def say(self, **message: Any) -> None:
        """One line."""
        print(json.dumps(message), file=self._out, flush=True)
