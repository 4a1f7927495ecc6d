"""A step as the core takes it: settings of groups, and the tensors that move."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from tensorferry._errors import Unsupported
from tensorferry._optim.tensors import DTYPES

Settings = tuple[float, float, float, float, float, bool, bool]


UNSUPPORTED = {
    "amsgrad": "; use torch.optim for it",
    "differentiable": "; use torch.optim for it",
    "capturable": ": it is for steps on a device; leave it out, or set it to False in the state",
}
"""Settings of a group that would change what a step does, and what to do instead."""


class Moving(NamedTuple):
    """A parameter with a gradient."""

    group: int
    place: int
    """In the group."""
    names: list[str] | None
    """Of the group's parameters, if they were named."""
    owner: torch.Tensor
    """The parameter, as users know it."""
    parameter: torch.Tensor
    """What of it is here: a shard of a DTensor, or all."""
    gradient: torch.Tensor

    @property
    def name(self) -> str:
        """What errors call it."""
        return name_of(self.group, self.place, self.names)

    @property
    def is_half(self) -> bool:
        """Whether it has a master."""
        return self.parameter.dtype != torch.float32

    def addresses(self) -> tuple[tuple[str, int], tuple[str, int]]:
        """Of parameter and gradient."""
        parameter, gradient = self.parameter, self.gradient
        return (
            (DTYPES[parameter.dtype], parameter.data_ptr()),
            (DTYPES[gradient.dtype], gradient.data_ptr()),
        )


def name_of(group: int, place: int, names: list[str] | None) -> str:
    """What errors call a parameter, named or not."""
    return names[place] if names else f"parameter {place} of group {group}"


def settings_of(group: dict[str, Any], decoupled: bool) -> Settings:
    """Of a parameter group, in the core's order."""
    refuse_unsupported(group)
    beta1, beta2 = group["betas"]
    return (
        float(group["lr"]),
        float(beta1),
        float(beta2),
        float(group["eps"]),
        float(group["weight_decay"]),
        bool(group.get("decoupled_weight_decay", decoupled)),
        bool(group.get("maximize", False)),
    )


def refuse_unsupported(group: dict[str, Any]) -> None:
    """Says what is not there."""
    for name, why in UNSUPPORTED.items():
        if group.get(name):
            raise Unsupported(f"{name}=True is not supported{why}")


def counts(steps: list[torch.Tensor]) -> list[float]:
    """The steps that were taken."""
    return [float(each.item()) for each in steps]
