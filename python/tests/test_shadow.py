"""Losses and parameters are those of plain training, bit for bit, wherever parameters are."""

from __future__ import annotations

import functools
import subprocess
import sys
from pathlib import Path

import pytest
from shadow_cases import (
    MIXES,
    MODELS,
    Trained,
    assert_same,
    forced,
    loop,
    shadowed,
    trained,
    vectors,
)

import tensorferry as ferry


@functools.cache
def plain(name: str) -> Trained:
    return trained(*MODELS[name])


@pytest.mark.parametrize("gradient", ["device", "host"])
@pytest.mark.parametrize("mix", MIXES)
@pytest.mark.parametrize("name", MODELS)
def test_every_mix_of_modes_trains_the_same(name: str, mix: str, gradient: str) -> None:
    planning = forced(MIXES[mix], gradient)
    mine = trained(*MODELS[name], shadowed(_planning=planning))
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
