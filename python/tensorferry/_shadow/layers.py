"""Which parameters move as a whole: those of a module that is really called."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import nn

from tensorferry._shadow.homes import Homes, Slot


@dataclass(eq=False)
class Layer:
    """The parameters of one called module; a tied one is in each layer that uses it."""

    index: int
    name: str
    module: nn.Module
    slots: list[Slot]
    gradients: list[Slot] = field(default_factory=list)
    """Those whose gradient is this layer's: the first that uses a parameter is the last to need it
    in backward."""

    @property
    def nbytes(self) -> int:
        """Of its parameters."""
        return sum(slot.nbytes for slot in self.slots)

    def forward_bytes(self, arguments: tuple[object, ...]) -> int:
        """What a forward with these arguments reads of the parameters."""
        if isinstance(self.module, nn.Embedding | nn.EmbeddingBag) and arguments:
            rows = arguments[0]
            if isinstance(rows, torch.Tensor):
                weight = self.module.weight
                looked_up = min(rows.numel(), weight.shape[0])
                return int(looked_up * weight.shape[1] * weight.itemsize)
        return self.nbytes


def layers_of(root: nn.Module, called: list[nn.Module], homes: Homes) -> list[Layer]:
    """The layers, in the order of their first call.

    A parameter belongs to the innermost module on its path that is called: the projection in an
    ``nn.MultiheadAttention`` is not, and its parameters are the attention's.
    """
    names = {module: name for name, module in root.named_modules(remove_duplicate=True)}
    known = set(called)
    members: dict[nn.Module, dict[Slot, None]] = {}
    for path, parameter in root.named_parameters(remove_duplicate=False):
        if parameter in homes.of:
            owner = _owner(root, path, known)
            members.setdefault(owner, {})[homes.of[parameter]] = None
    order = [module for module in called if module in members]
    layers = [
        Layer(index, names.get(module) or "(model)", module, list(members[module]))
        for index, module in enumerate(order)
    ]
    taken: set[Slot] = set()
    for layer in layers:
        fresh = [slot for slot in layer.slots if slot not in taken]
        layer.gradients = [slot for slot in fresh if slot.parameter.requires_grad]
        taken.update(fresh)
    return layers


def _owner(root: nn.Module, path: str, called: set[nn.Module]) -> nn.Module:
    owner = here = root
    for step in path.split(".")[:-1]:
        here = getattr(here, step)
        if here in called:
            owner = here
    return owner
