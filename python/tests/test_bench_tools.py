"""What ``tensorferry bench tools`` measures, at small sizes, and how it counts shares."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from tensorferry_bench import tools
from tensorferry_bench.tools import GOALS, POLICIES, READERS, SIZES, WRITERS, Bench

READS = [reader for readers in READERS.values() for reader in readers]


def rows(noise: float) -> list[dict[str, Any]]:
    """Twenty rounds of each goal and size: direct takes one second, the bandit too, others two."""
    chance = random.Random(7)

    def seconds(name: str) -> float:
        best = name in ("direct", "bandit")
        return (1.0 if best else 2.0) * chance.uniform(1.0, 1.0 + noise)

    return [
        {
            "goal": goal,
            "size": size,
            "write": {name: seconds(name) for name in (*WRITERS, *POLICIES)},
            "read": {name: seconds(name) for name in (*READS, *POLICIES)},
        }
        for goal in GOALS
        for size in SIZES
        for _ in range(20)
    ]


def test_a_share_is_the_seconds_of_the_best_tool_over_ones_own() -> None:
    for by_name in tools.shares(rows(0.0)).values():
        assert by_name["bandit"]["mean"] == pytest.approx(1.0)
        assert by_name["direct"]["mean"] == pytest.approx(1.0)
        assert by_name["paper"]["mean"] == pytest.approx(0.5)
        assert by_name["torch"]["mean"] == pytest.approx(0.5)


def test_a_share_is_the_less_sure_the_more_times_scatter() -> None:
    widths: dict[str, list[float]] = {goal: [] for goal in GOALS}
    for noise in (0.0, 0.1, 1.0):
        measured = rows(noise)
        found, sure = tools.shares(measured), tools.intervals(measured)
        for goal in GOALS:
            low, high = sure[goal]["bandit"]
            assert low - 1e-9 <= found[goal]["bandit"]["mean"] <= high + 1e-9
            widths[goal].append(high - low)
    for none, little, much in widths.values():
        assert none < 1e-9 < little < much


@pytest.mark.parametrize("durable", [True, False])
def test_all_tools_and_policies_take_part_in_every_round(
    durable: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tools, "SIZES", (4096, 100_000))
    bench = Bench(str(tmp_path), durable)
    measured = tools.live(bench, 0.01, lambda text: None)
    assert len(measured) == 2 * 4 * len(GOALS)
    for row in measured:
        assert set(row["write"]) == {*WRITERS, *POLICIES}
        assert set(row["read"]) == {*READS, *POLICIES}
        assert all(seconds > 0 for seconds in (*row["write"].values(), *row["read"].values()))
        for chosen in row["chosen"].values():
            assert chosen["write"] in WRITERS
            assert chosen["read"] in READS
    found, sure = tools.shares(measured), tools.intervals(measured)
    lines = tools.table(found, sure).splitlines()
    assert len(lines) == 1 + len(GOALS) * len({*WRITERS, *POLICIES})
    assert sum(" to " in line for line in lines) == len(GOALS) * len(POLICIES)


def test_a_trace_tells_of_every_phase(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "SIZES", (4096,))
    trace = tools.record(Bench(str(tmp_path), durable=True), 0.01, lambda text: None)
    assert [step["phase"] for step in trace["steps"]] == [
        phase for phase in tools.PHASES for _ in range(4)
    ]
    assert all(set(step["write"]) == set(WRITERS) for step in trace["steps"])
    assert all(set(step["read"]) == set(READS) for step in trace["steps"])
