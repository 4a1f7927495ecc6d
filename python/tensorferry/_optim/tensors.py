"""Tensors as the core can take them: dense, on the CPU, all of a parameter's in one order."""

from __future__ import annotations

from typing import NoReturn

import torch

from tensorferry import _lib
from tensorferry._errors import InvalidInput, Unsupported
from tensorferry._kinds import obstacle, resolved
from tensorferry._optim.shards import check_placement, here, part_of

DTYPES = {torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16"}
EXACT = frozenset({torch.Tensor, torch.nn.Parameter})
HUGE_BYTES = 2 << 20
"""From this size on, state lies in huge pages where the kernel has some."""
SKEW_BYTES = 1024 + 64
"""A quarter of a page, and a line."""


def is_dense(tensor: torch.Tensor) -> bool:
    """Whether its elements fill their memory without gaps, in whatever order."""
    return tensor.is_contiguous() or torch.empty_like(tensor).stride() == tensor.stride()


def same_order(tensor: torch.Tensor, parameter: torch.Tensor) -> bool:
    """Whether the elements of both lie in memory in the same order."""
    if parameter.is_contiguous():
        return tensor.is_contiguous()
    return tensor.stride() == parameter.stride()


def is_usual(tensor: torch.Tensor) -> bool:
    """Whether it is what most tensors are, so that nothing else about it needs a look.

    A step looks at each of thousands of tensors: what it can leave out shows in its time. So this
    asks less than ``_kinds``. What would pass without having memory has no address either, which
    the core refuses.
    """
    return (
        type(tensor) in EXACT
        and tensor.dtype is torch.float32
        and tensor.is_cpu
        and tensor.layout is torch.strided
        and tensor.is_contiguous()
        and not tensor.is_neg()
        and tensor.untyped_storage().nbytes() >= tensor.nbytes
    )


def check_parameter(owner: torch.Tensor, name: str) -> torch.Tensor:
    """What of a parameter is here to take steps; says what keeps it from taking any."""
    check_placement(owner, name)
    parameter = here(owner)
    why = obstacle(parameter)
    if why is not None:
        raise Unsupported(f"{name} is {why.kind}, and takes no steps here; {why.instead}")
    if not parameter.is_cpu:
        where = parameter.device
        raise Unsupported(f"{name} is on {where}; only parameters in host memory take steps here")
    if parameter.dtype not in DTYPES:
        raise Unsupported(
            f"{name} is {parameter.dtype}; float32, bfloat16 and float16 take steps, "
            "torch.optim has optimizers for others"
        )
    if not is_dense(parameter):
        raise InvalidInput(
            f"{name} is a view with gaps or overlaps in memory; make it contiguous first"
        )
    return parameter


def gradient_of(owner: torch.Tensor, parameter: torch.Tensor, name: str) -> torch.Tensor:
    """The gradient of what is here, in the parameter's order; a copy where it is not so."""
    assert owner.grad is not None
    gradient, why = resolved(part_of(owner.grad, owner, f"the gradient of {name}"))
    if gradient.layout != torch.strided:
        raise InvalidInput(
            f"the gradient of {name} is sparse, which Adam has no step for; "
            "use torch.optim.SparseAdam for it, or a layer with sparse=False"
        )
    if why is not None:
        raise Unsupported(f"the gradient of {name} is {why.kind}, which is no step; {why.instead}")
    if not gradient.is_cpu or gradient.dtype not in DTYPES:
        raise Unsupported(
            f"the gradient of {name} is {gradient.dtype} on {gradient.device}; "
            "only float32, bfloat16 and float16 in host memory take steps here"
        )
    if same_order(gradient, parameter):
        return gradient
    return torch.empty_like(parameter, dtype=gradient.dtype).copy_(gradient)


def refuse_shape(parameter: torch.Tensor, gradient: torch.Tensor, name: str) -> NoReturn:
    """The core goes over as many elements as the parameter has, of the gradient too."""
    raise InvalidInput(
        f"the gradient of {name} is of shape {tuple(gradient.shape)}, the parameter of "
        f"{tuple(parameter.shape)}; call zero_grad() after a parameter's shape is changed"
    )


def zeros_like(parameter: torch.Tensor, place: int = 0) -> torch.Tensor:
    """Float32 zeros in the parameter's order.

    Those that are used together get different places: where all of them begin at the same place of
    a page, a processor takes a read of one for a read of what was just written to another.
    """
    bytes_ = parameter.numel() * 4
    if bytes_ < HUGE_BYTES:
        return torch.zeros_like(parameter, dtype=torch.float32, requires_grad=False)
    skew = (1 + place) * SKEW_BYTES
    flat = torch.frombuffer(_lib.zeroed(bytes_ + skew), dtype=torch.float32, offset=skew)
    # Its strides, for dense ones of any order.
    return flat.as_strided(parameter.shape, parameter.stride())


def laid_out(
    value: torch.Tensor, parameter: torch.Tensor, what: str, place: int = 0
) -> torch.Tensor:
    """A piece of state as float32 in the parameter's order: itself, or a copy."""
    value, why = resolved(value)
    if why is not None:
        raise InvalidInput(f"{what} is {why}")
    if value.shape != parameter.shape:
        raise InvalidInput(
            f"{what} is of shape {tuple(value.shape)}, the parameter of {tuple(parameter.shape)}"
        )
    if value.dtype == torch.float32 and value.is_cpu and same_order(value, parameter):
        return value
    return zeros_like(parameter, place).copy_(value)
