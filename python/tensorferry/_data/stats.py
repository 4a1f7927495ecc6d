"""What a loader did, in numbers."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from tensorferry._data.bad import BadSample, Ledger
from tensorferry._data.engine import STAGES, Batch, EngineStats, Stage

NAMED_IN_TEXT_MAX = 5


@dataclass(frozen=True, slots=True)
class Stats:
    """Numbers since the loader was made, as plain data; prints as a small report."""

    epoch: int
    """Of the latest iteration."""
    batches: int
    samples: int
    seconds: float
    """In iterations: waiting and the consumer's."""
    waited_seconds: float
    """For which the consumer waited for batches."""
    stages: dict[str, float]
    """Seconds by stage: ``storage``, ``decode``, ``python`` and ``hand-over``, summed over all
    threads, and ``consumer``, between batches."""
    threads: dict[str, int] = field(default_factory=dict)
    cache_hits: dict[str, int] = field(default_factory=dict)
    """Samples by the tier that had them."""
    predicted: dict[str, float] = field(default_factory=dict)
    measured: dict[str, float] = field(default_factory=dict)
    """What the plan said, and what came."""
    bad_samples: int = 0
    bad: list[BadSample] = field(default_factory=list)
    """The first of them by name."""

    @property
    def samples_per_second(self) -> float:
        """Over all iterations."""
        return self.samples / self.seconds if self.seconds else 0.0

    @property
    def waiting_share(self) -> float:
        """The part of the time for which the consumer waited: 0 is a loader that keeps up."""
        return self.waited_seconds / self.seconds if self.seconds else 0.0

    def __str__(self) -> str:
        lines = [
            f"epoch {self.epoch}: {self.batches} batches, {self.samples} samples in "
            f"{self.seconds:.2f} s ({self.samples_per_second:.0f} samples/s); "
            f"waited {self.waited_seconds:.2f} s ({self.waiting_share:.0%})",
            _line("seconds", {name: f"{each:.2f}" for name, each in self.stages.items()}),
            _line("threads", self.threads),
            _line("cache hits", self.cache_hits),
            *(
                f"{name}: predicted {predicted:.4g}, measured {self.measured.get(name, 0.0):.4g}"
                for name, predicted in self.predicted.items()
            ),
        ]
        if self.bad_samples:
            lines.append(f"bad samples: {self.bad_samples}")
            lines += [f"  {each}" for each in self.bad[:NAMED_IN_TEXT_MAX]]
        return "\n".join(line for line in lines if line)


def _line(name: str, values: Mapping[str, object]) -> str:
    listed = ", ".join(f"{key} {value}" for key, value in values.items())
    return f"{name}: {listed}" if listed else ""


class Meter:
    """Counts and clocks of a loader, fed by its iterations."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.epoch = 0
        self.batches = 0
        self.samples = 0
        self.waited_seconds = 0.0
        self.stages: dict[Stage, float] = dict.fromkeys(STAGES, 0.0)

    def took(self, batch: Batch) -> None:
        """A batch left the engine, whether the user sees it or not."""
        self.ledger.add(batch.bad)
        for stage, seconds in batch.seconds.items():
            self.stages[stage] += seconds

    def yielded(self, batch: Batch) -> None:
        """A batch goes to the user."""
        self.batches += 1
        self.samples += batch.samples
        self.ledger.settle()

    @property
    def seconds(self) -> float:
        """In iterations."""
        return self.waited_seconds + self.stages["consumer"]

    def stats(self, engine: EngineStats) -> Stats:
        """The report."""
        return Stats(
            epoch=self.epoch,
            batches=self.batches,
            samples=self.samples,
            seconds=self.seconds,
            waited_seconds=self.waited_seconds,
            stages={str(stage): seconds for stage, seconds in self.stages.items()},
            threads=dict(engine.threads),
            cache_hits=dict(engine.cache_hits),
            predicted=dict(engine.predicted),
            measured=dict(engine.measured),
            bad_samples=self.ledger.count,
            bad=list(self.ledger.named),
        )


class Watch:
    """Divides an iteration's time between waiting and the consumer."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._left: float | None = None
        self._came = 0.0

    def asked(self) -> None:
        """The consumer asks for a batch."""
        self._came = time.perf_counter()
        if self._left is not None:
            self._meter.stages["consumer"] += self._came - self._left

    def answered(self) -> None:
        """It has one, or an error, or the end."""
        self._left = time.perf_counter()
        self._meter.waited_seconds += self._left - self._came
