"""What each of several ranks does with DTensors and ``ferry.optim``."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_optimizer_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

import tensorferry as ferry

SETTINGS: dict[str, Any] = {"lr": 0.05, "weight_decay": 0.1}


def whole(tensor: torch.Tensor) -> torch.Tensor:
    """All of a DTensor, or of any other."""
    full: torch.Tensor = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
    return full.detach().clone()


def mesh_of_all() -> DeviceMesh:
    """One dimension."""
    return init_device_mesh("cpu", (dist.get_world_size(),))


def sharded_model(dtype: torch.dtype) -> nn.Module:
    """Layers whose rows do not go evenly into two, and one with fewer rows than ranks."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(7, 5), nn.Tanh(), nn.Linear(5, 301), nn.Tanh())
    model.append(nn.Linear(301, 1))
    model.to(dtype)
    mesh = mesh_of_all()
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def backward(model: nn.Module, step: int) -> None:
    """Of a batch that is another on every rank and in every step; gradients are clipped."""
    parameter = next(model.parameters())
    random = torch.Generator().manual_seed(100 * step + dist.get_rank())
    x = torch.randn(8, 7, generator=random).to(parameter.dtype)
    model(x).float().square().mean().backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.5)


class Pair:
    """A sharded model, and its parameters as plain tensors that take the same gradients."""

    def __init__(self, dtype: torch.dtype, state: str) -> None:
        self.model = sharded_model(dtype)
        self.plain = [nn.Parameter(whole(each)) for each in self.model.parameters()]
        self.optimizer = ferry.optim.AdamW(self.model.parameters(), **SETTINGS, state=state)
        self.other = ferry.optim.AdamW(self.plain, **SETTINGS)

    def train(self, steps: range) -> None:
        """Both; they stay the same bit for bit."""
        for step in steps:
            backward(self.model, step)
            for plain, parameter in zip(self.plain, self.model.parameters(), strict=True):
                assert isinstance(parameter.grad, DTensor)
                plain.grad = whole(parameter.grad)
            before = whole(next(self.model.parameters()))
            self.optimizer.step()
            self.other.step()
            self.optimizer.zero_grad()
            self.assert_same()
            assert not torch.equal(before, whole(next(self.model.parameters())))

    def assert_same(self) -> None:
        """Parameters and state."""
        for plain, parameter in zip(self.plain, self.model.parameters(), strict=True):
            assert torch.equal(whole(parameter), plain)
        sharded, plain_state = self.optimizer.state_dict(), self.other.state_dict()
        for number, expected in plain_state["state"].items():
            found = sharded["state"][number]
            assert found.keys() == expected.keys()
            for key, value in expected.items():
                assert isinstance(found[key], DTensor) == (key != "step")
                assert torch.equal(whole(found[key]), value), key


def fsdp_steps_its_shards(dtype: torch.dtype, state: str) -> None:
    """As plain tensors, bit for bit; the state goes out and in again as torch's does."""
    pair = Pair(dtype, state)
    pair.train(range(4))
    saved = copy.deepcopy(pair.optimizer.state_dict())
    kept = [whole(each) for each in pair.plain]
    pair.train(range(4, 6))
    after = [whole(each) for each in pair.plain]
    for to, source in zip(pair.plain, kept, strict=True):
        to.data.copy_(source)
    for sharded, source in zip(pair.model.parameters(), kept, strict=True):
        assert isinstance(sharded, DTensor)
        like = distribute_tensor(source, sharded.device_mesh, sharded.placements)
        sharded.to_local().detach().copy_(like.to_local())
    pair.optimizer.load_state_dict(saved)
    full = {
        number: {key: whole(value) for key, value in found.items()}
        for number, found in saved["state"].items()
    }
    pair.other.load_state_dict({**saved, "state": full})
    pair.train(range(4, 6))
    assert all(map(torch.equal, after, (whole(each) for each in pair.plain)))


