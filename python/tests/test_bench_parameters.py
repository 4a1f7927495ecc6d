"""The processes behind ``tensorferry bench parameters``: what they tell, and what they leave."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tensorferry._bench.table import Row
from tensorferry._bench_parameters import disk, turns
from tensorferry._bench_parameters.ways import model, way_of

RUN_SECONDS_MAX = 600
# A run starts a Python with torch for each contestant.
pytestmark = pytest.mark.timeout(RUN_SECONDS_MAX + 20)


@pytest.mark.parametrize("workload", ["adamw", "disk"])
def test_everybody_who_is_installed_takes_steps(tmp_path: Path, workload: str) -> None:
    command = [sys.executable, "-P", "-m", "tensorferry._bench_parameters", "--set", "tiny"]
    ended = subprocess.run(
        [*command, "--only", workload, "--path", str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        timeout=RUN_SECONDS_MAX,
    )
    lines = [json.loads(line) for line in ended.stdout.splitlines()]
    assert lines[-1] == {"end": {}}
    assert list(tmp_path.iterdir()) == []
    (table,) = [line["table"] for line in lines if "table" in line]
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
