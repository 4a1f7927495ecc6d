"""The processes behind ``tensorferry bench parameters``: what they tell, and what they leave."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from children import HANG_SECONDS
from tensorferry_bench.contest import Entry
from tensorferry_bench.parameters import disk, reserve, shadow, turns
from tensorferry_bench.parameters.ways import model, way_of
from tensorferry_bench.table import Row


def told(path: Path, workload: str) -> dict[str, Any]:
    """The table of one workload."""
    command = [sys.executable, "-P", "-m", "tensorferry_bench.parameters", "--set", "tiny"]
    ended = subprocess.run(
        [*command, "--only", workload, "--path", str(path)],
        capture_output=True,
        text=True,
        check=True,
        timeout=HANG_SECONDS,
    )
    lines = [json.loads(line) for line in ended.stdout.splitlines()]
    assert lines[-1] == {"end": {}}
    assert list(path.iterdir()) == []
    (table,) = [line["table"] for line in lines if "table" in line]
    assert isinstance(table, dict)
    return table


@pytest.mark.parametrize("workload", ["adamw", "disk"])
def test_everybody_who_is_installed_takes_steps(tmp_path: Path, workload: str) -> None:
    table = told(tmp_path, workload)
    present = {row["name"] for row in table["rows"] if row["absent"] is None}
    expected = {
        "adamw": {"tensorferry", "torch, fused", "torch, foreach"},
        "disk": {
            "tensorferry, state on SSD",
            "the engine without arithmetic",
            "tensorferry, state in memory",
        },
    }
    assert present >= expected[workload]
    assert table["findings"]
    for row in table["rows"]:
        if row["absent"] is None:
            assert all(value > 0 for value in row["values"]["step"])
        else:
            assert "installed" in row["absent"]


def test_all_ways_train_the_same_model_alike() -> None:
    trained = []
    for way in ("ours", "fused", "foreach"):
        parameters = model(5000, 3000, torch.bfloat16)
        stepper = way_of(way, parameters)
        for _ in range(3):
            stepper.step()
        trained.append(torch.cat([each.detach().float() for each in parameters]))
    for other in trained[1:]:
        # A number in the middle between two halves may be rounded either way.
        torch.testing.assert_close(trained[0], other, rtol=1e-2, atol=1e-5)


def row(name: str, step: float, rate: float) -> Row:
    values = {"step": [step], "moved": [rate], "peak memory": [100.0]}
    return Row(name, "ours", values)


def test_findings_are_of_those_who_took_part() -> None:
    rows = [row("ours", 2.0, 1), row("a", 3.0, 1), row("b", 2.5, 1), Row("c", "rival")]
    (found,) = turns.findings(rows)
    assert (found.value, found.met) == (1.25, True)
    assert turns.findings([rows[0], Row("c", "rival")]) == []
    assert turns.findings([Row("ours", "ours"), rows[1]]) == []
    limits = [row("ours", 1, 70.0), Row("fio", "limit"), row("engine", 1, 100.0), row("m", 1, 1.0)]
    share, peak = disk.findings(limits, 100)
    assert (share.value, share.met) == (0.7, False)
    assert "engine" in share.what
    assert peak.value == 100 / 800


def test_a_model_is_trained_under_every_plan_and_without_with_the_same_bits(tmp_path: Path) -> None:
    table = told(tmp_path, "shadow")
    assert [row["role"] for row in table["rows"]] == ["ours", "rival", "rival", "limit"]
    names = {measure["name"] for measure in table["measures"]}
    for row in table["rows"][:3]:
        assert row["absent"] is None, row
        assert row["values"].keys() == names
        assert all(0 <= share < 1 for share in row["values"]["idle"])
    assert table["rows"][3]["values"].keys() == {"iteration"}
    found = {each["what"]: each for each in table["findings"]}
    (same,) = [each for what, each in found.items() if "bit for bit" in what]
    assert (same["value"], same["met"]) == (10, True)
    assert found["most device memory / budget"]["met"]


def test_gradients_in_host_memory_make_room_for_a_larger_model(tmp_path: Path) -> None:
    without, with_ = told(tmp_path, "reserve")["rows"]
    for row in (without, with_):
        assert row["absent"] is None, row
        assert row["values"]["device memory"][0] <= 2 << 20
    assert without["values"]["most blocks"] > with_["values"]["most blocks"]


def answer(steps: int, fingerprint: str) -> dict[str, Any]:
    return {"steps": steps, "fingerprint": fingerprint, "budget_bytes": 100}


def test_other_bits_than_those_of_plain_training_are_an_error_and_no_figure() -> None:
    prints = shadow.Prints()
    one, other = (Entry(name, "ours", "shadow.steps") for name in ("one", "other"))
    prints.hear(one, answer(4, "a"))
    prints.hear(other, answer(4, "a"))
    prints.hear(one, answer(8, "b"))
    assert prints.finding(8).met
    assert not prints.finding(9).met
    with pytest.raises(RuntimeError, match="after 8 steps, losses or parameters of 'other'"):
        prints.hear(other, answer(8, "c"))


def planned(name: str, seconds: float, expected: float, peak: float) -> Row:
    values = {"iteration": [seconds], "predicted / measured": [expected], "idle": [0.1]}
    return Row(name, "ours", values | {"device memory": [peak]})


def test_plans_are_judged_by_speed_prediction_and_budget() -> None:
    rows = [
        planned("exact", 1.0, 1.05, 90),
        planned("paper", 1.1, 0.8, 101),
        planned("copy", 1.25, 1.0, 90),
        Row("plain", "limit", {"iteration": [0.5]}),
    ]
    found = shadow.findings(rows, 100)
    judged = [(each.what.partition(",")[2].strip(), each.met) for each in found[:5]]
    assert judged == [
        ("copy / ours", True),
        ("paper / ours", None),
        ("exact", True),
        ("paper", False),
        ("copy", True),
    ]
    assert (found[5].value, found[5].met) == (1.01, False)
    absent = [*rows[:2], Row("copy", "rival"), rows[3]]
    assert shadow.findings(absent, 100)[0].what == "iteration, paper / ours"


def test_the_larger_model_is_compared_only_with_one_that_ran() -> None:
    larger = Row("0", "ours", {"parameters": [30.0]})
    (found,) = reserve.findings([larger, Row("1", "rival", {"parameters": [15.0]})])
    assert (found.value, found.met) == (2.0, True)
    assert reserve.findings([larger, Row("1", "rival")]) == []
