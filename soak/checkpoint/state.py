"""Objects to save, each made from a seed and a step, and recognised when they come back."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch

WORD = 4
"""Bytes of the number that tells one step from another, all over a tensor."""

DTYPES = (torch.float32, torch.bfloat16, torch.int64, torch.uint8, torch.float64, torch.int16)


@lru_cache(maxsize=2)
def _noise(seed: int, words: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-(2**31), 2**31 - 1, (words,), dtype=torch.int32, generator=generator)


def tensors(seed: int, step: int, sizes: list[int]) -> dict[str, torch.Tensor]:
    """A tensor for each size in bytes; every word of it differs from that of any other step."""
    noise = _noise(seed, max(sizes) // WORD + 8)
    return {
        f"layer{number}.weight": (
            noise[: max(8, size // WORD) // 8 * 8] + step * 2654435761 % 2**31
        )
        .to(torch.int32)
        .view(DTYPES[number % len(DTYPES)])
        for number, size in enumerate(sizes)
    }


def state(seed: int, step: int, sizes: list[int]) -> dict[str, Any]:
    """What a training loop saves: tensors, some in a view or twice, and plain values."""
    model = tensors(seed, step, sizes)
    first = next(iter(model.values()))
    return {
        "step": step,
        "model": model,
        "tied": first,
        "turned": first[: len(first) // 2 * 2].reshape(2, -1).t(),
        "optimizer": {"state": {0: {"exp_avg": first.clone(), "step": torch.tensor(float(step))}}},
        "notes": [None, True, f"step {step}", (1, 2.5)],
    }


def step_of(loaded: Any, seed: int, sizes: list[int]) -> int:
    """The step that an object is the state of; ``ValueError`` if it is that of none, or of two."""
    step = int(loaded["step"])
    differ(loaded, state(seed, step, sizes), "the state")
    return step


def differ(one: Any, other: Any, name: str) -> None:
    """``ValueError`` where they do."""
    if type(one) is not type(other):
        raise ValueError(f"{name} is a {type(one)}, not a {type(other)}")
    if isinstance(one, dict):
        if list(one) != list(other):
            raise ValueError(f"{name} has {list(one)}, not {list(other)}")
        for key in one:
            differ(one[key], other[key], f"{name}[{key!r}]")
    elif isinstance(one, list | tuple):
        if len(one) != len(other):
            raise ValueError(f"{name} has {len(one)} elements, not {len(other)}")
        for number, pair in enumerate(zip(one, other, strict=True)):
            differ(*pair, f"{name}[{number}]")
    elif isinstance(one, torch.Tensor):
        _differ_tensors(one, other, name)
    elif one != other:
        raise ValueError(f"{name} is {one!r}, not {other!r}")


def _differ_tensors(one: torch.Tensor, other: torch.Tensor, name: str) -> None:
    if (one.dtype, one.shape) != (other.dtype, other.shape):
        raise ValueError(f"{name} is {one.dtype} {one.shape}, not {other.dtype} {other.shape}")
    # By bytes: what is no number is equal to nothing.
    mine, theirs = (each.contiguous().reshape(-1).view(torch.uint8) for each in (one, other))
    wrong = (mine != theirs).nonzero()
    if len(wrong):
        at = int(wrong[0])
        raise ValueError(f"{name}: {len(wrong)} of {len(mine)} bytes are wrong, from byte {at} on")
