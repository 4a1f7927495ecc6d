"""Models and optimizers that can't be shadowed, and what to do about it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import torch
from torch import nn

from tensorferry._errors import InvalidInput, Unsupported
from tensorferry._kinds import obstacle
from tensorferry._optim.tensors import is_dense


def refuse_model(model: nn.Module) -> None:
    """Says what keeps a model from being wrapped."""
    for name, module in model.named_modules():
        where = name or "the model"
        if type(module).__name__ == "OptimizedModule" or module._compiled_call_impl is not None:
            raise Unsupported(
                f"{where} is compiled, and compiled code does not see its parameters move; "
                "wrap the plain module"
            )
        if isinstance(module, torch.jit.ScriptModule):
            raise Unsupported(f"{where} is a ScriptModule, which can't be hooked; wrap the module")
        if getattr(module, "sparse", False) is True:
            raise Unsupported(
                f"{where} makes sparse gradients, which are not moved; make it with sparse=False"
            )
    for name, parameter in model.named_parameters():
        refuse_parameter(name, parameter)
    refuse_overlap(dict(model.named_parameters()))


def refuse_parameter(name: str, parameter: torch.Tensor) -> None:
    """Says what keeps a parameter from being moved to host memory of its own."""
    if nn.parameter.is_lazy(parameter):
        raise InvalidInput(f"{name} has no shape yet; run the model once before it is wrapped")
    if not parameter.is_cpu:
        raise InvalidInput(
            f"{name} is on {parameter.device}; parameters live in host memory, wrap the model "
            "before it is moved"
        )
    why = obstacle(parameter)
    if why is not None:
        raise Unsupported(f"{name} is {why.kind}; only plain, dense parameters move")
    if not is_dense(parameter):
        raise Unsupported(f"{name} is a view with gaps in memory; only dense parameters move")
    if parameter.is_complex():
        raise Unsupported(f"{name} is {parameter.dtype}; complex parameters are not moved")
    if type(parameter) not in (nn.Parameter, torch.Tensor):
        kind = type(parameter).__name__
        raise Unsupported(f"{name} is a {kind}; only plain parameters are moved")


def refuse_overlap(named: dict[str, torch.Tensor]) -> None:
    """Says which parameters share memory: each would get memory of its own."""
    filled = [(each.data_ptr(), each.nbytes, name) for name, each in named.items() if each.nbytes]
    for (start, nbytes, first), (after, _, second) in pairwise(sorted(filled)):
        if after < start + nbytes:
            raise InvalidInput(
                f"{first} and {second} are two parameters that share memory, and would do so no "
                "longer; tie them by making them one, as in head.weight = words.weight"
            )


def refuse_optimizer(optimizer: torch.optim.Optimizer, parameters: list[torch.Tensor]) -> None:
    """Says whether an optimizer is of another model."""
    if not isinstance(optimizer, torch.optim.Optimizer):
        kind = type(optimizer).__name__
        raise InvalidInput(f"the optimizer is a {kind}; give a torch.optim.Optimizer")
    held = {parameter for group in optimizer.param_groups for parameter in group["params"]}
    if not held.intersection(parameters):
        raise InvalidInput(
            "the optimizer has none of the model's parameters; make it with model.parameters() "
            "of the model that is wrapped"
        )


def refuse_change(model: nn.Module, change: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """Says what ``to()``, ``half()`` and their like would change of a wrapped model; nothing where
    it is so already."""
    probed: set[tuple[object, ...]] = set()
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        plain = tensor.detach() if tensor.layout is torch.strided else torch.empty(0)
        # Small, with dimensions in the same order in memory.
        probe = torch.zeros_like(plain[tuple(slice(2) for _ in plain.shape)])
        kind = probe.dtype, probe.shape, probe.stride(), probe.device
        if kind in probed:
            continue
        probed.add(kind)
        try:
            changed = change(probe)
        except Exception as error:
            raise _unmovable(name, f"could not be changed ({error})") from error
        if changed.dtype != probe.dtype or changed.device != probe.device:
            raise _unmovable(name, f"would become {changed.dtype} on {changed.device}")
        if changed is not probe or probe._version > 0 or probe.is_shared():  # type: ignore[no-untyped-call]
            raise _unmovable(name, "would be changed or get other memory")


def _unmovable(name: str, what: str) -> Unsupported:
    return Unsupported(
        f"{name} {what}, but its model is wrapped: where parameters are is planned, on the device "
        "that the ShadowModel was given. Change dtype, device or memory before the model is "
        "wrapped, or after close()"
    )
