"""Functions of the user's, called from the core's threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch

from tensorferry._errors import InvalidInput
from tensorferry._kinds import resolved
from tensorferry._structure.dtypes import BY_NAME, OF_TORCH


class _Here(threading.local):
    calls = 0


_here = _Here()


def check_may_wait() -> None:
    """Refuses to have a function wait for what such threads make as the one that it is called from:
    when all of them wait so, nobody works."""
    if _here.calls:
        what = "a function in a transform can't wait for batches, or for samples with a transform"
        why = "the threads that would prepare them are those that wait"
        raise InvalidInput(f"{what}: {why}. Ask a dataset of its own for samples: dataset[index]")


def call(
    function: Callable[[torch.Tensor], Any], dtype: str, shape: Sequence[int], memory: Any
) -> tuple[str, list[int], bytes]:
    """Calls it with a tensor of this memory; what its result is made of."""
    _here.calls += 1
    try:
        result = function(tensor(dtype, shape, memory))
    finally:
        _here.calls -= 1
    if not isinstance(result, torch.Tensor):
        result = torch.as_tensor(result)
    result, why = resolved(result)
    if why is not None:
        raise InvalidInput(f"the function gave {why}")
    result = result.detach().cpu().contiguous()
    if result.dtype not in OF_TORCH:
        raise InvalidInput(f"the function gave a tensor of {result.dtype}, which has no place here")
    content = result.reshape(-1).view(torch.uint8).numpy().tobytes()
    return OF_TORCH[result.dtype], list(result.shape), content


def tensor(dtype: str, shape: Sequence[int], memory: Any) -> torch.Tensor:
    """A tensor over memory of the core, without a copy."""
    if len(memory) == 0:
        return torch.empty(tuple(shape), dtype=BY_NAME[dtype])
    return torch.frombuffer(memory, dtype=BY_NAME[dtype]).view(tuple(shape))
