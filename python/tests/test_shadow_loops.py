"""Loops and models of many kinds train as they do without a shadow."""

# mypy: disable-error-code="no-untyped-call, misc, index, operator, union-attr, no-any-return"

from __future__ import annotations

import copy
import dataclasses
import gc
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from shadow_cases import (
    MODELS,
    Batches,
    Gpt,
    Trained,
    assert_same,
    cnn,
    forced,
    loop,
    mlp,
    ours,
    pictures,
    sentences,
    shadowed,
    trained,
    vectors,
)
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

import tensorferry as ferry
import tensorferry.shadow

MIXED = ["gfgb", "dha", "dfgb"]
PLACES = pytest.mark.parametrize("gradient", ["device", "host"])


def compared(make: Callable[[], nn.Module], batch: Batches, **options: Any) -> Trained:
    """Trains both ways; ours, if they are the same."""
    gradient = options.pop("gradient", "device")
    modes = options.pop("modes", MIXED)
    update = options.pop("update", "arrival")
    mine = trained(
        make, batch, shadowed(_planning=forced(modes, gradient), update=update), **options
    )
    assert_same(mine, trained(make, batch, **options))
    return mine


def report_of(mine: Trained) -> ferry.shadow.Report:
    assert isinstance(mine.model, ferry.ShadowModel)
    return mine.model.report()


# -- models --


class Constrained(nn.Linear):
    """The constraint of EEGNet, as it is published: weights get other memory."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.weight.data = torch.renorm(self.weight.data, p=2, dim=0, maxnorm=0.3)
        return super().forward(x)


class Clipped(nn.Linear):
    """Some elements are changed in place, past the counter, and in training only."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.weight.data.clamp_(min=-0.05)
        return super().forward(x)


