"""A wrapper that nobody has any more takes its threads, memory and device along."""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import copy
import gc
import threading
import time
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from shadow_cases import forced, loop, mlp, ours, shadowed, trained, vectors
from torch import nn
from torch.nn import functional

import tensorferry as ferry
from tensorferry._shadow.runtime import Runtime

OURS = ("ferry-shadow", "ferry-update", "ferry-link", "ferry-compute")
DEADLINE = 60.0


def threads() -> int:
    """Of shadow models and their devices."""
    found = 0
    for task in Path("/proc/self/task").iterdir():
        try:
            found += (task / "comm").read_text().startswith(OURS)
        except OSError:
            continue
    return found


def runtimes() -> int:
    """Of wrappers that are still held."""
    return sum(type(each) is Runtime for each in gc.get_objects())


def assert_ended(before: int) -> None:
    deadline = time.monotonic() + DEADLINE
    while threads() > before:
        assert time.monotonic() < deadline, "threads have not ended"
        time.sleep(0.01)


def made(**options: Any) -> tuple[Any, Any, Any]:
    """A model, its optimizer and its wrapper after some planned steps."""
    torch.manual_seed(0)
    model = mlp()
    optimizer = ours(model)
    wrap = shadowed(_planning=forced(["gfgb", "dha", "dfgb"], "device"), **options)
    shadow = wrap(model, optimizer)
    torch.manual_seed(1)
    loop(shadow, optimizer, vectors, 8)
    return model, optimizer, shadow


def test_threads_and_device_go_with_the_wrapper_and_the_model_trains_on() -> None:
    plain = trained(mlp, vectors, steps=20)
    before = threads()
    model, optimizer, shadow = made()
    runtime = weakref.ref(shadow._runtime)
    landings = [weakref.ref(slot.gradient_buffer) for slot in shadow._runtime._host_memory.slots]
    assert threads() > before
    optimizer.zero_grad()
    del shadow
    assert_ended(before)
    gc.collect()
    assert runtime() is None
    assert all(landing() is None for landing in landings)
    loop(model, optimizer, lambda step: vectors(8 + step), 12)
    for name, parameter in model.state_dict().items():
        assert torch.equal(parameter, plain.parameters[name]), name
    with ferry.ShadowModel(model, optimizer, "cpu", update="arrival") as again:
        loop(again, optimizer, vectors, 6)


@pytest.mark.parametrize("through", ["itself", "the model", "a hook of the model"])
def test_a_cycle_is_found_by_the_collector(through: str) -> None:
    before = threads()
    model, optimizer, shadow = made()
    gone = weakref.ref(shadow)
    if through == "itself":
        object.__setattr__(shadow, "trainer", shadow)
    elif through == "the model":
        object.__setattr__(model, "trainer", shadow)
    else:
        model.register_forward_hook(lambda *_, shadow=shadow: None)
    del model, optimizer, shadow
    gc.collect()
    assert gone() is None
    assert_ended(before)


def test_a_graph_that_outlives_the_wrapper_goes_backward_as_a_plain_one() -> None:
    plain = trained(mlp, vectors, steps=9)
    before = threads()
    model, optimizer, shadow = made()
    x, y = vectors(8)
    loss = functional.cross_entropy(shadow(x), y)
    optimizer.zero_grad()
    del shadow
    assert_ended(before)
    loss.backward()
    optimizer.step()
    assert loss.item() == plain.losses[8]
    for name, parameter in model.state_dict().items():
        assert torch.equal(parameter, plain.parameters[name]), name


@pytest.mark.parametrize("in_a_cycle", [True, False])
def test_a_backward_in_which_the_wrapper_goes_ends_as_it_began(in_a_cycle: bool) -> None:
    plain = trained(mlp, vectors, steps=9)
    before = threads()
    model, optimizer, shadow = made()
    held = [shadow]
    if in_a_cycle:
        object.__setattr__(shadow, "trainer", shadow)

    def drop(_: torch.Tensor) -> None:
        held.clear()
        gc.collect()

    def drop_in_backward(_: nn.Module, __: Any, output: torch.Tensor) -> None:
        output.register_hook(drop)

    x, y = vectors(8)
    optimizer.zero_grad()
    handle = model[2].register_forward_hook(drop_in_backward)
    loss = functional.cross_entropy(shadow(x), y)
    handle.remove()
    del shadow
    loss.backward()
    assert not held
    assert_ended(before)
    optimizer.step()
    for name, parameter in model.state_dict().items():
        assert torch.equal(parameter, plain.parameters[name]), name


def test_a_wrapper_whose_backward_has_failed_goes_too() -> None:
    before = threads()
    model, optimizer, shadow = made()
    x = vectors(8)[0].requires_grad_()

    def fail(_: torch.Tensor) -> None:
        raise KeyError("on purpose")

    x.register_hook(fail)
    with pytest.raises(KeyError, match="on purpose"):
        shadow(x).sum().backward()
    del shadow
    gc.collect()
    assert_ended(before)
    loop(model, optimizer, vectors, 2)


def test_another_thread_may_be_the_last_that_has_it() -> None:
    before = threads()
    model, optimizer, shadow = made()
    held = [shadow]
    del shadow
    thread = threading.Thread(target=held.clear)
    thread.start()
    thread.join(DEADLINE)
    assert_ended(before)
    loop(model, optimizer, vectors, 2)


def test_a_step_that_is_half_taken_when_the_wrapper_goes_is_not_taken_twice() -> None:
    plain = trained(mlp, vectors, steps=12)
    before = threads()
    model, optimizer, shadow = made(update="arrival")
    runtime = weakref.ref(shadow._runtime)
    x, y = vectors(8)
    optimizer.zero_grad()
    functional.cross_entropy(shadow(x), y).backward()
    del shadow
    assert_ended(before)
    optimizer.step()
    loop(model, optimizer, lambda step: vectors(9 + step), 3)
    for name, parameter in model.state_dict().items():
        assert torch.equal(parameter, plain.parameters[name]), name
    gc.collect()
    assert runtime() is None


def test_what_does_not_go_with_a_half_taken_step_is_told_until_a_checkpoint_is_loaded() -> None:
    plain = trained(mlp, vectors, steps=12)
    model, optimizer, shadow = made(update="arrival")
    saved = copy.deepcopy((shadow.state_dict(), optimizer.state_dict()))
    optimizer.zero_grad()
    x, y = vectors(8)
    functional.cross_entropy(shadow(x), y).backward()
    del shadow
    with pytest.raises(ferry.InvalidInput, match=r"a forward of a part .*last checkpoint"):
        model(x)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    with pytest.raises(ferry.InvalidInput, match=r"gradients are changed .*last checkpoint"):
        optimizer.step()
    model.load_state_dict(saved[0])
    optimizer.load_state_dict(saved[1])
    loop(model, optimizer, lambda step: vectors(8 + step), 4)
    for name, parameter in model.state_dict().items():
        assert torch.equal(parameter, plain.parameters[name]), name


def test_many_wrappers_one_after_the_other_leave_nothing_behind() -> None:
    gc.collect()
    before, held, model = threads(), runtimes(), mlp()
    optimizer = ours(model)
    for _ in range(5):
        shadow: Any = shadowed(update="arrival")(model, optimizer)
        loop(shadow, optimizer, vectors, 6)
        assert shadow.report().update == "arrival"
        del shadow
    assert_ended(before)
    gc.collect()
    assert runtimes() <= held
