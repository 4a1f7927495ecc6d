"""What children of the parameter scenarios do."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import torch
from torch import nn

import tensorferry as ferry
from soak.networks import alike, batch, network
from soak.tell import Tell

STEPS_MAX = 1_000_000
RATE = 0.01


def shadow(
    tell: Tell, name: str, depth: int, seed: int, steps: int, share: float, **options: Any
) -> list[dict[str, int]]:
    """Trains a shadow model beside the plain one; what the process held after each step.

    ``share`` is the part of what all of it takes that may be on the device. A budget that is too
    small is an error that states the least, and with that it works.
    """
    plain = network(name, depth, seed)
    theirs = ferry.optim.AdamW(plain.parameters(), lr=RATE)
    weights = sum(each.nbytes for each in plain.parameters())
    saved = 40 * batch(name, seed, 0).nbytes * depth
    budget = int(share * (2 * weights + saved))
    model, mine = _shadowed(name, depth, seed, budget, options)
    held = []
    for step in range(steps):
        x = batch(name, seed, step)
        wanted = _loss(plain, theirs, x, step)
        try:
            found = _loss(model, mine, x, step)
        except ferry.OutOfMemory as error:
            tell("refused", str(error))
            break
        alike([found], [wanted], f"loss {step}")
        alike(list(model.parameters()), list(plain.parameters()), f"parameters {step}")
        tell("step", step)
        held.append(tell.held())
    return held


def _shadowed(
    name: str, depth: int, seed: int, budget: int, options: dict[str, Any]
) -> tuple[nn.Module, torch.optim.Optimizer]:
    model = network(name, depth, seed)
    optimizer = ferry.optim.AdamW(model.parameters(), lr=RATE)
    device = f"emulated:capacity={2 * budget},bandwidth=8GB/s,latency=5us"
    shadowed = ferry.ShadowModel(model, optimizer, device=device, memory_budget=budget, **options)
    return shadowed, optimizer


def _loss(
    model: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor, step: int
) -> torch.Tensor:
    torch.manual_seed(step)
    loss: Any = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    found: torch.Tensor = loss.detach()
    return found


# -- an optimizer's state on SSD --


def weights(seed: int, sizes: list[int], dtype: str) -> list[nn.Parameter]:
    """Parameters before the first step."""
    generator = torch.Generator().manual_seed(seed)
    kind = getattr(torch, dtype)
    return [nn.Parameter(torch.randn(size, generator=generator).to(kind)) for size in sizes]


def give_gradients(params: list[nn.Parameter], seed: int, step: int) -> None:
    """Those of one step."""
    generator = torch.Generator().manual_seed(seed * 1000 + step)
    for parameter in params:
        parameter.grad = torch.randn(len(parameter), generator=generator).to(parameter.dtype)


def after(seed: int, sizes: list[int], dtype: str, steps: int) -> list[nn.Parameter]:
    """Parameters after so many steps with the state in memory."""
    params = weights(seed, sizes, dtype)
    optimizer = ferry.optim.AdamW(params, lr=RATE)
    for step in range(steps):
        give_gradients(params, seed, step)
        optimizer.step()
    return params


def step_on_disk(
    tell: Tell,
    directory: str,
    seed: int,
    sizes: list[int],
    dtype: str,
    first: int,
    steps: int = STEPS_MAX,
) -> list[dict[str, int]]:
    """Takes steps with the state in a directory: from nothing, or as one goes on that has taken
    ``first`` of them."""
    params = after(seed, sizes, dtype, first)
    optimizer = ferry.optim.AdamW(params, lr=RATE, state=f"ssd:{directory}", resume=first > 0)
    held = []
    tell("ready")
    for step in range(first, first + steps):
        give_gradients(params, seed, step)
        tell("stepping", step)
        optimizer.step()
        tell("stepped", step + 1)
        held.append(tell.held())
    alike(params, after(seed, sizes, dtype, first + steps), f"after {first + steps} steps")
    return held


def resume(
    tell: Tell, directory: str, seed: int, sizes: list[int], dtype: str, newest: int
) -> int | None:
    """The steps of a state that goes on as if nothing had happened; none if it is refused, which
    is right for one that ended in the middle of a step."""
    optimizer = None
    try:
        params = weights(seed, sizes, dtype)
        optimizer = ferry.optim.AdamW(params, lr=RATE, state=f"ssd:{directory}", resume=True)
    except ferry.Corrupt as error:
        if "middle of a step" not in str(error):
            raise
        return None
    # A parameter has no state before its first step, as with torch.
    steps = int(optimizer.state[params[0]].get("step", 0))
    with torch.no_grad():
        for target, source in zip(params, after(seed, sizes, dtype, steps), strict=True):
            target.copy_(source)
    give_gradients(params, seed, steps)
    optimizer.step()
    alike(params, after(seed, sizes, dtype, steps + 1), f"after {steps} steps and a kill")
    return steps


def fingerprint(
    tell: Tell, directory: str | None, seed: int, sizes: list[int], dtype: str, steps: int
) -> str:
    """Of the parameters after some steps with the state in a directory or, without, in memory."""
    params = weights(seed, sizes, dtype)
    state = "memory" if directory is None else f"ssd:{directory}"
    optimizer = ferry.optim.AdamW(params, lr=RATE, state=state)
    for step in range(steps):
        give_gradients(params, seed, step)
        optimizer.step()
        tell("stepped", step + 1)
    hashed = hashlib.sha256()
    for parameter in params:
        hashed.update(parameter.detach().view(torch.uint8).numpy().data)
    return hashed.hexdigest()


def step_while_full(
    tell: Tell, directory: str, seed: int, sizes: list[int], dtype: str, enough: str
) -> int:
    """A full disk is told before anything has changed; the step can be repeated."""
    params, optimizer = weights(seed, sizes, dtype), None
    taken, refused = 0, 0
    for _ in range(STEPS_MAX):
        give_gradients(params, seed, taken)
        try:
            # Making it needs a little room already.
            if optimizer is None:
                optimizer = ferry.optim.AdamW(params, lr=RATE, state=f"ssd:{directory}")
            optimizer.step()
            taken += 1
        except ferry.OutOfSpace as error:
            refused += 1
            tell("refused", str(error))
        alike(params, after(seed, sizes, dtype, taken), f"after {taken} steps")
        tell("tried", taken)
        if taken > 2 and Path(enough).exists():
            break
    return refused
