"""Who takes the step."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import nn

import tensorferry as ferry

SETTINGS: dict[str, Any] = {"lr": 1e-3, "weight_decay": 1e-2}
SMALL = 1000
"""Elements of a small tensor."""


class Way(Protocol):
    """Something that can take steps."""

    def step(self) -> None:
        """One step of all parameters."""


def model(elements: int, largest: int, dtype: torch.dtype) -> list[nn.Parameter]:
    """Parameters with their gradients."""
    random = torch.Generator().manual_seed(0)
    small = elements // 100 // SMALL
    sizes, left = [SMALL] * small, elements - small * SMALL
    while left > 0:
        sizes.append(min(left, largest))
        left -= sizes[-1]
    parameters = []
    for size in sizes:
        parameter = nn.Parameter(torch.randn(size, generator=random).to(dtype))
        parameter.grad = torch.randn(size, generator=random).mul_(1e-2).to(dtype)
        parameters.append(parameter)
    return parameters


class Plain:
    """An optimizer over the parameters themselves."""

    def __init__(
        self, parameters: list[nn.Parameter], make: Callable[..., torch.optim.Optimizer]
    ) -> None:
        self.optimizer = make(parameters, **SETTINGS)

    def step(self) -> None:
        """As in training."""
        self.optimizer.step()


class Masters:
    """An optimizer over float32 copies, which are narrowed into the parameters."""

    def __init__(
        self, parameters: list[nn.Parameter], make: Callable[..., torch.optim.Optimizer]
    ) -> None:
        self.halves = parameters
        self.masters = [nn.Parameter(each.detach().float()) for each in parameters]
        self.narrow = [each.grad for each in parameters if each.grad is not None]
        self.wide = [torch.zeros_like(master) for master in self.masters]
        for master, gradient in zip(self.masters, self.wide, strict=True):
            master.grad = gradient
        self.optimizer = make(self.masters, **SETTINGS)

    @torch.no_grad()
    def step(self) -> None:
        """Widens, steps, narrows."""
        torch._foreach_copy_(self.wide, self.narrow)
        self.optimizer.step()
        torch._foreach_copy_(list(self.halves), list(self.masters))


def deepspeed(parameters: list[nn.Parameter], **settings: Any) -> torch.optim.Optimizer:
    """DeepSpeed's, which is AdamW by default."""
    make = importlib.import_module("deepspeed.ops.adam").DeepSpeedCPUAdam
    made: torch.optim.Optimizer = make(parameters, adamw_mode=True, **settings)
    return made


def fused(parameters: list[nn.Parameter], **settings: Any) -> torch.optim.Optimizer:
    """torch's fastest."""
    return torch.optim.AdamW(parameters, fused=True, **settings)


def foreach(parameters: list[nn.Parameter], **settings: Any) -> torch.optim.Optimizer:
    """torch's usual one for lists."""
    return torch.optim.AdamW(parameters, foreach=True, **settings)


MAKERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "ours": ferry.optim.AdamW,
    "fused": fused,
    "foreach": foreach,
    "deepspeed": deepspeed,
}


def way_of(name: str, parameters: list[nn.Parameter], **more: Any) -> Way:
    """By its name; rivals step halves by their masters."""
    make = MAKERS[name]
    if name != "ours" and parameters[0].dtype != torch.float32:
        return Masters(parameters, make)
    return Plain(parameters, lambda *args, **settings: make(*args, **settings, **more))