class Decaying(nn.Linear):
    """All elements are changed in place after they were used."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = super().forward(x)
        torch._foreach_mul_([self.weight.data], 0.99)
        return y


def after_a_check(
    model: nn.Module, optimizer: torch.optim.Optimizer, batch: Batches, steps: int
) -> list[float]:
    """Validates before it trains, as Lightning does."""
    model.eval()
    with torch.no_grad():
        for step in range(3):
            model(batch(step)[0])
    model.train()
    return loop(model, optimizer, batch, steps)


@PLACES
@pytest.mark.parametrize("update", ["arrival", "step"])
@pytest.mark.parametrize("kind", [Constrained, Clipped, Decaying])
def test_what_a_forward_does_to_the_data_of_its_parameters_is_not_lost(
    kind: type[nn.Linear], update: str, gradient: str
) -> None:
    def make() -> nn.Module:
        return nn.Sequential(kind(16, 32), nn.ReLU(), kind(32, 32), nn.Linear(32, 32), kind(32, 4))

    for modes, run in ((["gfgb"], loop), (MIXED, after_a_check)):
        options: Any = {"update": update, "gradient": gradient, "modes": modes, "run": run}
        compared(make, vectors, steps=12, **options)


@PLACES
def test_frozen_layers_have_no_gradients(gradient: str) -> None:
    def make() -> nn.Module:
        model = mlp()
        for parameter in list(model.parameters())[:2] + list(model.parameters())[3:4]:
            parameter.requires_grad_(False)
        return model

    mine = compared(make, vectors, gradient=gradient)
    report = report_of(mine)
    assert report.layers[0].gradient == "none"
    assert report.layers[1].gradient == gradient


def test_layers_that_are_thawed_later_are_trained_from_then_on() -> None:
    def run(model: nn.Module, optimizer: Any, batch: Batches, steps: int) -> list[float]:
        first: Any = next(model.parameters())
        first.requires_grad_(False)
        losses = loop(model, optimizer, batch, steps)
        first.requires_grad_(True)
        return losses + loop(model, optimizer, batch, steps)

    mine = compared(mlp, vectors, run=run, steps=8)
    assert report_of(mine).stage == "planned"
    assert {layer.gradient for layer in report_of(mine).layers} == {"device"}


class Twice(nn.Module):
    """One module called twice, and a buffer that forward changes."""

    seen: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(16, 16)
        self.last = nn.Linear(16, 4)
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen += 1
        found: torch.Tensor = self.last(self.first(self.first(x).relu()).relu_())
        return found + self.seen


@PLACES
@pytest.mark.parametrize("modes", [MIXED, ["dha"], ["dfgb"]])
def test_a_module_can_be_used_twice(gradient: str, modes: list[str]) -> None:
    compared(Twice, vectors, gradient=gradient, modes=modes)


class Written(nn.Module):
    """Forward writes to a parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(16, 16), Clamped(), nn.Linear(16, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.inner(x)
        return found


class Clamped(nn.Module):
    """Keeps its parameter small."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            self.scale.clamp_(0.9, 1.0)
        return x * self.scale


@pytest.mark.parametrize("modes", [["gfgb"], ["dha"], ["dfgb"]])
def test_what_forward_writes_to_a_parameter_is_not_lost(modes: list[str]) -> None:
    compared(Written, vectors, modes=modes)


class Loose(nn.Module):
    """Uses the weight of a module that it does not call for that."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(24, 16)
        self.inner = nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.inner(self.words(x))
        return functional.linear(found, self.words.weight).flatten(0, 1)


@PLACES
@pytest.mark.parametrize("modes", [["gfgb"], ["dha"], ["dfgb"]])
def test_a_weight_can_be_used_outside_of_its_module(gradient: str, modes: list[str]) -> None:
    compared(Loose, sentences, gradient=gradient, modes=modes)


def test_tied_weights_are_one_parameter_in_two_layers() -> None:
    mine = compared(Gpt, sentences)
    names = {layer.name: layer for layer in report_of(mine).layers}
    assert names["words"].parameter_bytes == names["head"].parameter_bytes == 24 * 16 * 4
    assert names["words"].gradient == "device"
    assert names["head"].gradient == "none"


def test_parameters_of_modules_that_are_never_called_belong_to_those_around_them() -> None:
    mine = compared(Gpt, sentences, steps=6)
    names = [layer.name for layer in report_of(mine).layers]
    assert names[0] == "(model)"
    assert "blocks.0.attention" in names
    assert "blocks.0.attention.out_proj" not in names


def test_modules_that_are_first_called_later_get_layers_then() -> None:
    class Growing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(16, 4), nn.Linear(4, 4)
            self.calls = 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            found: torch.Tensor = self.first(x)
            return found if self.calls < 8 else self.second(found)

    mine = compared(Growing, vectors, steps=16)
    assert [layer.name for layer in report_of(mine).layers] == ["first", "second"]


def test_weight_norm_sees_parameters_where_they_are() -> None:
    def make() -> nn.Module:
        model = mlp()
        model[0] = nn.utils.parametrizations.weight_norm(model[0])
        return model

    for modes in (["gfgb"], ["dha"], ["dfgb"]):
        compared(make, vectors, modes=modes, steps=8)


@PLACES
def test_a_model_in_bfloat16(gradient: str) -> None:
    def make() -> nn.Module:
        return mlp().to(torch.bfloat16)

    def batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
        x, y = vectors(step)
        return x.to(torch.bfloat16), y

    mine = compared(make, batch, gradient=gradient)
    assert report_of(mine).update == "arrival"


def test_parameters_in_another_order_of_dimensions() -> None:
    def make() -> nn.Module:
        model: Any = cnn()
        return model.to(memory_format=torch.channels_last)

    mine = compared(make, pictures, steps=8)
    weight = next(mine.model.parameters())
    assert weight.is_contiguous(memory_format=torch.channels_last)


@PLACES
@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("modes", [MIXED, ["gfgb"], ["dha"], ["dfgb"]])
def test_checkpoints_of_activations(gradient: str, reentrant: bool, modes: list[str]) -> None:
    class Checkpointed(Gpt):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.words(x) + self.places[: x.shape[1]]
            for block in self.blocks:
                x = checkpoint(block, x, use_reentrant=reentrant)
            last = nn.Sequential(self.norm, self.head)
            logits: Any = checkpoint(last, x, use_reentrant=reentrant)
            return logits.flatten(0, 1)

    mine = compared(Checkpointed, sentences, gradient=gradient, modes=modes, update="step")
    assert report_of(mine).iterations == 50


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_checkpoint_around_the_whole_model(reentrant: bool) -> None:
    def run(model: nn.Module, optimizer: Any, batch: Batches, steps: int) -> list[float]:
        losses = []
        for step in range(steps):
            x, y = batch(step)
            x.requires_grad_()
            optimizer.zero_grad()
            out: Any = checkpoint(model, x, use_reentrant=reentrant)
            loss = functional.cross_entropy(out, y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    compared(mlp, vectors, run=run, steps=12)


@pytest.mark.parametrize("around", [True, False])
def test_activations_can_be_offloaded_too(around: bool, tmp_path: Path) -> None:
    offload = ferry.ActivationOffload(tmp_path, "4MiB", min_bytes=64)

    class Inside(Gpt):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with offload:
                return super().forward(x)

    def run(model: nn.Module, optimizer: Any, batch: Batches, steps: int) -> list[float]:
        losses = []
        for step in range(steps):
            x, y = batch(step)
            optimizer.zero_grad()
            with offload:
                loss = functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    if around:
        compared(Gpt, sentences, run=run, steps=12)
    else:
        compared(Inside, sentences, steps=12)
    assert offload.report().steps == 24
    last = offload.report().last
    # All of it fits; how much reaches the disk before backward takes it back is a matter of time.
    assert last is not None
    assert last.tensors > 0
    assert last.saved_bytes > 0


# -- loops --


def test_evaluation_in_between(tmp_path: Path) -> None:
    def run(model: nn.Module, optimizer: Any, batch: Batches, steps: int) -> list[float]:
        losses = []
        for step in range(steps):
            losses += loop(model, optimizer, batch, 1)
            model.eval()
            with torch.no_grad() if step % 2 else torch.inference_mode():
                losses.append(model(batch(step)[0]).sum().item())
            model.train()
        return losses

    mine = compared(cnn, pictures, run=run, steps=20)
    assert report_of(mine).update == "arrival"


def test_evaluation_between_forward_and_backward() -> None:
    def run(model: nn.Module, optimizer: Any, batch: Batches, steps: int) -> list[float]:
        losses = []
        for step in range(steps):
            x, y = batch(step)
            loss = functional.cross_entropy(model(x), y)
            with torch.no_grad():
                losses.append(model(x).sum().item())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    compared(mlp, vectors, run=run, steps=20)


def test_two_forwards_before_a_backward() -> None:
    def run(model: nn.Module, optimizer: Any, batch: Batches, steps: int) -> list[float]:
        losses = []
        for step in range(steps):
            first, second = model(batch(step)[0]), model(batch(step + 1)[0])
            loss = functional.mse_loss(first, second)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    compared(mlp, vectors, run=run, steps=20)


def copied(parameters: list[Any]) -> None:
    for parameter in parameters:
        parameter.data.copy_(parameter.data * 0.5)


def assigned(parameters: list[Any]) -> None:
    averaged = nn.utils.parameters_to_vector(parameters).detach() * 0.5
    nn.utils.vector_to_parameters(averaged, parameters)


@pytest.mark.parametrize("change", [copied, assigned])
@pytest.mark.parametrize("modes", [MIXED, ["gfgb"]])
def test_weights_that_are_changed_between_two_forwards_are_seen_by_the_second(
    change: Callable[[list[Any]], None], modes: list[str]
) -> None:
    def run(model: nn.Module, optimizer: Any, batch: Batches, steps: int) -> list[float]:
        losses = []
        for step in range(steps):
            x, y = batch(step)
            first = model(x)
            change(list(model.parameters()))
            second = model(x)
            losses += [first.sum().item(), second.sum().item()]
            optimizer.zero_grad()
            functional.cross_entropy(second, y).backward()
            optimizer.step()
        return losses

    compared(mlp, vectors, run=run, steps=12, modes=modes)


def test_two_backwards_after_two_forwards() -> None:
    def run(model: nn.Module, optimizer: Any, batch: Batches, steps: int) -> list[float]:
        losses = []
        for step in range(steps):
            parts = [functional.cross_entropy(model(x), y) for x, y in (batch(step), batch(-step))]
            optimizer.zero_grad()
            for part in parts:
                part.backward()
            optimizer.step()
            losses += [part.item() for part in parts]
        return losses

    mine = compared(mlp, vectors, run=run, steps=20, update="auto")
    assert report_of(mine).update == "step"


def test_a_forward_that_is_never_followed_by_a_backward() -> None:
    def run(model: nn.Module, optimizer: Any, batch: Batches, steps: int) -> list[float]:
        losses = []
        for step in range(steps):
            model(batch(step)[0])
            for parameter in model.parameters():
                parameter.data.mul_(0.99)
            losses += loop(model, optimizer, batch, 1)
        return losses

    compared(mlp, vectors, run=run, steps=20)


@PLACES
@pytest.mark.parametrize("to_none", [True, False])
def test_gradients_add_up_over_several_backwards(gradient: str, to_none: bool) -> None:
    def run(model: nn.Module, optimizer: Any, batch: Batches, steps: int) -> list[float]:
        losses = []
        for step in range(steps):
            x, y = batch(step)
            loss = functional.cross_entropy(model(x), y)
            (loss / 3).backward()
            losses.append(loss.item())
            if step % 3 == 2:
                losses += [parameter.grad.sum().item() for parameter in model.parameters()]
                optimizer.step()
                optimizer.zero_grad(set_to_none=to_none)
        return losses

    mine = compared(mlp, vectors, run=run, gradient=gradient, update="auto")
    assert report_of(mine).update == "step"


@PLACES
def test_gradients_that_are_asked_for_leave_those_that_add_up_alone(gradient: str) -> None:
    def run(model: nn.Module, optimizer: Any, batch: Batches, steps: int) -> list[float]:
        parameters, seen = list(model.parameters()), []
        for step in range(steps):
            x, y = batch(step)
            optimizer.zero_grad()
            functional.cross_entropy(model(x), y).backward()
            asked = torch.autograd.grad(model(x).square().sum(), parameters)
            seen += [found.sum().item() for found in asked]
            seen += [parameter.grad.sum().item() for parameter in parameters]
            functional.cross_entropy(model(x), y).backward()
            optimizer.step()
            torch.autograd.grad(model(x).square().sum(), parameters[2:4])
            seen += [parameter.grad.sum().item() for parameter in parameters]
        return seen

    mine = compared(mlp, vectors, run=run, steps=8, gradient=gradient, update="step")
    assert report_of(mine).stage == "planned"


class Nothing(torch.autograd.Function):
    """Has no gradient for its second argument."""

    @staticmethod
    def forward(_: Any, x: torch.Tensor, __: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(_: Any, slope: torch.Tensor) -> tuple[torch.Tensor, None]:
        return slope * 2, None


@PLACES
def test_a_gradient_that_a_backward_does_not_make_stays_as_it_was(gradient: str) -> None:
    class Sometimes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(16, 4), nn.Linear(4, 4)
            self.calls = 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            found: torch.Tensor = self.last(self.first(x))
            if self.calls % 2:
                return found * self.last.bias
            return Nothing.apply(found.detach() + self.first(x), self.last.bias)

    def run(model: nn.Module, optimizer: Any, batch: Batches, steps: int) -> list[float]:
        seen = []
        for step in range(steps):
            x, y = batch(step)
            functional.cross_entropy(model(x), y).backward()
            seen += [parameter.grad.sum().item() for parameter in model.parameters()]
            if step % 2:
                optimizer.step()
                optimizer.zero_grad()
        return seen

    compared(Sometimes, vectors, run=run, steps=12, gradient=gradient, update="step")


def test_gradients_that_somebody_keeps_stay_as_they_are() -> None:
    def run(model: nn.Module, optimizer: Any, batch: Batches, steps: int) -> list[float]:
        kept: list[Any] = []
        for step in range(steps):
            loop(model, optimizer, batch, 1)
            kept.append([parameter.grad for parameter in model.parameters()])
            loop(model, optimizer, lambda _, step=step: batch(step), 1)
        return [gradient.sum().item() for each in kept for gradient in each]

    compared(mlp, vectors, run=run, steps=8)


KEEPERS: dict[str, Callable[[Any], Any]] = {
    "itself": lambda gradient: gradient,
    "detached": lambda gradient: gradient.detach(),
    "data": lambda gradient: gradient.data,
    "view": lambda gradient: gradient.view(-1),
    "array": lambda gradient: gradient.numpy(),
}


@pytest.mark.parametrize("keep", KEEPERS.values(), ids=KEEPERS)
@pytest.mark.parametrize("backwards", [1, 2])
def test_views_of_gradients_that_somebody_keeps_are_what_they_are_in_torch(
    keep: Callable[[Any], Any], backwards: int
) -> None:
    def run(model: nn.Module, optimizer: Any, batch: Batches, steps: int) -> list[float]:
        kept: list[Any] = []
        for step in range(steps):
            x, y = batch(step)
            optimizer.zero_grad()
            for _ in range(backwards):
                functional.cross_entropy(model(x), y).backward()
                if step % 2:
                    kept += [keep(parameter.grad) for parameter in model.parameters()]
            optimizer.step()
            if step == steps // 2:
                kept, seen = [], [float(each.sum()) for each in kept]
        return seen + [float(each.sum()) for each in kept]

    update = "arrival" if backwards == 1 else "step"
    compared(mlp, vectors, run=run, steps=12, update=update)


@pytest.mark.parametrize("update", ["arrival", "step"])
def test_gradients_that_nobody_keeps_lie_where_they_arrived(update: str) -> None:
    mine = trained(mlp, vectors, shadowed(update=update), steps=8)
    assert isinstance(mine.model, ferry.ShadowModel)
    slots = mine.model._runtime._host_memory.slots
    for _ in range(3):
        loop(mine.model, mine.optimizer, vectors, 1)
        for slot in slots:
            assert slot.parameter.grad.data_ptr() == slot.gradient_buffer.data_ptr()
    if update == "step":
        spares = set()
        for _ in range(3):
            mine.model(vectors(0)[0]).sum().backward()
            spares.add(slots[0].parameter.grad.data_ptr())
            loop(mine.model, mine.optimizer, vectors, 1)
        assert len(spares) == 1


def test_a_graph_that_is_kept_goes_backward_twice() -> None:
    def run(model: nn.Module, optimizer: Any, batch: Batches, steps: int) -> list[float]:
        losses = []
        for step in range(steps):
            x, y = batch(step)
            loss = functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward(retain_graph=True)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    compared(mlp, vectors, run=run, steps=12, update="auto")


def test_gradients_of_gradients() -> None:
    def run(model: nn.Module, optimizer: Any, batch: Batches, steps: int) -> list[float]:
        losses = []
        for step in range(steps):
            x = batch(step)[0].requires_grad_()
            (slope,) = torch.autograd.grad(model(x).square().sum(), x, create_graph=True)
            loss = slope.square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    compared(mlp, vectors, run=run, steps=12, update="auto")


def test_clipping_leaves_updates_to_step() -> None:
    def run(model: nn.Module, optimizer: Any, batch: Batches, steps: int) -> list[float]:
        losses = []
        for step in range(steps):
            x, y = batch(step)
            loss = functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            losses.append(nn.utils.clip_grad_norm_(model.parameters(), 0.5).item())
            optimizer.step()
        return losses

    report = report_of(compared(mlp, vectors, run=run, update="auto"))
    assert report.update == "step"
    assert report.update_why == "gradients are changed between backward and step()"


def test_clipping_behind_the_counter_leaves_updates_to_step_too() -> None:
    def run(model: nn.Module, optimizer: Any, batch: Batches, steps: int) -> list[float]:
        losses = []
        for step in range(steps):
            x, y = batch(step)
            loss = functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            for parameter in model.parameters():
                parameter.grad.data.clamp_(-0.01, 0.01)
            optimizer.step()
            losses.append(loss.item())
        return losses

    assert report_of(compared(mlp, vectors, run=run, update="auto")).update == "step"


@pytest.mark.parametrize("counted", [False, True])
def test_decaying_parameters_before_step_leaves_updates_to_it(counted: bool) -> None:
    def run(model: nn.Module, optimizer: Any, batch: Batches, steps: int) -> list[float]:
        losses = []
        for step in range(steps):
            x, y = batch(step)
            loss = functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            with torch.no_grad():
                for parameter in model.parameters():
                    (parameter if counted else parameter.data).mul_(0.9)
            optimizer.step()
            losses.append(loss.item())
        return losses

    report = report_of(compared(mlp, vectors, run=run, steps=12, update="auto"))
    assert report.update == "step"
    assert report.update_why == "parameters are changed between backward and step()"


@pytest.mark.parametrize("named", [False, True])
def test_a_closure_leaves_updates_to_step(named: bool) -> None:
    def run(model: nn.Module, optimizer: Any, batch: Batches, steps: int) -> list[float]:
        losses = []
        for step in range(steps):

            def closure(step: int = step) -> torch.Tensor:
                x, y = batch(step)
                optimizer.zero_grad()
                loss = functional.cross_entropy(model(x), y)
                loss.backward()
                return loss

            loss = optimizer.step(closure=closure) if named else optimizer.step(closure)
            losses.append(loss.item())
        return losses

    report = report_of(compared(mlp, vectors, run=run, steps=12, update="auto"))
    assert (report.stage, report.update) == ("planned", "step")
    assert report.update_why == "step() is given a closure"


def test_a_grad_scaler_leaves_updates_to_step() -> None:
    def run(model: nn.Module, optimizer: Any, batch: Batches, steps: int) -> list[float]:
        scaler, losses = torch.amp.GradScaler("cpu", init_scale=2.0**10), []
        for step in range(steps):
            x, y = batch(step)
            loss = functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            losses.append(loss.item())
        return losses

    assert report_of(compared(mlp, vectors, run=run, update="auto")).update == "step"


def test_autocast() -> None:
    def run(model: nn.Module, optimizer: Any, batch: Batches, steps: int) -> list[float]:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return loop(model, optimizer, batch, steps)

    compared(mlp, vectors, run=run, steps=12)


def test_a_schedule_of_learning_rates_goes_with_updates_on_arrival() -> None:
    def run(model: nn.Module, optimizer: Any, batch: Batches, steps: int) -> list[float]:
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=steps)
        losses = []
        for step in range(steps):
            losses += loop(model, optimizer, lambda _, step=step: batch(step), 1)
            schedule.step()
        return losses

    assert report_of(compared(mlp, vectors, run=run)).update == "arrival"


@pytest.mark.parametrize(
    "optimizing",
    [
        lambda model: torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
        lambda model: torch.optim.AdamW(model.parameters(), lr=1e-2, foreach=True),
        lambda model: torch.optim.RMSprop(list(model.parameters())[1:], lr=1e-2),
    ],
    ids=["sgd", "adamw", "some parameters"],
)
def test_optimizers_of_torch_take_their_steps_themselves(optimizing: Any) -> None:
    report = report_of(compared(mlp, vectors, optimizing=optimizing, update="auto"))
    assert report.update == "step"
    assert "is not ferry.optim.Adam or AdamW" in report.update_why


def test_groups_and_parameters_that_the_optimizer_does_not_have() -> None:
    def optimizing(model: nn.Module) -> torch.optim.Optimizer:
        parameters = list(model.parameters())
        first: dict[str, Any] = {"params": parameters[1:3], "lr": 0.1}
        groups = [first, {"params": parameters[4:]}]
        return ferry.optim.AdamW(groups, lr=0.01)

    assert report_of(compared(mlp, vectors, optimizing=optimizing)).update == "arrival"


def test_state_on_disk_is_stepped_by_step(tmp_path: Path) -> None:
    def optimizing(model: nn.Module) -> torch.optim.Optimizer:
        return ferry.optim.AdamW(model.parameters(), lr=0.01, state=f"ssd:{tmp_path}")

    report = report_of(compared(mlp, vectors, optimizing=optimizing, steps=8, update="auto"))
    assert (report.update, report.update_why) == ("step", "the optimizer's state is on disk")


@pytest.mark.parametrize("name", MODELS)
def test_a_state_dict_in_the_middle_goes_on_anywhere(name: str) -> None:
    make, batch = MODELS[name]
    whole = trained(make, batch, steps=20)

    def half(model: nn.Module, optimizer: Any, batch: Batches, steps: int) -> list[float]:
        return loop(model, optimizer, batch, 10)

    def rest(model: nn.Module, optimizer: Any, _: Batches, steps: int) -> list[float]:
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(copy.deepcopy(state["optimizer"]))
        torch.set_rng_state(state["rng"])
        return loop(model, optimizer, lambda step: batch(10 + step), 10)

    wrap = shadowed(_planning=forced(MIXED, "device"))
    begun = trained(make, batch, wrap, run=half)
    state: dict[str, Any] = {
        "model": begun.parameters,
        "optimizer": copy.deepcopy(begun.optimizer.state_dict()),
        "rng": torch.get_rng_state(),
    }
    for other in (wrap, None):
        went_on = trained(make, batch, other, run=rest)
        assert begun.losses + went_on.losses == whole.losses
        assert_same(Trained(whole.losses, went_on.parameters, whole.model, whole.optimizer), whole)


def test_loading_in_the_middle_of_training_is_seen_by_the_next_forward() -> None:
    def run(model: nn.Module, optimizer: Any, batch: Batches, steps: int) -> list[float]:
        losses = loop(model, optimizer, batch, steps)
        saved = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        losses += loop(model, optimizer, batch, steps)
        model.load_state_dict(saved)
        for parameter in model.parameters():
            parameter.data = parameter.data * 0.5
        return losses + loop(model, optimizer, batch, steps)

    compared(mlp, vectors, run=run, steps=8)


def test_a_forward_that_fails_leaves_everything_in_place() -> None:
    class Fails(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = mlp()
            self.extra = nn.Linear(4, 4)
            self.fails = False
            self.extra.register_forward_hook(self.fail)

        def fail(self, *_: Any) -> None:
            if self.fails:
                raise KeyError("on purpose")

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = self.extra(self.inner(x))
            return found

    def run(model: nn.Module, optimizer: Any, batch: Batches, steps: int) -> list[float]:
        losses = []
        for step in range(steps):
            inner: Any = getattr(model, "module", model)
            inner.fails = step % 3 == 1
            if inner.fails:
                with pytest.raises(KeyError, match="on purpose"):
                    model(batch(step)[0])
            else:
                losses += loop(model, optimizer, batch, 1)
        return losses

    compared(Fails, vectors, run=run, steps=24)


def test_a_backward_that_fails_leaves_the_next_one_alone() -> None:
    def run(model: nn.Module, optimizer: Any, batch: Batches, steps: int) -> list[float]:
        losses = []
        for step in range(steps):
            if step % 3 == 2:
                x = batch(step)[0].requires_grad_()
                loss = model(x).sum()

                def fail(_: torch.Tensor) -> None:
                    raise KeyError("on purpose")

                x.register_hook(fail)
                optimizer.zero_grad()
                with pytest.raises(KeyError, match="on purpose"):
                    loss.backward()
                if isinstance(model, ferry.ShadowModel) and model.report().stage == "planned":
                    with pytest.raises(ferry.InvalidInput, match="last backward has failed"):
                        optimizer.step()
            losses += loop(model, optimizer, batch, 1)
        return losses

    compared(mlp, vectors, run=run, steps=24, update="step")


@PLACES
@pytest.mark.parametrize("asked", [False, True])
def test_gradients_that_are_set_to_none_after_a_failed_backward_stay_away(
    gradient: str, asked: bool
) -> None:
    def fail(_: torch.Tensor) -> None:
        raise KeyError("on purpose")

    def run(model: nn.Module, optimizer: Any, batch: Batches, steps: int) -> list[float]:
        losses = []
        for step in range(steps):
            x, y = batch(step)
            model(x).sum().backward()
            x.requires_grad_().register_hook(fail)
            loss, wanted = functional.cross_entropy(model(x), y), [*model.parameters(), x]
            with pytest.raises(KeyError, match="on purpose"):
                torch.autograd.grad(loss, wanted) if asked else loss.backward()
            optimizer.zero_grad()
            functional.cross_entropy(model(x.detach()), y).backward()
            losses += [parameter.grad.sum().item() for parameter in model.parameters()]
            optimizer.step()
            optimizer.zero_grad()
        return losses

    compared(mlp, vectors, run=run, steps=12, gradient=gradient, update="step")


def test_gradients_are_what_they_were_after_a_backward_that_fails() -> None:
    torch.manual_seed(0)
    model = mlp()
    optimizer = ours(model)
    shadow = shadowed(_planning=forced(MIXED, "device"), update="step")(model, optimizer)
    loop(shadow, optimizer, vectors, 6)
    before = [parameter.grad.clone() for parameter in model.parameters()]
    x = vectors(0)[0].requires_grad_()

    def fail(_: torch.Tensor) -> None:
        raise KeyError("on purpose")

    x.register_hook(fail)
    with pytest.raises(KeyError, match="on purpose"):
        shadow(x).sum().backward()
    after: list[Any] = [parameter.grad for parameter in model.parameters()]
    assert all(map(torch.equal, before, after))


def test_in_place_changes_between_forward_and_backward_are_errors_as_in_torch() -> None:
    torch.manual_seed(0)
    model = mlp()
    optimizer = ours(model)
    shadow = shadowed(_planning=forced(MIXED, "device"))(model, optimizer)
    loop(shadow, optimizer, vectors, 6)
    optimizer.zero_grad()
    loss = shadow(vectors(0)[0]).sum()
    with torch.no_grad():
        model[2].weight.mul_(2)
    with pytest.raises(RuntimeError, match=r"modified by an inplace operation: the parameter 2\.w"):
        loss.backward()


def test_a_view_that_somebody_keeps_has_its_bytes_beyond_the_plan() -> None:
    torch.manual_seed(0)
    model, kept = mlp(), []
    optimizer = ours(model)
    shadow = shadowed(_planning=forced(MIXED, "device"))(model, optimizer)
    for layer in (module for module in model.modules() if isinstance(module, nn.Linear)):
        layer.register_forward_hook(lambda layer, *_: kept.append(layer.weight.detach()))
    loop(shadow, optimizer, vectors, 12)
    before = [view.clone() for view in kept]
    shadow.close()
    made = [torch.full_like(view, torch.nan) for view in kept]
    assert all(map(torch.equal, kept, before))
    assert len(made) == 36


# -- outputs --


@dataclasses.dataclass
class Output:
    inner: Any
    loss: torch.Tensor | None = None


class Opaque:
    def __init__(self, x: torch.Tensor) -> None:
        self.x = x


OUTPUTS: dict[str, tuple[Callable[[torch.Tensor], Any], Callable[[Any], torch.Tensor]]] = {
    "dataclass": (Output, lambda output: output.inner),
    "nested": (lambda x: [Output({"x": Output(x)})], lambda output: output[0].inner["x"].inner),
    "object": (Opaque, lambda output: output.x),
}


@pytest.mark.parametrize("kind", OUTPUTS)
def test_a_model_is_planned_whatever_holds_the_tensors_that_it_returns(kind: str) -> None:
    pack, unpack = OUTPUTS[kind]

    class Packing(nn.Sequential):
        def forward(self, x: torch.Tensor) -> Any:
            return pack(super().forward(x))

    def unpacking(
        model: nn.Module, optimizer: torch.optim.Optimizer, batch: Batches, steps: int
    ) -> list[float]:
        inner: Any = lambda x: unpack(model(x))  # noqa: E731
        return loop(inner, optimizer, batch, steps)

    mine = compared(lambda: Packing(*mlp().children()), vectors, run=unpacking, steps=12)
    assert report_of(mine).stage == "planned"


def test_an_output_whose_graph_is_not_found_is_warned_of_when_the_optimizer_steps() -> None:
    class Hiding(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(4))

        def forward(self, x: torch.Tensor) -> Opaque:
            return Opaque(x * self.weight)

    model = Hiding()
    optimizer = ours(model)
    shadow = shadowed()(model, optimizer)
    shadow(torch.ones(4)).x.sum().backward()
    with pytest.warns(UserWarning, match=r"no backward.*was seen.*dataclasses"):
        optimizer.step()


def test_a_checkpoint_leaves_nothing_of_an_iteration_to_the_collector() -> None:
    kept: list[weakref.ref[torch.Tensor]] = []
    model = nn.Linear(16, 4)

    def once(x: torch.Tensor) -> torch.Tensor:
        inner = x * 2
        kept.append(weakref.ref(inner))
        return model(inner)

    class Checkpointed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = model

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = checkpoint(once, x * 1, use_reentrant=False)
            return found

    whole = Checkpointed()
    optimizer = ours(whole)
    shadow = shadowed()(whole, optimizer)
    gc.collect()
    gc.disable()
    try:
        loop(shadow, optimizer, vectors, 8)
        live = shadow._runtime.live
        live.restart()
        assert live.peak == 0
        assert [each() for each in kept] == [None] * len(kept)
    finally:
        gc.enable()
