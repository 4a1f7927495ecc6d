"""Losses and parameters are those of plain training, bit for bit, wherever parameters are."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from shadow_cases import (
    DEVICE,
    MIXES,
    MODELS,
    Trained,
    assert_same,
    forced,
    loop,
    ours,
    shadowed,
    trained,
    vectors,
)
from torch import nn

import tensorferry as ferry


@functools.cache
def plain(name: str) -> Trained:
    return trained(*MODELS[name])


@pytest.mark.parametrize("gradient", ["device", "host"])
@pytest.mark.parametrize("mix", MIXES)
@pytest.mark.parametrize("name", MODELS)
def test_every_mix_of_modes_trains_the_same(name: str, mix: str, gradient: str) -> None:
    planning = forced(MIXES[mix], gradient)
    mine = trained(*MODELS[name], shadowed(_planning=planning, update="arrival"))
    assert_same(mine, plain(name))
    model = mine.model
    assert isinstance(model, ferry.ShadowModel)
    report = model.report()
    assert (report.stage, report.iterations, report.update) == ("planned", 50, "arrival")
    chosen = {layer.mode for layer in report.layers}
    assert chosen == set(MIXES[mix])
    assert {layer.gradient for layer in report.layers} - {"none"} == {gradient}
    assert 0 < report.peak_bytes <= report.budget


@pytest.mark.parametrize("reserve", [1.0, 0.5, 0.0])
@pytest.mark.parametrize("planner", ["exact", "paper", "copy"])
@pytest.mark.parametrize("name", MODELS)
def test_every_planner_trains_the_same(name: str, planner: str, reserve: float) -> None:
    mine = trained(*MODELS[name], shadowed(planner=planner, gradient_reserve=reserve))
    assert_same(mine, plain(name))
    model = mine.model
    assert isinstance(model, ferry.ShadowModel)
    report = model.report()
    assert (report.planner, report.stage) == (planner, "planned")
    assert report.predicted_seconds is not None
    assert 0 < report.peak_bytes <= report.budget


def test_the_example_trains_a_model_that_does_not_fit() -> None:
    example = Path(__file__).resolve().parents[2] / "examples/train_a_larger_model.py"
    done = subprocess.run([sys.executable, example], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "times too few" in done.stdout
    assert "bit for bit" in done.stdout


class LongWay:
    """An engine whose gradients take a hundred seconds, as far as it says."""

    def __init__(self, engine: object) -> None:
        self._engine = engine

    def __getattr__(self, name: str) -> object:
        return getattr(self._engine, name)

    def arrived(self, layer: int) -> float:
        self._engine.arrived(layer)  # type: ignore[attr-defined]
        return 100.0


def test_waiting_for_gradients_is_no_layers_compute() -> None:
    mine = trained(*MODELS["mlp"], shadowed(), steps=8)
    model = mine.model
    assert isinstance(model, ferry.ShadowModel)
    assert model._runtime is not None
    gradients = model._runtime._gradients
    gradients._engine = LongWay(gradients._engine)  # type: ignore[assignment]
    loop(model, mine.optimizer, vectors, 1)
    report = model.report()
    assert report.wait_seconds >= 100
    assert report.compute_seconds < 100


def read(make: Callable[[], nn.Module], given: torch.Tensor, **named: Any) -> tuple[Any, Any]:
    """A layer whose parameters are used in place: what the link carried, and what was planned."""
    layer = make()
    planning = forced(["dha"], "host")
    model = ferry.ShadowModel(layer, ours(layer), DEVICE, profile_steps=1, _planning=planning)
    for _ in range(3):
        (model(given) if not named else model(**named)).sum().backward()
    report, profile = model.report(), json.loads(model.profile() or "")
    assert report.stage == "planned"
    return report.layers[0], profile["layers"][0]


@pytest.mark.parametrize(("rows", "times"), [(8, 1), (1024, 1), (1025, 2), (8192, 8)])
def test_parameters_in_place_are_read_once_for_every_1024_rows(rows: int, times: int) -> None:
    nbytes = (16 * 32 + 32) * 4
    layer, planned = read(lambda: nn.Linear(16, 32), torch.ones(rows, 16, requires_grad=True))
    weight = 16 * 32 * 4
    assert planned["direct_forward_bytes"] == times * nbytes
    assert planned["direct_backward_bytes"] == times * weight
    assert layer.direct_bytes == times * (nbytes + weight)
    same = torch.ones(1, rows, 16, requires_grad=True)
    assert read(lambda: nn.Linear(16, 32), same)[0].direct_bytes == layer.direct_bytes
    named = read(lambda: nn.Linear(16, 32), same, input=same)[0]
    assert named.direct_bytes == layer.direct_bytes


def test_rows_of_pictures_are_their_positions() -> None:
    picture = torch.ones(2, 3, 32, 32, requires_grad=True)
    layer, planned = read(lambda: nn.Conv2d(3, 4, 3), picture)
    weight, bias = 4 * 3 * 9 * 4, 4 * 4
    assert planned["direct_forward_bytes"] == 2 * (weight + bias)
    assert layer.direct_bytes == 2 * (weight + bias) + 2 * weight
    one = read(lambda: nn.Conv2d(3, 4, 3), picture.detach()[0].requires_grad_())[1]
    assert one["direct_forward_bytes"] == weight + bias
    normed = read(lambda: nn.BatchNorm2d(3), picture)[1]
    assert normed["direct_forward_bytes"] == 2 * 2 * 3 * 4


def test_a_table_in_place_is_read_as_far_as_it_is_looked_up() -> None:
    for words, looked_up in ((10, 10), (5000, 100)):
        _, planned = read(lambda: nn.Embedding(100, 8), torch.zeros(words, dtype=torch.int64))
        assert planned["direct_forward_bytes"] == looked_up * 8 * 4
        assert planned["direct_backward_bytes"] == 0


def test_what_a_checkpoint_computes_once_more_is_read_once_more_and_planned_so() -> None:
    class Again(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(16, 32)

        def forward(self, x: torch.Tensor) -> Any:
            return torch.utils.checkpoint.checkpoint(self.inner, x, use_reentrant=True)

    nbytes, weight = (16 * 32 + 32) * 4, 16 * 32 * 4
    layer, planned = read(Again, torch.ones(2048, 16, requires_grad=True))
    assert planned["direct_forward_bytes"] == 2 * nbytes
    assert planned["direct_backward_bytes"] == 2 * (nbytes + weight)
    assert layer.direct_bytes == 2 * (nbytes + nbytes + weight)
