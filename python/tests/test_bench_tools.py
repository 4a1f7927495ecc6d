"""What ``tensorferry bench tools`` measures, at small sizes, and how it counts shares."""

from __future__ import annotations

import os
import statistics
from pathlib import Path
from typing import Any

import pytest
from tensorferry_bench import tools
from tensorferry_bench.tools import NAMES, TOOLS, Bench

SITUATIONS = [("disk", "durable", "cold"), ("disk", "relaxed", "warm")]


def rows() -> list[dict[str, Any]]:
    """Durable, direct takes one second and buffered two; relaxed, the other way round; the others
    take four, and whoever adapts as much as the best."""

    def seconds(name: str, durable: bool) -> float:
        best = "direct" if durable else "buffered"
        return {"adapting": 1.0, "direct": 2.0, "buffered": 2.0, best: 1.0}.get(name, 4.0)

    return [
        {
            "mount": mount,
            "situation": told,
            "size": 4096,
            "write": {name: seconds(name, told[0] == "durable") for name in NAMES},
            "read": dict.fromkeys(NAMES, 1.0),
        }
        for mount, *told in SITUATIONS
        for _ in range(10)
    ]


def test_a_share_is_the_seconds_of_the_best_tool_over_ones_own() -> None:
    durable, relaxed = tools.shares(rows(), "w", statistics.fmean)
    assert durable["situation"] == (*SITUATIONS[0], 4096)
    assert (durable["best"], relaxed["best"]) == ("direct", "buffered")
    for name, shares in {"adapting": (1, 1), "direct": (1, 0.5), "torch": (0.25, 0.25)}.items():
        assert (durable["shares"][name], relaxed["shares"][name]) == pytest.approx(shares)


def test_over_the_mixture_who_adapts_is_beside_the_best_of_all_single_tools() -> None:
    assert tools.over_all(rows(), "w")["adapting"] == pytest.approx(1.5)
    assert tools.over_all(rows(), "w+r")["adapting"] == pytest.approx(1.25)
    assert tools.over_all(rows(), "r")["adapting"] == pytest.approx(1.0)
    assert tools.over_all(rows(), "w")["direct"] == pytest.approx(1.0)


@pytest.mark.parametrize("goal", ["w", "w+r"])
def test_all_tools_and_policies_take_part_in_every_round(goal: str, tmp_path: Path) -> None:
    bench = Bench((4096, 100_000), goal)
    mixture = tools.situations(str(tmp_path), str(tmp_path))
    measured = bench.run(mixture, 0.01, lambda text: None)
    assert len(measured) == len(mixture) * 2 * 4
    assert os.listdir(tmp_path) == []
    for row in measured:
        assert set(row["write"]) == set(row["read"]) == set(NAMES)
        assert all(seconds > 0 for seconds in (*row["write"].values(), *row["read"].values()))
        assert all(row["chosen"][tool] == tool for tool in TOOLS if tool != "mapped")
    lines = tools.table(measured, goal).splitlines()
    assert sum("durable cold" in line for line in lines) == 2 * 2
    assert lines[-1].startswith("all seconds of the mixture")


def test_a_trace_tells_of_every_situation_and_the_single_tools(tmp_path: Path) -> None:
    bench = Bench((4096,), "w+r", TOOLS)
    mixture = tools.situations(str(tmp_path), str(tmp_path))
    steps = tools.trace(bench.run(mixture, 0.01, lambda text: None))["steps"]
    told = {(step["mount"], *step["situation"]) for step in steps}
    assert told == {(one.mount, *one.told) for one in mixture}
    assert all(set(step["read"]) == set(TOOLS) for step in steps)
    assert all(set(step["write"]) == {*TOOLS} - {"mapped"} for step in steps)
