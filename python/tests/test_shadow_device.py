"""Which device, who may be moved there, and what of it a model takes."""

# mypy: disable-error-code="no-untyped-call, arg-type"

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from shadow_cases import (
    DEVICE,
    Gpt,
    assert_same,
    forced,
    loop,
    mlp,
    ours,
    sentences,
    shadowed,
    trained,
    vectors,
)
from torch import nn

import tensorferry as ferry
from tensorferry._shadow.stages import Stages

MIB = 1 << 20


# -- its name --


def test_nobody_gets_a_device_without_asking() -> None:
    model = mlp()
    message = r"no default device; there are emulated .* waits for the link .*\"cpu\""
    with pytest.raises(ferry.InvalidInput, match=message):
        ferry.ShadowModel(model, ours(model))
    assert inspect.signature(ferry.ShadowModel).parameters["device"].default is None


@pytest.mark.parametrize("device", ["cuda", "cuda:1", "mps", "xpu", "meta"])
@pytest.mark.parametrize("kind", [str, torch.device])
def test_devices_of_torch_that_are_not_supported_are_told(kind: Any, device: str) -> None:
    model = mlp()
    message = f"does not run on '{device}' yet; there are emulated devices"
    with pytest.raises(ferry.Unsupported, match=message):
        ferry.ShadowModel(model, ours(model), kind(device))
    with pytest.raises(ferry.Unsupported, match=message):
        ferry.ShadowModel(model, ours(model), device=kind(device))


def test_what_is_no_device_is_told() -> None:
    model = mlp()
    for device, message in (("tpux", "'tpux' is no device"), (0, "is 0, of type int")):
        with pytest.raises(ferry.InvalidInput, match=message):
            ferry.ShadowModel(model, ours(model), device)


@pytest.mark.parametrize("device", ["cpu", torch.device("cpu"), torch.device("cpu", 0)])
def test_the_processor_is_a_device_without_a_link_to_wait_for(device: Any) -> None:
    plain = trained(mlp, vectors, steps=12)
    mine = trained(mlp, vectors, shadowed(device=device), steps=12)
    assert_same(mine, plain)
    assert isinstance(mine.model, ferry.ShadowModel)
    report = mine.model.report()
    assert (report.stage, report.device) == ("planned", "host")


# -- moving the model --


def wrapped(make: Any = mlp) -> tuple[Any, Any]:
    torch.manual_seed(0)
    model = make()
    optimizer = ours(model)
    return shadowed()(model, optimizer), optimizer


def test_a_model_that_is_there_already_can_be_moved_there() -> None:
    def run(model: nn.Module, optimizer: Any, batch: Any, steps: int) -> list[float]:
        losses = []
        for _ in range(2):
            model.to("cpu").to(torch.device("cpu")).to(torch.float32).to("cpu", torch.float32)
            model.to(torch.zeros(1)).cpu().float().type(torch.float32)
            nn.ModuleList([model]).to("cpu", non_blocking=True)
            losses += loop(model, optimizer, batch, steps)
        return losses

    mine = trained(mlp, vectors, shadowed(), run=run, steps=8)
    assert_same(mine, trained(mlp, vectors, run=run, steps=8))
    assert isinstance(mine.model, ferry.ShadowModel)
    assert mine.model.report().stage == "planned"


def test_a_model_in_another_order_of_dimensions_stays_in_it() -> None:
    def make() -> nn.Module:
        model: Any = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 1))
        model.to(memory_format=torch.channels_last)
        return cast(nn.Module, model)

    model, _ = wrapped(make)
    model.to(memory_format=torch.channels_last)
    plain: Any = nn.Sequential(nn.Conv2d(3, 8, 3))
    shadow: Any = shadowed()(plain, ours(plain))
    with pytest.raises(ferry.Unsupported, match=r"0\.weight would be changed or get other memory"):
        shadow.to(memory_format=torch.channels_last)