def fsdp_goes_with_torchs_optimizer() -> None:
    """Numbers, state dicts and the functions of torch that gather and spread state."""
    ours, theirs = sharded_model(torch.float32), sharded_model(torch.float32)
    a = ferry.optim.AdamW(ours.parameters(), **SETTINGS)
    b = torch.optim.AdamW(theirs.parameters(), **SETTINGS)
    pairs = [(ours, a), (theirs, b)]

    def train(steps: range) -> None:
        for step in steps:
            for model, optimizer in pairs:
                backward(model, step)
                optimizer.step()
                optimizer.zero_grad()
        for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
            torch.testing.assert_close(whole(mine), whole(other), rtol=1e-5, atol=1e-6)

    train(range(3))
    state_of_a, state_of_b = copy.deepcopy(a.state_dict()), copy.deepcopy(b.state_dict())
    for number, expected in state_of_b["state"].items():
        for key, value in expected.items():
            found = state_of_a["state"][number][key]
            assert type(found) is type(value)
            if isinstance(found, DTensor):
                assert found.placements == value.placements
                assert found.to_local().shape == value.to_local().shape
    a.load_state_dict(state_of_b)
    b.load_state_dict(state_of_a)
    train(range(3, 5))
    options = StateDictOptions(full_state_dict=True)
    gathered: Any = get_optimizer_state_dict(ours, a, options=options)
    pairs[0] = ours, ferry.optim.AdamW(ours.parameters(), lr=0.9)
    set_optimizer_state_dict(ours, pairs[0][1], gathered, options=options)
    again: Any = get_optimizer_state_dict(ours, pairs[0][1], options=options)
    for name, found in gathered["state"].items():
        for key, value in found.items():
            assert not isinstance(value, DTensor)
            assert torch.equal(again["state"][name][key], value), (name, key)
    train(range(5, 7))


def any_placement_steps() -> None:
    """Also with gradients that are placed otherwise, and beside plain tensors."""
    mesh, random = mesh_of_all(), torch.Generator().manual_seed(1)
    full = torch.randn(5, 3, generator=random)
    shards = [Shard(0), Shard(1), Replicate()]
    spread = [nn.Parameter(distribute_tensor(full, mesh, [each])) for each in shards]
    plain = [nn.Parameter(full.clone()) for _ in range(4)]
    sharded = [*spread, nn.Parameter(full.clone())]
    a, b = ferry.optim.AdamW(sharded, **SETTINGS), ferry.optim.AdamW(plain, **SETTINGS)
    for _ in range(3):
        gradient = torch.randn(5, 3, generator=random)
        for number, (mine, other) in enumerate(zip(sharded, plain, strict=True)):
            other.grad = gradient.clone()
            # Of a replicated parameter, autograd makes sums that are still to be added up.
            placed = [Shard(0), Replicate(), Partial(), None][number]
            mine.grad = other.grad
            if isinstance(placed, Partial):
                part = gradient if dist.get_rank() == 0 else torch.zeros_like(gradient)
                mine.grad = DTensor.from_local(part, mesh, [placed])
            elif placed is not None:
                mine.grad = distribute_tensor(gradient, mesh, [placed])
        a.step()
        b.step()
        for mine, other in zip(sharded, plain, strict=True):
            assert torch.equal(whole(mine), other)


def refused(call: Callable[[], object], kind: type[ferry.Error], why: str) -> None:
    """With this error."""
    with pytest.raises(kind, match=why):
        call()


def what_can_not_be_stepped_is_told() -> None:
    """At once, or before anything has changed."""
    mesh = mesh_of_all()
    sums = nn.Parameter(DTensor.from_local(torch.ones(4), mesh, [Partial()]))
    refused(
        lambda: ferry.optim.AdamW([("scale", sums)]),
        ferry.Unsupported,
        r"scale is a DTensor of partial sums.*redistribute\(\)",
    )
    sharded = nn.Parameter(distribute_tensor(torch.ones(4), mesh, [Shard(0)]))
    plain = nn.Parameter(torch.ones(4))
    a, b = ferry.optim.AdamW([sharded]), ferry.optim.AdamW([plain])
    for parameter, optimizer in ((sharded, a), (plain, b)):
        parameter.grad = torch.ones_like(parameter)
        optimizer.step()
    of_shard, of_plain = copy.deepcopy(a.state_dict()), copy.deepcopy(b.state_dict())
    why = r"exp_avg of parameter 0 of group 0 is a (Tensor|DTensor), the parameter a .*state_dict"
    refused(lambda: a.load_state_dict(of_plain), ferry.InvalidInput, why)
    refused(lambda: b.load_state_dict(of_shard), ferry.InvalidInput, why)
    of_shard["state"][0]["exp_avg"] = distribute_tensor(torch.ones(6), mesh, [Shard(0)])
    refused(lambda: a.load_state_dict(of_shard), ferry.InvalidInput, r"of shape \(6,\)")
    assert torch.equal(whole(a.state_dict()["state"][0]["exp_avg"]), torch.full((4,), 0.1))


def state_on_ssd_goes_on(place: Path) -> None:
    """Of each rank in a directory of its own."""
    directory = place / f"rank-{dist.get_rank()}"
    directory.mkdir(parents=True)
    state = f"ssd:{directory}"
    pair = Pair(torch.float32, state)
    pair.train(range(2))
    pair.optimizer.close()
    again = ferry.optim.AdamW(pair.model.parameters(), **SETTINGS, state=state, resume=True)
    pair.optimizer = again
    pair.train(range(2, 4))
    assert again.report().steps == 2
