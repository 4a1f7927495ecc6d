"""``ferry.optim`` against torch's own optimizers."""

from __future__ import annotations

import contextlib
import copy
import gc
import inspect
import io
import itertools
import os
import pickle
import subprocess
import sys
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from children import started
from torch import nn

import tensorferry as ferry

Make = Callable[..., torch.optim.Optimizer]
PAIRS: list[tuple[Make, Make]] = [
    (ferry.optim.AdamW, torch.optim.AdamW),
    (ferry.optim.Adam, torch.optim.Adam),
]
HALVES = [torch.bfloat16, torch.float16]


@pytest.fixture(params=["memory", "ssd"])
def state(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Both keepers."""
    return "memory" if request.param == "memory" else f"ssd:{tmp_path}"


def parameters(
    dtype: torch.dtype = torch.float32, sizes: tuple[tuple[int, ...], ...] = ((300, 41), (7,), ())
) -> list[nn.Parameter]:
    torch.manual_seed(3)
    return [nn.Parameter(torch.randn(size).to(dtype)) for size in sizes]


def gradients(into: list[nn.Parameter], step: int) -> None:
    generator = torch.Generator().manual_seed(step)
    for parameter in into:
        values = torch.randn(parameter.shape, generator=generator)
        parameter.grad = values.to(parameter.dtype)


def train(optimizer: torch.optim.Optimizer, params: list[nn.Parameter], steps: range) -> None:
    for step in steps:
        gradients(params, step)
        optimizer.step()


def assert_close(ours: list[nn.Parameter], theirs: list[nn.Parameter], steps: int = 8) -> None:
    """To the last few units of what a step adds to."""
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=steps * 2e-7, atol=steps * 2e-8)


def assert_same_state(a: dict[str, Any], b: dict[str, Any], exact: bool = False) -> None:
    assert a["state"].keys() == b["state"].keys()
    for number, expected in b["state"].items():
        found = a["state"][number]
        assert found.keys() == expected.keys()
        for key, value in expected.items():
            assert found[key].dtype == value.dtype, key
            if exact:
                assert torch.equal(found[key], value), key
            else:
                # Units of gradients up to 4, which may cancel.
                torch.testing.assert_close(found[key], value, rtol=2e-6, atol=1e-6)


OPTIONS = [
    {"lr": lr, "betas": betas, "weight_decay": decay, "maximize": maximize, "eps": eps}
    for (lr, eps), betas, decay, maximize in itertools.product(
        [(1e-3, 1e-8), (0.1, 1e-4)],
        [(0.9, 0.999), (0.4, 0.95), (0.0, 0.9)],
        [0.0, 0.1],
        [False, True],
    )
]


@pytest.mark.parametrize(("ours", "theirs"), PAIRS)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_steps_agree_with_torchs_over_options(
    ours: Make, theirs: Make, options: dict[str, Any]
) -> None:
    mine, others = parameters(), parameters()
    a, b = ours(mine, **options), theirs(others, **options)
    train(a, mine, range(8))
    train(b, others, range(8))
    assert_close(mine, others)
    assert_same_state(a.state_dict(), b.state_dict())


@pytest.mark.parametrize("way", [{"foreach": True}, {"fused": True}], ids=str)
def test_steps_agree_with_torchs_other_ways(way: dict[str, Any]) -> None:
    mine, others = parameters(), parameters()
    train(ferry.optim.AdamW(mine, lr=0.01), mine, range(8))
    train(torch.optim.AdamW(others, lr=0.01, **way), others, range(8))
    assert_close(mine, others)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize(("ours", "theirs"), PAIRS)
def test_halves_step_as_their_float32_selves_do_and_are_those_rounded(
    ours: Make, theirs: Make, dtype: torch.dtype, state: str
) -> None:
    mine = parameters(dtype)
    others = [nn.Parameter(parameter.detach().float()) for parameter in mine]
    a, b = (
        ours(mine, lr=1e-3, weight_decay=0.1, state=state),
        theirs(others, lr=1e-3, weight_decay=0.1),
    )
    for step in range(10):
        gradients(mine, step)
        for mine_, theirs_ in zip(mine, others, strict=True):
            assert mine_.grad is not None
            theirs_.grad = mine_.grad.float()
        a.step()
        b.step()
    saved = a.state_dict()["state"]
    masters = [saved[number]["master"] for number in range(len(mine))]
    assert_close(masters, others, 10)
    for parameter, master in zip(mine, masters, strict=True):
        assert torch.equal(parameter, master.to(dtype))
        assert saved[0]["exp_avg"].dtype == torch.float32


def test_weights_that_are_set_are_never_overruled_by_their_masters(state: str) -> None:
    (weight,) = parameters(torch.bfloat16, ((50, 3),))
    optimizer = ferry.optim.AdamW([weight], lr=1e-2, weight_decay=0.0, state=state)
    train(optimizer, [weight], range(3))
    with torch.no_grad():
        weight[:10] = 5.0
        weight.data[10:20] = -7.0
    before = weight.detach().float()
    train(optimizer, [weight], range(3, 4))
    assert (weight.float() - before).abs().max() < 0.05


def test_both_keepers_and_any_number_of_threads_give_the_same_bits(tmp_path: Path) -> None:
    def run(state: str, threads: int, dtype: torch.dtype) -> list[nn.Parameter]:
        params = parameters(dtype, ((700, 1000), (3,), (1200, 300), *[(100,)] * 50))
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            train(ferry.optim.AdamW(params, lr=0.01, state=state), params, range(3))
        finally:
            torch.set_num_threads(before)
        return params

    for dtype in (torch.float32, torch.bfloat16):
        alone = run("memory", 1, dtype)
        for state, threads in [("memory", 4), (f"ssd:{tmp_path}", 1), (f"ssd:{tmp_path}", 3)]:
            assert all(map(torch.equal, alone, run(state, threads, dtype)))


def test_groups_have_settings_of_their_own(state: str) -> None:
    def groups(params: list[nn.Parameter]) -> list[dict[str, Any]]:
        return [{"params": params[:1], "lr": 0.1}, {"params": params[1:], "weight_decay": 0.5}]

    mine, others = parameters(), parameters()
    a = ferry.optim.AdamW(groups(mine), state=state)
    b = torch.optim.AdamW(groups(others))
    train(a, mine, range(4))
    train(b, others, range(4))
    late, late_too = parameters(sizes=((9, 9),)), parameters(sizes=((9, 9),))
    a.add_param_group({"params": late, "betas": (0.5, 0.9)})
    b.add_param_group({"params": late_too, "betas": (0.5, 0.9)})
    train(a, mine + late, range(4, 8))
    train(b, others + late_too, range(4, 8))
    assert_close(mine + late, others + late_too)


def test_a_parameter_without_a_gradient_stays_as_it_is(state: str) -> None:
    mine, others = parameters(), parameters()
    a, b = ferry.optim.AdamW(mine, state=state), torch.optim.AdamW(others)
    for step in range(6):
        gradients(mine, step)
        gradients(others, step)
        if step % 2:
            mine[0].grad = others[0].grad = None
        if step < 3:
            mine[1].grad = others[1].grad = None
        a.step()
        b.step()
    assert_close(mine, others)
    assert float(a.state[mine[0]]["step"]) == 3
    a.zero_grad()
    assert a.step() is None


@pytest.mark.parametrize(("ours", "theirs"), PAIRS)
def test_state_dicts_load_into_one_another(ours: Make, theirs: Make, state: str) -> None:
    mine, others = parameters(), parameters()
    a, b = ours(mine, lr=0.05, state=state), theirs(others, lr=0.05)
    train(a, mine, range(3))
    train(b, others, range(3))
    from_torch, to_torch = parameters(), parameters()
    with torch.no_grad():
        for target, source in zip(from_torch + to_torch, others + mine, strict=True):
            target.copy_(source)
    c, d = ours(from_torch, lr=0.7, state=state), theirs(to_torch, lr=0.7)
    c.load_state_dict(copy.deepcopy(b.state_dict()))
    d.load_state_dict(copy.deepcopy(a.state_dict()))
    assert c.param_groups[0]["lr"] == d.param_groups[0]["lr"] == 0.05
    assert_same_state(c.state_dict(), b.state_dict(), exact=True)
    assert_same_state(d.state_dict(), a.state_dict(), exact=True)
    for optimizer, params in ((a, mine), (b, others), (c, from_torch), (d, to_torch)):
        train(optimizer, params, range(3, 6))
    assert_close(from_torch, others)
    assert_close(mine, to_torch)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_run_goes_on_from_a_saved_state_bit_for_bit(
    dtype: torch.dtype, state: str, tmp_path: Path
) -> None:
    mine = parameters(dtype)
    optimizer = ferry.optim.AdamW(mine, lr=0.05, state=state)
    train(optimizer, mine, range(3))
    ferry.save({"model": mine, "optimizer": optimizer.state_dict()}, tmp_path / "run.ferry")
    train(optimizer, mine, range(3, 6))
    saved = ferry.load(tmp_path / "run.ferry")
    again = [nn.Parameter(value.detach().clone()) for value in saved["model"]]
    other = ferry.optim.AdamW(again, lr=0.3, state=state)
    train(other, again, range(7, 8))
    with torch.no_grad():
        for target, source in zip(again, saved["model"], strict=True):
            target.copy_(source)
    other.load_state_dict(saved["optimizer"])
    train(other, again, range(3, 6))
    assert all(map(torch.equal, again, mine))


def test_halves_take_torchs_state_and_torch_takes_theirs(state: str) -> None:
    mine, others = parameters(torch.bfloat16), parameters(torch.bfloat16)
    a, b = ferry.optim.AdamW(mine, state=state), torch.optim.AdamW(others)
    train(b, others, range(2))
    a.load_state_dict(b.state_dict())
    train(a, mine, range(2, 4))
    found = a.state_dict()["state"][0]
    assert found["exp_avg"].dtype == found["master"].dtype == torch.float32
    b.load_state_dict(a.state_dict())
    train(b, others, range(4, 5))


def test_hooks_see_whole_states_and_may_change_them(state: str) -> None:
    mine = parameters()
    optimizer = ferry.optim.AdamW(mine, state=state)
    train(optimizer, mine, range(2))
    seen: list[Any] = []
    optimizer.register_state_dict_post_hook(lambda _, told: seen.append(told["state"].get(0)))
    saved = optimizer.state_dict()
    assert "exp_avg" in seen[0]

    def reset(_: Any, told: dict[str, Any]) -> dict[str, Any]:
        return {**told, "state": {}}

    optimizer.register_load_state_dict_pre_hook(reset)
    optimizer.load_state_dict(saved)
    assert optimizer.state_dict()["state"] == {}


def test_schedulers_clipping_closures_and_accumulation_work(state: str) -> None:
    def run(make: Make, **more: Any) -> list[float]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(20, 30), nn.Tanh(), nn.Linear(30, 1))
        optimizer = make(model.parameters(), lr=0.05, **more)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.05, total_steps=20)
        x, y = torch.randn(64, 20), torch.randn(64, 1)
        losses = []

        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            for half in (slice(32), slice(32, 64)):
                loss = nn.functional.mse_loss(model(x[half]), y[half])
                loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            return loss.detach()

        for _ in range(20):
            losses.append(float(optimizer.step(closure)))  # type: ignore[arg-type]
            schedule.step()
        return losses

    ours = run(ferry.optim.AdamW, state=state)
    assert ours == pytest.approx(run(torch.optim.AdamW), rel=1e-4)
    assert ours[-1] < ours[0]


@pytest.mark.parametrize(("ours", "theirs"), PAIRS)
def test_every_argument_of_torchs_is_known(ours: Make, theirs: Make) -> None:
    known = inspect.signature(ours).parameters
    for name, argument in inspect.signature(theirs).parameters.items():
        assert (known[name].default, known[name].kind) == (argument.default, argument.kind), name


@pytest.mark.parametrize(
    "more", [{"foreach": True}, {"foreach": False}, {"fused": True}, {"fused": False}], ids=str
)
def test_foreach_and_fused_change_no_bit_and_are_kept_in_the_groups(more: dict[str, Any]) -> None:
    mine, others = parameters(), parameters()
    a = ferry.optim.AdamW(mine, lr=0.1, **more)
    train(a, mine, range(3))
    train(ferry.optim.AdamW(others, lr=0.1), others, range(3))
    assert all(map(torch.equal, mine, others))
    theirs = torch.optim.AdamW(parameters(), lr=0.1, **more)
    assert a.state_dict()["param_groups"] == theirs.state_dict()["param_groups"]


def test_adam_can_decouple_its_decay_as_torchs_can() -> None:
    mine, others, third = parameters(), parameters(), parameters()
    more = {"weight_decay": 0.3, "decoupled_weight_decay": True}
    train(ferry.optim.Adam(mine, **more), mine, range(3))  # type: ignore[arg-type]
    train(torch.optim.Adam(others, **more), others, range(3))  # type: ignore[arg-type]
    train(ferry.optim.AdamW(third, weight_decay=0.3), third, range(3))
    assert_close(mine, others)
    assert all(map(torch.equal, mine, third))


def test_settings_that_change_between_steps_count_from_the_next_one(state: str) -> None:
    mine, others = parameters(), parameters()
    optimizers = ferry.optim.AdamW(mine, state=state), torch.optim.AdamW(others)
    changes: list[dict[str, Any]] = [
        {"lr": torch.tensor(0.05)},
        {"maximize": True, "weight_decay": 0.3},
        {"betas": (0.5, 0.7), "eps": 1e-3},
        {"foreach": False, "maximize": False},
    ]
    for step, change in enumerate(changes):
        for optimizer, params in zip(optimizers, (mine, others), strict=True):
            optimizer.param_groups[0].update(change)
            train(optimizer, params, range(step, step + 1))
    assert_close(mine, others)
    optimizers[0].param_groups[0]["amsgrad"] = True
    with pytest.raises(ferry.Unsupported, match="amsgrad"):
        optimizers[0].step()


def test_a_learning_rate_can_be_a_tensor() -> None:
    mine, others = parameters(), parameters()
    train(ferry.optim.AdamW(mine, lr=torch.tensor(0.01)), mine, range(3))
    train(torch.optim.AdamW(others, lr=torch.tensor(0.01)), others, range(3))
    assert_close(mine, others)


@pytest.mark.parametrize("fused", [None, True])
def test_a_grad_scaler_scales_and_skips(fused: bool | None, state: str) -> None:
    (weight,) = parameters(sizes=((30, 30),))
    optimizer = ferry.optim.AdamW([weight], lr=0.1, state=state, fused=fused)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for step, factor in enumerate((1.0, float("inf"), 1.0)):
        before = weight.detach().clone()
        optimizer.zero_grad()
        scaler.scale((weight * factor).square().mean()).backward()  # type: ignore[no-untyped-call]
        scaler.step(optimizer)
        scaler.update()
        assert torch.equal(weight, before) == (step == 1)
    assert float(optimizer.state[weight]["step"]) == 2


def test_autograd_notices_that_a_step_has_changed_a_weight() -> None:
    weight = nn.Parameter(torch.ones(3))
    optimizer = ferry.optim.AdamW([weight], lr=0.1)
    loss = (weight * weight).sum()
    weight.grad = torch.ones(3)
    optimizer.step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()  # type: ignore[no-untyped-call]


def test_any_dense_order_in_memory_works(state: str) -> None:
    def make() -> list[nn.Parameter]:
        torch.manual_seed(1)
        image = torch.randn(4, 3, 8, 8).to(memory_format=torch.channels_last)
        return [nn.Parameter(image), nn.Parameter(torch.randn(50, 20).t())]

    mine, others = make(), make()
    a, b = ferry.optim.AdamW(mine, lr=0.1, state=state), torch.optim.AdamW(others, lr=0.1)
    for step in range(4):
        for params in (mine, others):
            gradients(params, step)
            if step == 2:
                for parameter in params:
                    assert parameter.grad is not None
                    parameter.grad = parameter.grad.contiguous()
        a.step()
        b.step()
    assert_close(mine, others)
    assert_same_state(a.state_dict(), b.state_dict())
    assert a.state_dict()["state"][0]["exp_avg"].stride() == mine[0].stride()
    again = make()
    c = ferry.optim.AdamW(again, state=state)
    c.load_state_dict(b.state_dict())
    assert_same_state(c.state_dict(), b.state_dict(), exact=True)


def test_state_of_another_order_is_laid_out_anew_in_memory_and_refused_on_disk(
    state: str,
) -> None:
    mine = [nn.Parameter(torch.randn(2, 3, 4, 4))]
    optimizer = ferry.optim.AdamW(mine, lr=0.1, state=state)
    others = [nn.Parameter(mine[0].detach().clone())]
    theirs = torch.optim.AdamW(others, lr=0.1)
    train(optimizer, mine, range(2))
    train(theirs, others, range(2))
    mine[0].data = mine[0].data.to(memory_format=torch.channels_last)
    if state == "memory":
        train(optimizer, mine, range(2, 4))
        train(theirs, others, range(2, 4))
        assert_close(mine, others)
    else:
        gradients(mine, 2)
        with pytest.raises(ferry.InvalidInput, match="another memory format"):
            optimizer.step()


def test_what_takes_no_steps_is_told_by_name() -> None:
    def step(weight: torch.Tensor, gradient: torch.Tensor) -> None:
        parameter = nn.Parameter(weight)
        parameter.grad = gradient
        ferry.optim.AdamW([("layer.weight", parameter)]).step()

    ones = torch.ones(4, 4)
    with pytest.raises(ferry.Unsupported, match=r"layer.weight is torch.float64"):
        step(ones.double(), ones.double())
    with pytest.raises(ferry.Unsupported, match=r"layer.weight is a tensor on the meta device"):
        step(ones.to("meta"), ones.to("meta"))
    with pytest.raises(ferry.InvalidInput, match=r"gradient of layer.weight is sparse.*SparseAdam"):
        step(ones, ones.to_sparse())
    with pytest.raises(ferry.InvalidInput, match=r"layer.weight is a view with gaps"):
        step(torch.ones(4, 8)[:, ::2], ones)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(400, 8), (8, 4), (2, 8)])
def test_a_gradient_of_another_shape_is_told_before_any_of_it_is_read(
    shape: tuple[int, ...], dtype: torch.dtype, state: str
) -> None:
    parameter = nn.Parameter(torch.zeros(4, 8, dtype=dtype))
    optimizer = ferry.optim.AdamW([("words", parameter)], state=state)
    parameter.grad = torch.ones_like(parameter)
    parameter.data = torch.zeros(shape, dtype=dtype)
    told = rf"gradient of words is of shape \(4, 8\), the parameter of \({shape[0]}, {shape[1]}\)"
    with pytest.raises(ferry.InvalidInput, match=told):
        optimizer.step()
    assert not parameter.any()
    optimizer.zero_grad()
    parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    assert parameter.all()


def test_options_that_are_missing_are_told(tmp_path: Path) -> None:
    params = parameters()
    with pytest.raises(ferry.Unsupported, match="amsgrad"):
        ferry.optim.Adam(params, amsgrad=True)
    with pytest.raises(ferry.Unsupported, match="differentiable"):
        ferry.optim.AdamW(params, differentiable=True)
    with pytest.raises(ferry.Unsupported, match="capturable=True is not supported: it is for"):
        ferry.optim.AdamW(params, capturable=True)
    with pytest.raises(ferry.Unsupported, match="capturable"):
        ferry.optim.AdamW([{"params": params, "capturable": True}])
    for fault in ({"fused": True, "foreach": True}, {"lr": torch.tensor(0.1), "foreach": True}):
        for make in (ferry.optim.AdamW, torch.optim.AdamW):
            with pytest.raises((ValueError, RuntimeError), match="foreach"):
                make(params, **fault)
    with pytest.raises(ferry.InvalidInput, match='"memory" or "ssd:DIRECTORY"'):
        ferry.optim.AdamW(params, state="tape")
    with pytest.raises(ferry.InvalidInput, match='"memory" or "ssd:DIRECTORY"'):
        ferry.optim.AdamW(params, state="ssd:")
    with pytest.raises(ferry.InvalidInput, match="resume=True"):
        ferry.optim.AdamW(params, resume=True)
    with pytest.raises(ferry.NotFound, match="nowhere"):
        ferry.optim.AdamW(params, state=f"ssd:{tmp_path}/nowhere")
    with pytest.raises(ferry.NotFound, match="no state of an optimizer"):
        ferry.optim.AdamW(params, state=f"ssd:{tmp_path}", resume=True)
    with pytest.raises(ValueError, match="Invalid learning rate"):
        ferry.optim.AdamW(params, lr=-1.0)


def test_a_state_that_is_not_adams_changes_nothing(state: str) -> None:
    mine = parameters()
    optimizer = ferry.optim.AdamW(mine, state=state)
    train(optimizer, mine, range(2))
    before = copy.deepcopy(optimizer.state_dict())
    sgd = torch.optim.SGD(parameters(), momentum=0.9)
    train(sgd, sgd.param_groups[0]["params"], range(1))
    wrong_shape = copy.deepcopy(before)
    wrong_shape["state"][1]["exp_avg"] = torch.zeros(3)
    with_amsgrad = copy.deepcopy(before)
    with_amsgrad["param_groups"][0]["amsgrad"] = True
    for told, why in (
        (sgd.state_dict(), "not Adam's"),
        (wrong_shape, "of shape"),
        (with_amsgrad, "amsgrad"),
    ):
        with pytest.raises(ferry.Error, match=why):
            optimizer.load_state_dict(told)
        assert_same_state(optimizer.state_dict(), before, exact=True)
        assert optimizer.param_groups[0]["amsgrad"] is False


def test_parameters_that_share_memory_are_refused(state: str) -> None:
    memory = torch.randn(100)
    params = [nn.Parameter(memory[:60]), nn.Parameter(memory[40:])]
    gradients(params, 0)
    before = memory.clone()
    with pytest.raises(ferry.InvalidInput, match="share memory"):
        ferry.optim.AdamW(params, state=state).step()
    assert torch.equal(memory, before)


def test_copies_and_pickles_go_on_from_where_they_were(tmp_path: Path) -> None:
    mine = parameters()
    optimizer = ferry.optim.AdamW(mine, lr=0.1)
    train(optimizer, mine, range(2))
    file = io.BytesIO()
    pickle.dump((mine, optimizer), file)
    copied = copy.deepcopy((mine, optimizer))
    file.seek(0)
    train(optimizer, mine, range(2, 4))
    for params, other in (copied, pickle.load(file)):
        train(other, params, range(2, 4))
        assert all(map(torch.equal, params, mine))
    on_disk = ferry.optim.AdamW(mine, state=f"ssd:{tmp_path}")
    with pytest.raises(ferry.Unsupported, match="state_dict"):
        copy.deepcopy(on_disk)


def test_it_is_torchs_optimizer() -> None:
    optimizer = ferry.optim.AdamW(parameters())
    assert isinstance(optimizer, torch.optim.AdamW)
    theirs = torch.optim.AdamW(parameters())
    assert optimizer.defaults == theirs.defaults
    assert optimizer.state_dict() == theirs.state_dict()


def test_the_report_says_what_the_disk_has_cost(tmp_path: Path) -> None:
    params = parameters(sizes=((1000, 1000),))
    optimizer = ferry.optim.AdamW(params, state=f"ssd:{tmp_path}")
    train(optimizer, params, range(3))
    report = optimizer.report()
    assert report.where == str(tmp_path / "optimizer-0.state")
    assert report.steps == 3
    # Eight bytes a parameter each way, and the last block.
    assert 24_000_000 <= report.read_bytes == report.written_bytes <= 24_000_000 + 3 * 4096
    assert report.file_bytes >= 8_000_000
    assert 0 <= report.waited_seconds <= report.seconds
    assert ferry.optim.AdamW(parameters()).report() == ferry.optim.Report("memory")


def test_optimizers_share_a_directory(tmp_path: Path) -> None:
    ours = [parameters(sizes=((500,),)) for _ in range(3)]
    optimizers = [ferry.optim.AdamW(params, state=f"ssd:{tmp_path}") for params in ours]
    for step in range(3):
        for optimizer, params in zip(optimizers, ours, strict=True):
            train(optimizer, params, range(step, step + 1))
    assert len({optimizer.report().where for optimizer in optimizers}) == 3
    assert torch.equal(ours[0][0], ours[1][0])


def resumed(params: list[nn.Parameter], directory: Path) -> torch.optim.Optimizer:
    return ferry.optim.AdamW(params, lr=0.1, state=f"ssd:{directory}", resume=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_state_left_by_an_ended_run_is_resumed(dtype: torch.dtype, tmp_path: Path) -> None:
    mine = parameters(dtype)
    optimizer = ferry.optim.AdamW(mine, lr=0.1, state=f"ssd:{tmp_path}")
    train(optimizer, mine, range(3))
    saved = [parameter.detach().clone() for parameter in mine]
    del optimizer
    again = [nn.Parameter(torch.zeros_like(value)) for value in saved]
    second = resumed(again, tmp_path)
    assert float(second.state[again[0]]["step"]) == 3
    gradients(again, 3)
    with pytest.raises(ferry.InvalidInput, match="not those that the resumed state"):
        second.step()
    with torch.no_grad():
        for target, source in zip(again, saved, strict=True):
            target.copy_(source)
    train(second, again, range(3, 6))
    # What a run without an end gives.
    reference = parameters(dtype)
    train(ferry.optim.AdamW(reference, lr=0.1), reference, range(6))
    assert all(map(torch.equal, again, reference))
    del second
    with pytest.raises(ferry.InvalidInput, match="another size or dtype"):
        resumed([nn.Parameter(torch.zeros(1)), *again[1:]], tmp_path)
    with pytest.raises(ferry.InvalidInput, match="the optimizer has not"):
        resumed(again[:1], tmp_path)


CHILD = """
import json, sys, torch
import tensorferry as ferry
from torch import nn
torch.set_num_threads(2)
directory = sys.argv[1]
params = [nn.Parameter(torch.full((1500, 1000), 1.0)), nn.Parameter(torch.ones(10))]
optimizer = ferry.optim.AdamW(params, lr=0.1, state="ssd:" + directory)
print("ready", flush=True)
for step in range(10**9):
    for parameter in params:
        parameter.grad = torch.full_like(parameter, float(step % 7))
    sys.stdin.readline()
    optimizer.step()
    print(step + 1, flush=True)
"""


SHARES = (0.5, 0.3, 0.7, 0.2, 0.9)
"""Of a step's time, after which a process is killed."""


def reference_after(steps: int) -> list[nn.Parameter]:
    params = [nn.Parameter(torch.full((1500, 1000), 1.0)), nn.Parameter(torch.ones(10))]
    optimizer = ferry.optim.AdamW(params, lr=0.1)
    for step in range(steps):
        for parameter in params:
            parameter.grad = torch.full_like(parameter, float(step % 7))
        optimizer.step()
    return params


def step_and_kill(
    directory: Path, steps: int, moment: Callable[[float], object] | None = None
) -> None:
    """Kills a process after so many steps or, if there is a moment to wait for, which is told how
    long a step takes, in the next one."""
    command = (sys.executable, "-c", CHILD, str(directory))
    with started(*command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        for step in range(steps):
            began = time.perf_counter()
            print(file=child.stdin, flush=True)
            assert child.stdout.readline() == f"{step + 1}\n"
        if moment is not None:
            seconds = time.perf_counter() - began
            print(file=child.stdin, flush=True)
            moment(seconds)


def part_of_a_step(share: float) -> Callable[[float], object]:
    return lambda seconds: time.sleep(seconds * share)


def resumed_after_kill(directory: Path) -> int | None:
    """The steps of a state that goes on as if nothing had happened; None if it is refused."""
    params = [nn.Parameter(torch.zeros(1500, 1000)), nn.Parameter(torch.zeros(10))]
    try:
        optimizer = resumed(params, directory)
    except ferry.Corrupt as error:
        assert "middle of a step" in str(error)  # noqa: PT017
        return None
    steps = int(optimizer.state[params[0]]["step"])
    with torch.no_grad():
        for target, source in zip(params, reference_after(steps), strict=True):
            target.copy_(source)
            target.grad = torch.full_like(target, float(steps % 7))
    optimizer.step()
    assert all(map(torch.equal, params, reference_after(steps + 1)))
    return steps


def test_a_process_that_is_killed_between_steps_leaves_a_whole_state(tmp_path: Path) -> None:
    step_and_kill(tmp_path, 3)
    assert resumed_after_kill(tmp_path) == 3


def test_a_process_that_is_killed_within_a_step_leaves_a_whole_state_or_one_that_is_refused(
    tmp_path: Path,
) -> None:
    for kill, share in enumerate(SHARES):
        directory = tmp_path / str(kill)
        directory.mkdir()
        step_and_kill(directory, 2, part_of_a_step(share))
        assert resumed_after_kill(directory) in (None, 2, 3)


def test_a_process_that_is_killed_when_a_step_has_begun_to_write_leaves_a_state_that_is_refused(
    tmp_path: Path,
) -> None:
    ledger = tmp_path / "optimizer-0.ledger"

    def is_written(_: float) -> None:
        # It is gone as long as it would not be true.
        while ledger.exists():
            pass

    steps: int | None = 0
    # Once is enough, unless this process is held up for as long as a step takes.
    while steps is not None:
        step_and_kill(tmp_path, 2, is_written)
        steps = resumed_after_kill(tmp_path)
        assert steps in (None, 2, 3)


def test_damage_on_the_disk_is_noticed_and_mended_by_a_checkpoint(tmp_path: Path) -> None:
    mine = [(f"layer.{number}", each) for number, each in enumerate(parameters())]
    params = [parameter for _, parameter in mine]
    optimizer = ferry.optim.AdamW(mine, lr=0.1, state=f"ssd:{tmp_path}")
    train(optimizer, params, range(2))
    saved = copy.deepcopy(optimizer.state_dict())
    weights = [parameter.detach().clone() for parameter in params]
    with open(optimizer.report().where, "r+b", buffering=0) as file:
        file.seek(1234)
        byte = file.read(1)
        file.seek(1234)
        file.write(bytes([byte[0] ^ 4]))
        os.fsync(file.fileno())
    with pytest.raises(ferry.Corrupt, match=r"layer\.0"):
        optimizer.state_dict()
    gradients(params, 2)
    with pytest.raises(ferry.Corrupt, match=r"half changed.*layer\.0"):
        optimizer.step()
    for _ in range(2):
        with pytest.raises(ferry.Corrupt, match="earlier step"):
            optimizer.step()
    with pytest.raises(ferry.Corrupt, match="earlier step"):
        optimizer.state_dict()
    optimizer.load_state_dict(saved)
    with torch.no_grad():
        for target, source in zip(params, weights, strict=True):
            target.copy_(source)
    train(optimizer, params, range(2, 4))
    reference = parameters()
    train(ferry.optim.AdamW(reference, lr=0.1), reference, range(4))
    assert all(map(torch.equal, params, reference))
    assert optimizer.report().steps == 4


def files_of_state() -> list[str]:
    """Those that this process has open."""
    found = []
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            found.append(os.readlink(f"/proc/self/fd/{number}"))
    return [path for path in found if "optimizer-" in path]


def test_a_closed_optimizer_lets_go_and_says_so(state: str) -> None:
    mine = parameters()
    with ferry.optim.AdamW(mine, state=state) as optimizer:
        train(optimizer, mine, range(2))
        saved = optimizer.state_dict()
        assert bool(files_of_state()) == (state != "memory")
        before = optimizer.report()
    assert files_of_state() == []
    assert optimizer.report() == before
    optimizer.close()
    hint = "make another one" if state == "memory" else "make another one, with resume=True"
    after = [parameter.detach().clone() for parameter in mine]
    for use in (
        optimizer.step,
        optimizer.state_dict,
        lambda: optimizer.load_state_dict(saved),
        lambda: optimizer.step(lambda: 1 / 0),
        lambda: copy.deepcopy(optimizer),
        lambda: pickle.dumps(optimizer),
        lambda: optimizer.add_param_group({"params": [torch.nn.Parameter(torch.ones(1))]}),
    ):
        with pytest.raises(ferry.Closed, match=f"the optimizer is closed; {hint}"):
            use()
    optimizer.zero_grad()
    with pytest.raises(ferry.Closed):
        optimizer.step()
    assert all(map(torch.equal, mine, after))


def test_the_file_of_a_closed_optimizer_goes_on_in_another(tmp_path: Path) -> None:
    mine, others = parameters(), parameters()
    plain = ferry.optim.AdamW(others)
    train(plain, others, range(4))
    for steps in (range(2), range(2, 4)):
        resume = steps.start > 0
        with ferry.optim.AdamW(mine, state=f"ssd:{tmp_path}", resume=resume) as optimizer:
            train(optimizer, mine, steps)
    assert all(map(torch.equal, mine, others))


def test_an_optimizer_that_nobody_holds_leaves_no_file_open_and_no_memory(state: str) -> None:
    mine = parameters(sizes=((1200, 1000),))
    optimizer = ferry.optim.AdamW(mine, state=state)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    train(optimizer, mine, range(1))
    schedule.step()
    kept = [weakref.ref(value) for value in optimizer.state[mine[0]].values()]
    kept.append(weakref.ref(optimizer))
    del optimizer, schedule
    gc.collect()
    assert [each() for each in kept] == [None] * len(kept)
    assert files_of_state() == []


def test_a_process_that_ended_before_its_first_step_is_resumed_from_the_beginning(
    tmp_path: Path,
) -> None:
    mine, others = parameters(), parameters()
    ferry.optim.AdamW(mine, state=f"ssd:{tmp_path}").close()
    with ferry.optim.AdamW(mine, state=f"ssd:{tmp_path}", resume=True) as optimizer:
        assert not optimizer.state[mine[0]]
        train(optimizer, mine, range(2))
    train(ferry.optim.AdamW(others), others, range(2))
    assert all(map(torch.equal, mine, others))
