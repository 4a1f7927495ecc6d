"""A loop that does something else hours in goes on, and trains as it does without a shadow."""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

from typing import Any

import pytest
import torch
from shadow_cases import (
    Batches,
    Loop,
    assert_same,
    loop,
    mlp,
    shadowed,
    trained,
    vectors,
)
from torch import nn
from torch.nn import functional

import tensorferry as ferry

BAD = 20
"""Long after the plan was made."""


def _backward(model: nn.Module, batch: Batches, step: int) -> torch.Tensor:
    x, y = batch(step)
    loss = functional.cross_entropy(model(x), y)
    loss.backward()
    return loss


def skipped(model: nn.Module, optimizer: Any, batch: Batches, step: int) -> float:
    """What everybody does with a loss that is not finite."""
    return _backward(model, batch, step).item()


def zeroed(model: nn.Module, optimizer: Any, batch: Batches, step: int) -> float:
    loss = _backward(model, batch, step)
    optimizer.zero_grad()
    optimizer.step()
    return loss.item()


def zeroed_in_place(model: nn.Module, optimizer: Any, batch: Batches, step: int) -> float:
    loss = _backward(model, batch, step)
    optimizer.zero_grad(set_to_none=False)
    optimizer.step()
    return loss.item()


def stepped_twice(model: nn.Module, optimizer: Any, batch: Batches, step: int) -> float:
    loss = _backward(model, batch, step)
    optimizer.step()
    optimizer.step()
    return loss.item()


def only_stepped(model: nn.Module, optimizer: Any, batch: Batches, step: int) -> float:
    optimizer.step()
    return 0.0


def only_forward(model: nn.Module, optimizer: Any, batch: Batches, step: int) -> float:
    return float(model(batch(step)[0]).sum().item())


def accumulated(model: nn.Module, optimizer: Any, batch: Batches, step: int) -> float:
    _backward(model, batch, step)
    loss = _backward(model, batch, -step)
    optimizer.step()
    return loss.item()


def clipped(model: nn.Module, optimizer: Any, batch: Batches, step: int) -> float:
    loss = _backward(model, batch, step)
    nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
    optimizer.step()
    return loss.item()


def clipped_behind_the_counter(
    model: nn.Module, optimizer: Any, batch: Batches, step: int
) -> float:
    loss = _backward(model, batch, step)
    next(model.parameters()).grad.data[0] = 0.0  # type: ignore[union-attr]
    optimizer.step()
    return loss.item()


def slowed(model: nn.Module, optimizer: Any, batch: Batches, step: int) -> float:
    loss = _backward(model, batch, step)
    optimizer.param_groups[0]["lr"] /= 2
    optimizer.step()
    return loss.item()


def saved(model: nn.Module, optimizer: Any, batch: Batches, step: int) -> float:
    loss = _backward(model, batch, step)
    held = [*model.state_dict().values(), *optimizer.state_dict()["state"][0].values()]
    optimizer.step()
    return loss.item() + sum(float(each.sum()) for each in held)


ODD = [
    skipped,
    zeroed,
    zeroed_in_place,
    stepped_twice,
    only_stepped,
    only_forward,
    accumulated,
    clipped,
    clipped_behind_the_counter,
    slowed,
    saved,
]


def oddly(odd: Any) -> Loop:
    def run(model: nn.Module, optimizer: Any, batch: Batches, steps: int) -> list[float]:
        losses = loop(model, optimizer, batch, BAD)
        losses.append(odd(model, optimizer, batch, BAD))
        return losses + loop(model, optimizer, lambda step: batch(BAD + 1 + step), 6)

    return run


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: odd.__name__)
def test_no_step_that_is_unlike_the_others_ends_a_run_or_changes_its_numbers(odd: Any) -> None:
    mine = trained(mlp, vectors, shadowed(), run=oddly(odd))
    assert_same(mine, trained(mlp, vectors, run=oddly(odd)))
    assert isinstance(mine.model, ferry.ShadowModel)
    report = mine.model.report()
    assert (report.stage, report.update) == ("planned", "step")


@pytest.mark.parametrize("is_bad", [lambda step: step == BAD, lambda step: step % 7 == 6])
def test_a_scaler_that_leaves_out_a_step_because_of_infinities_does_so_here_too(
    is_bad: Any,
) -> None:
    def run(model: nn.Module, optimizer: Any, batch: Batches, steps: int) -> list[float]:
        scaler, losses = torch.amp.GradScaler("cpu", init_scale=2.0), []
        for step in range(steps):
            x, y = batch(step)
            loss = functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            scaler.scale(loss * (float("inf") if is_bad(step) else 1.0)).backward()
            scaler.step(optimizer)
            scaler.update()
            losses += [loss.item(), scaler.get_scale()]
        return losses

    mine = trained(mlp, vectors, shadowed(), run=run, steps=BAD + 6)
    assert_same(mine, trained(mlp, vectors, run=run, steps=BAD + 6))


def test_the_report_says_whether_updates_on_arrival_would_go() -> None:
    def seen(run: Loop) -> str:
        mine = trained(mlp, vectors, shadowed(), run=run, steps=8)
        assert isinstance(mine.model, ferry.ShadowModel)
        return mine.model.report().update_why

    def clipping(model: nn.Module, optimizer: Any, batch: Batches, steps: int) -> list[float]:
        return [clipped(model, optimizer, batch, step) for step in range(steps)]

    assert "choose it if every backward gets its step()" in seen(loop)
    assert "between backward and step()" in seen(clipping)
