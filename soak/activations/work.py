"""What children of the activation scenarios do."""

from __future__ import annotations

import hashlib
import threading
from pathlib import Path
from typing import Any

import torch
from torch import nn

import tensorferry as ferry
from soak.networks import alike, batch, network
from soak.tell import Tell

STEPS_MAX = 1_000_000
RATE = 0.05


def train(
    tell: Tell,
    paths: list[str],
    name: str,
    depth: int,
    seed: int,
    shares: list[float],
    steps: int = STEPS_MAX,
    enough: str | None = None,
    **options: Any,
) -> list[dict[str, int]]:
    """Trains with an offload, beside the same without; what it held after each step.

    ``shares``: sizes of batches, in turn. A step that finds the disk full is repeated, and the next
    ones work; with ``enough``, it goes on until that file is there.
    """
    model, plain = network(name, depth, seed), network(name, depth, seed)
    offload = ferry.ActivationOffload(paths, **options)
    held = []
    for step in range(steps):
        x = batch(name, seed, step, shares[step % len(shares)])
        wanted = gradients(plain, x, step)
        try:
            alike(gradients(model, x, step, offload), wanted, f"step {step}")
        except ferry.OutOfSpace as error:
            model.load_state_dict(plain.state_dict())
            tell("refused", str(error))
        descend(model, wanted)
        descend(plain, wanted)
        tell("step", step)
        held.append(tell.held())
        if enough is not None and Path(enough).exists():
            break
    return held


def gradients(
    model: nn.Module, x: torch.Tensor, step: int, offload: ferry.ActivationOffload | None = None
) -> list[torch.Tensor]:
    """Of all parameters, after one forward and backward."""
    torch.manual_seed(step)
    model.zero_grad()
    if offload is None:
        loss = model(x).square().mean()
    else:
        with offload:
            loss = model(x).square().mean()
    loss.backward()
    return [each.grad for each in model.parameters() if each.grad is not None]


def descend(model: nn.Module, by: list[torch.Tensor]) -> None:
    """A plain step."""
    with torch.no_grad():
        for parameter, gradient in zip(model.parameters(), by, strict=True):
            parameter.sub_(RATE * gradient)


def train_side_by_side(
    tell: Tell, paths: list[str], name: str, depth: int, seed: int, steps: int, **options: Any
) -> None:
    """Two threads, each with a model of its own, share one offload."""
    offload = ferry.ActivationOffload(paths, **options)
    # Chance is of the whole process: models are made before there are threads, which use none.
    pairs = [[network(name, depth, seed + number).eval() for _ in range(2)] for number in range(2)]
    failed: list[BaseException] = []

    def one(number: int) -> None:
        model, plain = pairs[number]
        try:
            for step in range(steps):
                x = batch(name, seed, step)
                mine = gradients(model, x, step, offload)
                alike(mine, gradients(plain, x, step), f"thread {number}, step {step}")
                tell("step", step)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=one, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


def fingerprints(
    tell: Tell,
    paths: list[str] | None,
    name: str,
    depth: int,
    seed: int,
    steps: int,
    **options: Any,
) -> list[str]:
    """Of the gradients of each step, with an offload or, with no paths, without."""
    model = network(name, depth, seed)
    offload = None if paths is None else ferry.ActivationOffload(paths, **options)
    found = []
    for step in range(steps):
        hashed = hashlib.sha256()
        mine = gradients(model, batch(name, seed, step), step, offload)
        for gradient in mine:
            hashed.update(gradient.contiguous().numpy().tobytes())
        found.append(hashed.hexdigest())
        descend(model, mine)
        tell("step", step)
    return found
