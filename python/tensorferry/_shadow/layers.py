"""Which parameters move as a whole: those of a module that is really called."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.conv import _ConvNd

from tensorferry import _lib
from tensorferry._shadow.host_memory import HostMemory, Slot


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

    rows: int = 1
    """Of the input of its last call."""

    @property
    def nbytes(self) -> int:
        """Of its parameters."""
        return sum(slot.nbytes for slot in self.slots)

    def called(self, arguments: Iterable[object]) -> int:
        """A forward with these arguments begins: what it reads of the parameters, in place."""
        tensors = (each for each in arguments if isinstance(each, torch.Tensor))
        given = next(tensors, None)
        module = self.module
        if isinstance(module, nn.Embedding | nn.EmbeddingBag) and given is not None:
            row = module.weight.shape[1] * module.weight.itemsize
            return _lib.Shadow.looked_up_bytes(self.nbytes, row, given.numel())
        self.rows = 1 if given is None else _rows(module, given)
        return self.read_bytes(self.nbytes)

    def read_bytes(self, nbytes: int) -> int:
        """What crosses the link when a kernel uses so much of the parameters in place."""
        return _lib.Shadow.read_bytes(nbytes, self.rows)


def _rows(module: nn.Module, given: torch.Tensor) -> int:
    """How often the parameters are used: all dimensions of the input but that of its features."""
    features = -1
    if isinstance(module, _ConvNd):
        features = 1 - module.weight.dim()
    elif isinstance(module, _NormBase | nn.GroupNorm | nn.PReLU):
        features = 1
    has_features = -given.dim() <= features < given.dim()
    return max(given.numel() // max(given.shape[features], 1), 1) if has_features else 1


def layers_of(root: nn.Module, called: list[nn.Module], host_memory: HostMemory) -> list[Layer]:
    """The layers, in the order of their first call.

    A parameter belongs to the innermost module on its path that is called: the projection in an
    ``nn.MultiheadAttention`` is not, and its parameters are the attention's.
    """
    names = {module: name for name, module in root.named_modules(remove_duplicate=True)}
    known = set(called)
    members: dict[nn.Module, dict[Slot, None]] = {}
    for path, parameter in root.named_parameters(remove_duplicate=False):
        if parameter in host_memory.of:
            owner = _owner(root, path, known)
            members.setdefault(owner, {})[host_memory.of[parameter]] = None
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
