"""The processes behind ``tensorferry bench activations``: what they tell, and what they leave."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from children import HANG_SECONDS
from tensorferry_bench.activations import batch, memory
from tensorferry_bench.activations.scale import SCALES
from tensorferry_bench.activations.ways import ByHand, Sizes
from tensorferry_bench.cases import find
from tensorferry_bench.largest import DoesNotFit, Largest


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    """The lines of a run of one network."""
    path = tmp_path_factory.mktemp("bench")
    command = [sys.executable, "-P", "-m", "tensorferry_bench.activations", "--set", "tiny"]
    ended = subprocess.run(
        [*command, "--only", "mlp", "--path", str(path)],
        capture_output=True,
        text=True,
        check=True,
        timeout=HANG_SECONDS,
    )
    return path, [json.loads(line) for line in ended.stdout.splitlines()]


def test_a_network_is_trained_in_five_ways_with_the_same_gradients(
    told: tuple[Path, list[dict[str, Any]]],
) -> None:
    path, lines = told
    assert "hello" in lines[0]
    assert lines[-1] == {"end": {}}
    assert list(path.iterdir()) == []
    table, stalls = [line["table"] for line in lines if "table" in line]
    names = {measure["name"] for measure in table["measures"]}
    assert [row["role"] for row in table["rows"]] == ["ours", "ours", "limit", "limit", "rival"]
    for row in table["rows"]:
        assert row["absent"] is None, row
        assert row["values"].keys() == names
    same = [each for each in table["findings"] if "bit for bit" in each["what"]]
    assert [each["value"] for each in same] == [1.0, 1.0, 1.0]
    budgets, rows = ("tensorferry", "tensorferry, small budget"), ("measured", "predicted")
    expected = [f"{budget}, {row}" for budget in budgets for row in rows]
    assert [row["name"] for row in stalls["rows"]] == expected
    assert all(row["absent"] is None for row in stalls["rows"])


@pytest.mark.parametrize("compress", ["lossless", "half"])
def test_losses_are_those_of_plain_training_only_without_loss(
    tmp_path: Path, compress: str
) -> None:
    scale = SCALES["tiny"]
    request = {
        "directory": str(tmp_path),
        "budget": 600 << 10,
        "min_bytes": scale.min_bytes,
        "sizes": scale.loss.sizes,
        "steps": 4,
        "batch": 16,
    }
    train = find("loss.run")
    plain = train({**request, "way": "plain"})["losses"]
    ours = train({**request, "way": "ours", "compress": compress})
    assert (ours["losses"] == plain) == (compress == "lossless")
    assert ours["losses"] == pytest.approx(plain, rel=0.05)
    assert ours["stored_bytes"] > 0


@pytest.mark.parametrize("fitting", [0, 1, 4, 5, 37, 10**9])
def test_the_largest_batch_that_fits_is_found(fitting: int) -> None:
    def probe(size: int) -> dict[str, Any]:
        if size > fitting:
            raise DoesNotFit("too much")
        return {"batch": size, "samples_per_second": 1, "peak_bytes": size}

    scale = SCALES["full"]
    search = Largest(probe, 4, scale.batch.most, scale.batch.precision)
    if fitting > scale.batch.most:
        assert search.best == scale.batch.most
    else:
        assert fitting - max(1, fitting // scale.batch.precision) < search.best <= fitting or (
            search.best == fitting
        )
    row = search.row("plain", "limit", batch.MEASURES)
    assert (row.absent is None) == (search.best > 0)


def test_files_by_hand_go_with_the_graph_and_leave_parameters_alone(tmp_path: Path) -> None:
    way = ByHand(tmp_path, 1024)
    weight = torch.nn.Parameter(torch.randn(64, 64))
    x = torch.randn(64, 64)
    with way:
        y = (x @ weight).exp()
    assert len(list(tmp_path.iterdir())) == 2  # x, and what exp gave
    y.sum().backward()  # type: ignore[no-untyped-call]
    del y
    assert list(tmp_path.iterdir()) == []
    again = torch.nn.Parameter(weight.detach().clone())
    (x @ again).exp().sum().backward()  # type: ignore[no-untyped-call]
    assert weight.grad is not None
    assert again.grad is not None
    assert torch.equal(weight.grad, again.grad)


def test_saved_bytes_are_counted_once_and_without_parameters() -> None:
    sizes = Sizes(1024)
    weight = torch.nn.Parameter(torch.randn(64, 64))
    x = torch.randn(64, 64)
    with sizes.hooks():
        y = (x @ weight) * (x @ weight)
    assert y.requires_grad
    assert sizes.bytes == 3 * 64 * 64 * 4  # x, and both products


def test_the_peak_of_a_process_stays() -> None:
    held = torch.ones(32 << 20, dtype=torch.uint8)
    most = memory.peak()
    assert most >= memory.resident() - (8 << 20)
    del held
    # The kernel counts pages of each thread a few at a time.
    assert memory.peak() >= most - (8 << 20)
