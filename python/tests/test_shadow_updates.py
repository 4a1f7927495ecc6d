"""What tells whether updates on arrival would be the same: snapshots, and a scaler's question."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from shadow_cases import Batches, forced, loop, mlp, ours, shadowed, trained, vectors
from torch import nn
from torch.nn import functional

import tensorferry as ferry
from tensorferry._optim.scaling import was_asked
from tensorferry._shadow.snapshots import SAMPLES, Snapshot, Snapshots, sampled, total


def halved(tensor: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return tensor.mul_(0.5)


def halved_behind_the_counter(tensor: torch.Tensor) -> torch.Tensor:
    tensor.data.mul_(0.5)
    return tensor


def pointed_elsewhere(tensor: torch.Tensor) -> torch.Tensor:
    tensor.data = tensor.data.clone()
    return tensor


def another(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.clone()


def gone(_: torch.Tensor) -> None:
    return None


CHANGES = [halved, halved_behind_the_counter, pointed_elsewhere, another, gone]


@pytest.mark.parametrize("digest", [total, sampled])
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_snapshot_tells_every_way_to_change_a_tensor(
    change: Callable[[torch.Tensor], Any], digest: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    tensor = torch.randn(10 * SAMPLES)
    snapshot = Snapshot.of(tensor, digest)
    assert snapshot.is_untouched(tensor)
    assert not snapshot.is_untouched(change(tensor))


def test_bits_that_change_while_an_update_is_under_way_are_not_looked_at() -> None:
    tensor = torch.randn(10)
    snapshot = Snapshot.of(tensor, None)
    assert snapshot.is_untouched(halved_behind_the_counter(tensor))
    assert not snapshot.is_untouched(halved(tensor))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.int8])
def test_one_element_more_or_less_changes_the_total(dtype: torch.dtype) -> None:
    tensor = torch.zeros(1000, dtype=dtype)
    before = total(tensor)
    tensor[700] = 1
    assert total(tensor) != before


class Slot:
    """As far as a snapshot needs one."""

    def __init__(self) -> None:
        self.parameter = nn.Parameter(torch.ones(4))
        self.parameter.grad = torch.ones(4)


def test_snapshots_tell_gradients_from_parameters() -> None:
    slots: Any = [Slot() for _ in range(3)]
    slots[2].parameter.grad = torch.ones(4).to_sparse()
    snapshots = Snapshots()
    snapshots.take(slots)
    assert snapshots.changes() == []
    halved(slots[0].parameter.grad)
    slots[2].parameter.grad = None
    assert snapshots.changes() == ["gradients are changed between backward and step()"]
    halved(slots[1].parameter)
    assert len(snapshots.changes()) == 2
    snapshots.clear()
    assert snapshots.changes() == []


def test_an_optimizer_knows_that_a_scaler_has_asked_and_answers_that_it_scales_nothing() -> None:
    model = nn.Linear(3, 3)
    for fused in (None, True):
        optimizer = ferry.optim.AdamW(model.parameters(), fused=fused)
        assert not was_asked(optimizer)
        scaler = torch.amp.GradScaler("cpu", init_scale=1.0)
        scaler.scale(model(torch.ones(3)).sum()).backward()
        scaler.step(optimizer)
        assert was_asked(optimizer)
        assert not was_asked(optimizer), "only once"
        assert getattr(optimizer, "_step_supports_amp_scaling") is False  # noqa: B009
        assert was_asked(optimizer)
        assert not was_asked(copy.deepcopy(optimizer))


def scaled(scaler: torch.amp.GradScaler) -> Any:
    """The loop with a scaler."""

    def run(model: nn.Module, optimizer: Any, batch: Batches, steps: int) -> list[float]:
        losses = []
        for step in range(steps):
            x, y = batch(step)
            loss = functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
            scaler.step(optimizer)
            scaler.update()
            losses.append(loss.item())
        return losses

    return run


def test_a_scaler_whose_scale_is_one_so_far_speaks_against_updates_on_arrival() -> None:
    run = scaled(torch.amp.GradScaler("cpu", init_scale=1.0))
    mine = trained(mlp, vectors, shadowed(), run=run, steps=8)
    assert isinstance(mine.model, ferry.ShadowModel)
    report = mine.model.report()
    assert (report.update, report.update_why) == ("step", "a GradScaler takes the steps")


def test_a_scaler_whose_scale_is_one_is_told_where_updates_are_on_arrival() -> None:
    torch.manual_seed(0)
    module = mlp()
    optimizer = ours(module)
    wrap = shadowed(_planning=forced(["gfgb"], "device"), update="arrival")
    model = wrap(module, optimizer)
    loop(model, optimizer, vectors, 6)
    with pytest.raises(ferry.InvalidInput, match="a GradScaler takes the steps"):
        scaled(torch.amp.GradScaler("cpu", init_scale=1.0))(model, optimizer, vectors, 1)


def test_a_scaler_that_is_off_changes_nothing() -> None:
    run = scaled(torch.amp.GradScaler("cpu", enabled=False))
    wrap = shadowed(_planning=forced(["gfgb"], "device"), update="arrival")
    mine = trained(mlp, vectors, wrap, run=run, steps=8)
    assert mine.losses == trained(mlp, vectors, steps=8).losses