@pytest.mark.parametrize(
    "change",
    [
        lambda model: model.half(),
        lambda model: model.bfloat16(),
        lambda model: model.double(),
        lambda model: model.to(torch.float16),
        lambda model: model.to("meta"),
        lambda model: model.cuda(),
        lambda model: model.to("cuda"),
        lambda model: model.to_empty(device="cpu"),
        lambda model: model.share_memory(),
        lambda model: model._apply(torch.Tensor.zero_),
        lambda model: nn.ModuleList([model]).half(),
    ],
)
def test_a_model_that_would_be_changed_is_left_as_it_is_and_that_is_told(change: Any) -> None:
    model, optimizer = wrapped()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with pytest.raises(ferry.Unsupported, match=r"0\.weight .*wrapped.* after close\(\)"):
        change(model)
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name]), name
    loop(model, optimizer, vectors, 6)


def test_a_model_can_be_changed_after_close() -> None:
    model, _ = wrapped()
    model.close()
    assert model.half().module[0].weight.dtype == torch.float16


# -- its budget --


def wide() -> nn.Module:
    layers = [nn.Sequential(nn.Linear(256, 256), nn.ReLU()) for _ in range(8)]
    return nn.Sequential(*layers)


def small(budget: str = "4MiB", bandwidth: str = "8GB/s", **options: Any) -> Any:
    torch.manual_seed(0)
    model = wide()
    optimizer = ferry.optim.AdamW(model.parameters(), lr=1e-3)
    device = f"emulated:capacity={budget},bandwidth={bandwidth},latency=1us"
    shadow = ferry.ShadowModel(model, optimizer, device, profile_steps=1, **options)

    def step(rows: int) -> float:
        torch.manual_seed(rows)
        loss = shadow(torch.randn(rows, 256)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return float(loss.item())

    return shadow, step


def test_activations_that_do_not_fit_beside_the_plan_are_an_error_as_on_a_device() -> None:
    shadow, step = small()
    for _ in range(8):
        step(64)
    report = shadow.report()
    assert report.stage == "planned"
    assert report.peak_bytes <= report.budget
    with pytest.raises(ferry.OutOfMemory, match=r"keeps 36\.0 MiB .*needs .* bytes\)") as told:
        step(4096)
    assert shadow.report().peak_bytes > 36 * MIB
    step(64)
    least = int(str(told.value).split(" bytes)")[0].rsplit("(", 1)[1])
    roomy, step = small("64MiB", memory_budget=least)
    for rows in (4096, 4096, 4096, 4096, 64, 4096):
        step(rows)
    report = roomy.report()
    assert report.stage == "planned"
    assert report.peak_bytes <= report.budget == least


def test_activations_that_fit_beside_the_plan_are_counted() -> None:
    shadow, step = small("64MiB")
    for _ in range(4):
        step(64)
    before = shadow.report().peak_bytes
    step(4096)
    kept = 4096 * 256 * 4
    assert shadow.report().peak_bytes >= before + 7 * kept
    assert shadow.report().peak_bytes <= shadow.report().budget


def make_copies_pay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans are made as if layers took long in place, however busy the machine is."""
    plan = Stages._plan_by_core
    seconds = dict.fromkeys(["forward_seconds", "backward_seconds"], 0.01)
    direct = dict.fromkeys(["direct_forward_seconds", "direct_backward_seconds"], 0.1)

    def planned(self: Stages, profile: str) -> str:
        found = json.loads(profile)
        for layer in found["layers"]:
            layer |= seconds | direct
        return plan(self, json.dumps(found))

    monkeypatch.setattr(Stages, "_plan_by_core", planned)


def test_a_batch_that_a_plan_can_have_room_for_runs_the_second_time_with_plain_numbers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make_copies_pay(monkeypatch)
    shadow, step = small()
    losses = [step(64) for _ in range(6)]
    copied = sum(layer.copied_bytes for layer in shadow.report().layers)
    assert copied > 0
    with pytest.raises(ferry.OutOfMemory, match="next forward gets a plan with room for it"):
        step(350)
    losses += [step(350), step(64), step(350)]
    report = shadow.report()
    assert report.stage == "planned"
    assert report.peak_bytes <= report.budget
    torch.manual_seed(0)
    model = wide()
    optimizer = ferry.optim.AdamW(model.parameters(), lr=1e-3)
    expected = []
    for rows in (64,) * 6 + (350, 64, 350):
        torch.manual_seed(rows)
        loss = model(torch.randn(rows, 256)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        expected.append(loss.item())
    assert losses == expected


def test_what_a_checkpoint_computes_once_more_counts_in_backward() -> None:
    torch.manual_seed(0)
    model = wide()
    optimizer = ferry.optim.AdamW(model.parameters(), lr=1e-3)
    device = "emulated:capacity=4MiB,bandwidth=8GB/s,latency=1us"
    shadow = ferry.ShadowModel(model, optimizer, device, profile_steps=1, update="step")
    forward = model.forward
    model.forward = lambda x: torch.utils.checkpoint.checkpoint(forward, x, use_reentrant=True)

    def step(rows: int) -> None:
        loss = shadow(torch.randn(rows, 256, requires_grad=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    for _ in range(5):
        step(64)
    with pytest.raises(ferry.OutOfMemory, match="autograd keeps"):
        step(4096)
    step(64)


@pytest.mark.parametrize("around", [True, False])
def test_what_an_offload_takes_is_not_on_the_device_and_what_it_leaves_is(
    around: bool, tmp_path: Path
) -> None:
    def steps(min_bytes: int) -> Any:
        offload = ferry.ActivationOffload(tmp_path, "64MiB", min_bytes=min_bytes)
        model = wide()
        optimizer = ferry.optim.AdamW(model.parameters(), lr=1e-3)
        device = "emulated:capacity=4MiB,bandwidth=8GB/s,latency=1us"
        if not around:
            forward = model.forward

            def inside(x: torch.Tensor) -> Any:
                with offload:
                    return forward(x)

            model.forward = inside
        shadow = ferry.ShadowModel(model, optimizer, device, profile_steps=1)

        def step(rows: int) -> None:
            x = torch.randn(rows, 256)
            if around:
                with offload:
                    loss = shadow(x).square().mean()
            else:
                loss = shadow(x).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

        return shadow, step

    shadow, step = steps(min_bytes=1024)
    for _ in range(6):
        step(64)
    step(4096)
    assert shadow.report().peak_bytes <= shadow.report().budget
    shadow, step = steps(min_bytes=1 << 30)
    for _ in range(6):
        step(64)
    with pytest.raises(ferry.OutOfMemory, match="keeps 3"):
        step(4096)


def test_what_other_hooks_leave_where_it_is_counts_too() -> None:
    _, step = small()
    for _ in range(6):
        step(64)
    same = torch.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x)
    with same, pytest.raises(ferry.OutOfMemory, match="keeps 3"):
        step(4096)


def test_two_forwards_before_a_backward_count_together() -> None:
    # How much room a plan leaves depends on what was measured; this one leaves nearly all.
    shadow, step = small(_planning=forced(["dha"], "host"))
    for _ in range(6):
        step(64)
    outputs: list[torch.Tensor] = []

    def forwards() -> None:
        while len(outputs) < 100:
            outputs.append(shadow(torch.randn(64, 256)))

    with pytest.raises(ferry.OutOfMemory, match="autograd keeps"):
        forwards()
    assert len(outputs) > 2


def test_a_forward_without_a_graph_keeps_nothing() -> None:
    shadow, step = small()
    for _ in range(6):
        step(64)
    with torch.no_grad():
        shadow(torch.randn(8192, 256))
    assert shadow.report().peak_bytes <= shadow.report().budget


def test_a_plan_that_is_made_again_has_room_for_the_largest_forward_so_far() -> None:
    model, optimizer = wrapped(Gpt)
    loop(model, optimizer, sentences, 12)
    assert model.report().peak_bytes <= model.report().budget
    assert DEVICE.startswith("emulated:")
