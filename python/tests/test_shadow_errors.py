"""What does not go is said before it does harm, with what to do about it."""

# mypy: disable-error-code="no-untyped-call, arg-type, index"

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable
from typing import Any

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
from torch.nn import functional

import tensorferry as ferry
from tensorferry import _lib

Shadow = _lib.Shadow


def shadow(make: Callable[[], nn.Module] = mlp, **options: Any) -> tuple[Any, Any]:
    torch.manual_seed(0)
    model = make()
    optimizer = ours(model)
    return shadowed(**options)(model, optimizer), optimizer


def on_arrival() -> tuple[Any, Any]:
    """Planned, and updating during backward."""
    model, optimizer = shadow(_planning=forced(["gfgb", "dha"], "device"), update="arrival")
    loop(model, optimizer, vectors, 8)
    assert model.report().update == "arrival"
    return model, optimizer


def backward(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    x, y = vectors(0)
    optimizer.zero_grad()
    functional.cross_entropy(model(x), y).backward()


# -- updates on arrival --


def test_changed_gradients_are_told() -> None:
    model, optimizer = on_arrival()
    backward(model, optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
    with pytest.raises(ferry.InvalidInput, match=r'gradients are changed.*pass update="step"'):
        optimizer.step()


def test_changes_behind_the_counter_of_changes_are_told() -> None:
    model, optimizer = on_arrival()
    backward(model, optimizer)
    for parameter in model.parameters():
        parameter.grad.data.mul_(0.5)
    with pytest.raises(ferry.InvalidInput, match="gradients are changed"):
        optimizer.step()


def test_gradients_that_are_gone_before_a_step_are_told() -> None:
    model, optimizer = on_arrival()
    backward(model, optimizer)
    optimizer.zero_grad()
    with pytest.raises(ferry.InvalidInput, match="gradients are changed"):
        optimizer.step()


def decayed(parameter: torch.Tensor) -> None:
    with torch.no_grad():
        parameter.mul_(0.5)


def assigned(parameter: torch.Tensor) -> None:
    parameter.data = parameter.data * 0.5


@pytest.mark.parametrize("change", [decayed, assigned])
def test_changed_parameters_are_told(change: Callable[[torch.Tensor], None]) -> None:
    model, optimizer = on_arrival()
    backward(model, optimizer)
    change(model.module[2].weight)
    with pytest.raises(ferry.InvalidInput, match=r"parameters are changed .*update=\"step\""):
        optimizer.step()


def test_parameters_that_are_assigned_before_backward_are_told() -> None:
    model, optimizer = on_arrival()
    optimizer.zero_grad()
    loss = model(vectors(0)[0]).sum()
    assigned(model.module[2].weight)
    with pytest.raises(ferry.InvalidInput, match="assigned between forward and backward"):
        loss.backward()


def test_a_hook_before_step_that_comes_later_is_told() -> None:
    model, optimizer = on_arrival()
    optimizer.register_step_pre_hook(lambda *_: None)
    backward(model, optimizer)
    with pytest.raises(ferry.InvalidInput, match=r"hooks that run before step\(\)"):
        optimizer.step()


def test_an_optimizers_state_dict_between_backward_and_step_is_told() -> None:
    model, optimizer = on_arrival()
    backward(model, optimizer)
    with pytest.raises(ferry.InvalidInput, match=r"optimizer's state_dict\(\) comes after backw"):
        optimizer.state_dict()
    optimizer.step()
    optimizer.state_dict()


def test_a_forward_of_a_part_between_backward_and_step_is_told() -> None:
    model, optimizer = on_arrival()
    backward(model, optimizer)
    with pytest.raises(ferry.InvalidInput, match="a part of the model comes after backward and"):
        model.module[0](vectors(0)[0])
    with pytest.raises(ferry.InvalidInput, match="a part of the model comes after backward and"):
        model.module(vectors(0)[0])
    optimizer.step()
    model.module[0](vectors(0)[0])


def test_another_learning_rate_is_told() -> None:
    model, optimizer = on_arrival()
    backward(model, optimizer)
    optimizer.param_groups[0]["lr"] = 0.5
    with pytest.raises(ferry.InvalidInput, match="lr or another setting is changed"):
        optimizer.step()


def test_a_second_forward_before_step_is_told() -> None:
    model, optimizer = on_arrival()
    backward(model, optimizer)
    with pytest.raises(ferry.InvalidInput, match="a forward comes after backward and before step"):
        model(vectors(0)[0])


def test_a_second_backward_before_step_is_told() -> None:
    model, optimizer = on_arrival()
    optimizer.zero_grad()
    first, second = (model(vectors(step)[0]).sum() for step in (0, 1))
    first.backward()
    with pytest.raises(ferry.InvalidInput, match="several backwards for one step"):
        second.backward()


def test_gradients_that_were_there_before_are_told() -> None:
    model, optimizer = on_arrival()
    optimizer.zero_grad(set_to_none=False)
    with pytest.raises(ferry.InvalidInput, match="gradients add up, or are set to zero instead of"):
        model(vectors(0)[0]).sum().backward()


def test_a_state_dict_between_backward_and_step_is_told() -> None:
    model, optimizer = on_arrival()
    backward(model, optimizer)
    with pytest.raises(ferry.InvalidInput, match=r"state_dict\(\) comes after backward"):
        model.state_dict()
    optimizer.step()
    model.state_dict()


def test_after_an_error_a_checkpoint_can_be_loaded() -> None:
    plain = trained(mlp, vectors, steps=12)
    model, optimizer = shadow(_planning=forced(["gfgb", "dha"], "device"), update="arrival")
    torch.manual_seed(1)
    losses = loop(model, optimizer, vectors, 8)
    saved = copy.deepcopy({"model": model.state_dict(), "optimizer": optimizer.state_dict()})
    backward(model, optimizer)
    with pytest.raises(ferry.InvalidInput, match='update="step"'):
        model(vectors(0)[0])
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    losses += loop(model, optimizer, lambda step: vectors(8 + step), 4)
    assert losses == plain.losses


def test_closing_between_backward_and_step_is_told_unless_something_has_failed() -> None:
    model, optimizer = on_arrival()
    backward(model, optimizer)
    with pytest.raises(ferry.InvalidInput, match=r"close\(\) comes after backward and before step"):
        model.close()
    with pytest.raises(KeyError, match="on purpose"), model:
        raise KeyError("on purpose")
    assert not model.module[0]._forward_hooks


def test_a_scaler_is_told() -> None:
    model, optimizer = on_arrival()
    scaler = torch.amp.GradScaler("cpu")
    optimizer.zero_grad()
    scaler.scale(model(vectors(0)[0]).sum()).backward()
    with pytest.raises(ferry.InvalidInput, match=r"gradients are changed|a GradScaler"):
        scaler.step(optimizer)


def test_a_closure_is_told_before_it_is_called() -> None:
    model, optimizer = on_arrival()
    before = copy.deepcopy(model.state_dict())

    def closure() -> float:
        raise AssertionError("it would be stepped twice")

    with pytest.raises(ferry.InvalidInput, match=r'step\(\) is given a closure.*update="step"'):
        optimizer.step(closure)
    assert all(map(torch.equal, before.values(), model.state_dict().values()))
    loop(model, optimizer, vectors, 2)


def test_a_closure_is_told_where_arrival_is_asked_for_and_not_decided_yet() -> None:
    model, optimizer = shadow(update="arrival")
    assert model.report().stage == "discovering"
    with pytest.raises(ferry.InvalidInput, match=r'step\(\) is given a closure.*update="step"'):
        optimizer.step(closure=lambda: backward(model, optimizer))


def test_optimizers_that_can_not_update_on_arrival_are_told(tmp_path: Any) -> None:
    model = mlp()
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(ferry.InvalidInput, match=r"SGD is not ferry\.optim\.Adam or AdamW"):
        ferry.ShadowModel(model, sgd, DEVICE, update="arrival")
    disk = ferry.optim.AdamW(model.parameters(), state=f"ssd:{tmp_path}")
    with pytest.raises(ferry.InvalidInput, match="state is on disk"):
        ferry.ShadowModel(model, disk, DEVICE, update="arrival")
    hooked = ours(model)
    hooked.register_step_pre_hook(lambda *_: None)
    with pytest.raises(ferry.InvalidInput, match="hooks that run before step"):
        ferry.ShadowModel(model, hooked, DEVICE, update="arrival")


# -- the device --


def test_a_budget_that_is_too_small_states_the_least_and_that_is_enough() -> None:
    plain = trained(Gpt, sentences, steps=12)
    model, optimizer = shadow(Gpt, memory_budget="12KiB", gradient_reserve=0.0)
    loop(model, optimizer, sentences, 2)
    with pytest.raises(ferry.InvalidInput, match=r"too small .* needs .* \((\d+) bytes\)") as told:
        loop(model, optimizer, sentences, 1)
    least = int(str(told.value).split("(")[1].split(" bytes")[0])
    model.close()
    wrap = shadowed(memory_budget=least, gradient_reserve=0.0)
    mine = trained(Gpt, sentences, wrap, steps=12)
    assert_same(mine, plain)
    assert isinstance(mine.model, ferry.ShadowModel)
    report = mine.model.report()
    assert report.stage == "planned"
    assert report.peak_bytes <= least
    assert {layer.mode for layer in report.layers} == {"dha"}


def test_devices_and_budgets_that_are_not_there_are_told() -> None:
    with pytest.raises(ferry.InvalidInput, match="no profile"):
        shadow(device="emulated:k80")
    with pytest.raises(ferry.InvalidInput, match="give at most what the device has"):
        shadow(memory_budget="1GiB")


# -- models --


def test_arguments_without_sense_are_told() -> None:
    with pytest.raises(ferry.InvalidInput, match="is no planner"):
        shadow(planner="best")
    with pytest.raises(ferry.InvalidInput, match="update is 'never'"):
        shadow(update="never")
    with pytest.raises(ferry.InvalidInput, match="measure at least one iteration"):
        shadow(profile_steps=0)
    with pytest.raises(ferry.InvalidInput, match=r"give a share from 0\.0 to 1\.0"):
        shadow(gradient_reserve=1.5)


def test_an_optimizer_of_another_model_is_told() -> None:
    with pytest.raises(ferry.InvalidInput, match="none of the model's parameters"):
        ferry.ShadowModel(mlp(), ours(mlp()), DEVICE)
    with pytest.raises(ferry.InvalidInput, match=r"give a torch\.optim\.Optimizer"):
        ferry.ShadowModel(mlp(), torch.optim.lr_scheduler.StepLR, DEVICE)


def test_models_that_can_not_be_wrapped_are_told() -> None:
    def refused(model: Any, message: str, kind: type[Exception] = ferry.Unsupported) -> None:
        optimizer = ours(nn.Linear(1, 1))
        optimizer.param_groups[0]["params"] = list(model.parameters())
        with pytest.raises(kind, match=message):
            ferry.ShadowModel(model, optimizer, DEVICE)

    refused(torch.compile(mlp(), backend="eager"), "is compiled")
    refused(nn.Sequential(nn.Linear(2, 2).to("meta")), "0.weight is on meta", ferry.InvalidInput)
    refused(nn.Linear(2, 2, dtype=torch.complex64), "complex parameters are not moved")
    refused(nn.Embedding(4, 2, sparse=True), "sparse gradients")
    refused(nn.LazyLinear(2), "no shape yet", ferry.InvalidInput)
    overlapping = nn.Linear(2, 2)
    overlapping.weight.data = torch.zeros(2).expand(2, 2)
    refused(overlapping, "view with gaps")
    untied = nn.Sequential(nn.Embedding(4, 2), nn.Linear(2, 4))
    untied[1].weight = nn.Parameter(untied[0].weight.data)
    refused(untied, r"0\.weight and 1\.weight .* share memory.*tie them", ferry.InvalidInput)
    untied[1].weight = nn.Parameter(untied[0].weight.data[3:].expand(1, 2))
    refused(untied, r"0\.weight and 1\.weight .* share memory", ferry.InvalidInput)


def test_parameters_that_lie_side_by_side_are_not_taken_for_tied() -> None:
    def make() -> nn.Module:
        model = mlp()
        flat = nn.utils.parameters_to_vector(model.parameters()).detach()
        nn.utils.vector_to_parameters(flat, model.parameters())
        return model

    plain = trained(make, vectors, steps=6)
    assert_same(trained(make, vectors, shadowed(), steps=6), plain)


def test_a_model_is_wrapped_once() -> None:
    model, optimizer = shadow()
    for again in (model, model.module, nn.Sequential(model.module[0])):
        with pytest.raises(ferry.InvalidInput, match="in a ShadowModel already"):
            ferry.ShadowModel(again, optimizer, DEVICE)
    model.close()
    ferry.ShadowModel(model.module, optimizer, DEVICE).close()


def test_a_wrapped_model_is_not_moved() -> None:
    model, _ = shadow()
    for change in (model.half, model.double, model.cuda, model.share_memory):
        with pytest.raises(ferry.Unsupported, match=r"0\.weight .* is wrapped.* after close\(\)"):
            change()
    with pytest.raises(ferry.Unsupported, match=r"would become torch\.float32 on meta"):
        model.to("meta")
    model.module.double()
    with pytest.raises(ferry.InvalidInput, match=r"has become torch\.float64"):
        model(vectors(0)[0])


def test_assigning_parameters_is_refused() -> None:
    model, _ = shadow()
    with pytest.raises(ferry.Unsupported, match="assign=True"):
        model.load_state_dict(model.state_dict(), assign=True)


# -- the wrapper --


def test_close_gives_plain_tensors_back() -> None:
    plain = trained(mlp, vectors, steps=20)
    model, optimizer = shadow(_planning=forced(["gfgb", "dha", "dfgb"], "device"))
    torch.manual_seed(1)
    losses = loop(model, optimizer, vectors, 10)
    module = model.module
    gradients = [parameter.grad.clone() for parameter in module.parameters()]
    with model:
        homes = [parameter.data_ptr() for parameter in module.parameters()]
    for parameter, home, gradient in zip(module.parameters(), homes, gradients, strict=True):
        assert parameter.data_ptr() != home
        assert torch.equal(parameter.grad, gradient)
    assert not any(each._forward_hooks or each._forward_pre_hooks for each in module.modules())
    with pytest.raises(ferry.Closed, match=r"its model is \.module"):
        model(vectors(0)[0])
    with pytest.raises(ferry.Closed):
        model.report()
    model.close()
    del model
    losses += loop(module, optimizer, lambda step: vectors(10 + step), 10)
    assert losses == plain.losses


def test_close_keeps_weights_that_were_assigned() -> None:
    model, optimizer = shadow(_planning=forced(["gfgb", "dha"], "device"))
    loop(model, optimizer, vectors, 6)
    averaged = nn.utils.parameters_to_vector(model.parameters()).detach() * 0.5
    nn.utils.vector_to_parameters(averaged, model.parameters())
    module = model.module
    model.close()
    assert torch.equal(nn.utils.parameters_to_vector(module.parameters()), averaged)
    loop(module, optimizer, vectors, 1)


def test_names_and_attributes_are_the_models() -> None:
    model, _ = shadow(Gpt)
    inner = model.module
    assert list(model.state_dict()) == list(inner.state_dict())
    assert [name for name, _ in model.named_parameters()] == [
        name for name, _ in inner.named_parameters()
    ]
    assert model.blocks is inner.blocks
    assert model.head.weight is inner.words.weight
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = model.nothing
    around = nn.ModuleDict({"part": model})
    state = around.state_dict()
    assert "part.head.weight" in state
    assert not any("module" in key for key in state)
    changed = {name: tensor + 1 for name, tensor in state.items()}
    assert around.load_state_dict(changed).missing_keys == []
    assert torch.equal(inner.norm.weight, changed["part.norm.weight"])
    model.eval()
    assert not inner.training


def test_copies_of_the_model_are_plain() -> None:
    model, optimizer = shadow(_planning=forced(["gfgb", "dha"], "device"))
    loop(model, optimizer, vectors, 6)
    twin = copy.deepcopy(model.module)
    again = pickle.loads(pickle.dumps(model.module))
    x = vectors(0)[0]
    expected = model(x)
    assert torch.equal(twin(x), expected)
    assert torch.equal(again(x), expected)
    loop(model, optimizer, vectors, 2)
    assert torch.equal(twin(x), expected)
    with pytest.raises(ferry.Unsupported, match=r"copy its \.module"):
        copy.deepcopy(model)


class Failing:
    """An engine that fails when it is told to."""

    fails = False
    read_bytes = staticmethod(Shadow.read_bytes)
    looked_up_bytes = staticmethod(Shadow.looked_up_bytes)

    def __init__(self, *given: Any) -> None:
        self._engine = Shadow(*given)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def enter(self, *given: Any) -> Any:
        if Failing.fails and given[0] == 2:
            Failing.fails = False
            raise ferry.Io("a copy has failed")
        return self._engine.enter(*given)


@pytest.mark.parametrize("in_backward", [False, True])
def test_training_goes_on_after_a_copy_has_failed(
    in_backward: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = trained(mlp, vectors, steps=12)
    monkeypatch.setattr(_lib, "Shadow", Failing)
    model, optimizer = shadow(_planning=forced(["gfgb", "dha", "dfgb"], "host"), update="step")
    torch.manual_seed(1)
    losses = loop(model, optimizer, vectors, 6)
    optimizer.zero_grad()
    if in_backward:
        loss = model(vectors(0)[0]).sum()
    Failing.fails = True
    with pytest.raises(ferry.Io, match="a copy has failed"):
        loss.backward() if in_backward else model(vectors(0)[0])
    losses += loop(model, optimizer, lambda step: vectors(6 + step), 6)
    assert losses == plain.losses


class Interrupted(Failing):
    """An engine whose last waits of a backward are interrupted."""

    at: str | None = None

    def leave(self, layer: int, is_backward: bool) -> float:
        if Interrupted.at == "leave" and is_backward and layer == 0:
            Interrupted.at = None
            raise KeyboardInterrupt
        return self._engine.leave(layer, is_backward)

    def arrived(self, layer: int) -> float:
        if Interrupted.at == "arrived" and layer == 0:
            Interrupted.at = None
            raise KeyboardInterrupt
        return self._engine.arrived(layer)

    def end(self) -> None:
        if Interrupted.at == "end":
            Interrupted.at = None
            raise KeyboardInterrupt
        self._engine.end()


@pytest.mark.parametrize("at", ["leave", "arrived", "end"])
def test_a_backward_that_is_interrupted_at_its_end_leaves_the_next_one_alone(
    at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = trained(mlp, vectors, steps=12)
    monkeypatch.setattr(_lib, "Shadow", Interrupted)
    model, optimizer = shadow(_planning=forced(["gfgb", "dha", "dfgb"], "device"), update="step")
    torch.manual_seed(1)
    losses = loop(model, optimizer, vectors, 6)
    Interrupted.at = at
    with pytest.raises(KeyboardInterrupt):
        backward(model, optimizer)
    with pytest.raises(ferry.InvalidInput, match="last backward has failed"):
        optimizer.step()
    losses += loop(model, optimizer, lambda step: vectors(6 + step), 6)
    assert losses == plain.losses


def test_what_has_arrived_of_a_layer_when_backward_fails_is_not_updated_by_the_next_one() -> None:
    class Turned(nn.Module):
        """Gets the gradient of its shift first, or that of its scale."""

        def __init__(self) -> None:
            super().__init__()
            self.scale, self.shift = nn.Parameter(torch.ones(4)), nn.Parameter(torch.zeros(4))
            self.fails = False

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if not self.fails:
                return (x + self.shift) * self.scale
            scaled = x * self.scale
            scaled.register_hook(fail)
            return scaled + self.shift

    def fail(_: torch.Tensor) -> None:
        raise KeyError("on purpose")

    def make() -> nn.Module:
        return nn.Sequential(nn.Linear(16, 4), Turned())

    plain = trained(make, vectors, steps=12)
    model, optimizer = shadow(make, _planning=forced(["gfgb"], "device"), update="arrival")
    torch.manual_seed(1)
    losses = loop(model, optimizer, vectors, 6)
    model.module[1].fails = True
    with pytest.raises(KeyError, match="on purpose"):
        backward(model, optimizer)
    model.module[1].fails = False
    losses += loop(model, optimizer, lambda step: vectors(6 + step), 6)
    assert losses == plain.losses


def test_a_report_is_a_table_and_json() -> None:
    model, optimizer = shadow(Gpt, gradient_reserve=0.5)
    assert model.report().stage == "discovering"
    assert model.profile() is None
    loop(model, optimizer, sentences, 1)
    loop(model, optimizer, sentences, 10)
    report = model.report()
    text = str(report)
    assert text.startswith("planned, iteration 11; emulated:")
    assert "predicted" in text
    for layer in report.layers:
        assert layer.name in text
        assert layer.why in text
    plain = json.loads(report.to_json())
    assert plain["layers"][0]["mode"] == report.layers[0].mode
    assert plain["peak_bytes"] <= plain["budget"]
    assert 0 <= report.idle_share <= 1
    profile = json.loads(model.profile())
    assert [layer["name"] for layer in profile["layers"]] == [each.name for each in report.layers]
    assert sum(layer.forward_seconds + layer.backward_seconds for layer in report.layers) > 0


def test_a_profile_can_be_planned_on_the_command_line(tmp_path: Any, capfd: Any) -> None:
    model, optimizer = shadow(Gpt)
    loop(model, optimizer, sentences, 4)
    path = tmp_path / "profile.json"
    path.write_text(model.profile())
    assert _lib.cli_main(["tensorferry", "plan", "parameters", str(path), "--budget", "64MiB"]) == 0
    assert "blocks.0.attention" in capfd.readouterr().out
