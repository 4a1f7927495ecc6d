"""One path's scenarios, one after the other, until the time is over."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from soak.failure import Failure, NotHere
from soak.result import FAILURES_KEPT, Count, Result
from soak.shown import Shown
from soak.stage import Stage

Scenario = Callable[[Stage], None]


@dataclass(frozen=True)
class Plan:
    """Which scenario comes when: the same for the same seed, whichever are passed over."""

    path: str
    scenarios: Mapping[str, Scenario]
    seed: int
    word: str = ""
    """In the names of the kinds that are wanted."""

    def draw(self, number: int) -> tuple[str, random.Random]:
        """Of which kind scenario ``number`` is, and its own source of chance. Every kind comes once
        before any comes again."""
        kinds = sorted(self.scenarios)
        cycle, place = divmod(number, len(kinds))
        random.Random(f"{self.seed} {self.path} cycle {cycle}").shuffle(kinds)
        return kinds[place], random.Random(f"{self.seed} {self.path} scenario {number}")

    def drawn(self, numbers: Iterable[int]) -> Iterator[tuple[int, str, random.Random]]:
        """Those that are wanted."""
        for number in numbers:
            kind, chance = self.draw(number)
            if self.word in kind:
                yield number, kind, chance


def run(plan: Plan, place: Path, *, minutes: float | None, numbers: range | None) -> Result:
    """Until ``minutes`` have passed, or those of ``numbers`` if they are given."""
    result, shown = Result(plan.path, plan.seed), Shown(minutes)
    began = time.monotonic()
    for number, kind, chance in plan.drawn(itertools.count() if numbers is None else numbers):
        shown.progress(result, kind)
        stage = Stage(place / f"{plan.path}-{number}", chance)
        _one(result, shown, kind, plan.scenarios[kind], number, stage)
        result.seconds = time.monotonic() - began
        if minutes is not None and result.seconds >= minutes * 60:
            break
    return result


def _one(
    result: Result, shown: Shown, kind: str, scenario: Scenario, number: int, stage: Stage
) -> None:
    count = result.kinds.setdefault(kind, Count())
    began = time.monotonic()
    try:
        with stage:
            scenario(stage)
        count.done += 1
    except NotHere as missing:
        count.passed_over += 1
        result.not_here[str(missing)] += 1
    except Failure as failure:
        count.failed += 1
        _record(result, shown, kind, number, failure, stage.transcript())
    result.saw.update(stage.saw)
    result.scenarios += 1
    count.seconds += time.monotonic() - began


def _record(
    result: Result, shown: Shown, kind: str, number: int, failure: Failure, transcript: str
) -> None:
    again = f"python -m soak --only {result.path} --seed {result.seed} --scenario {number}"
    shown.say(f"FAILED {result.path} {number} ({kind}): {failure.kind}: {failure}\n  {again}")
    if len(result.failures) < FAILURES_KEPT:
        told: dict[str, Any] = {"scenario": number, "kind": kind, "failure": failure.kind}
        told |= {"text": str(failure), "again": again, "transcript": transcript.splitlines()}
        result.failures.append(told)
