"""What a tensor is: memory that may be read and written at its address, or something else.

Most tensors are an address, sizes and strides. Others are made to look like it. Some have no memory
(fake, meta), some keep it elsewhere (DTensors, sparse ones), some mean other numbers than lie there
(lazily conjugated ones). Whoever takes an address asks here first: reading there would give wrong
numbers, writing there would end the process, and finding zero bytes would do nothing in silence.

Everything that makes a tensor more than its memory shows in torch's dispatch keys. So the question
is whether there are any besides those of a plain tensor; kinds that nobody here has heard of are
refused too.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.parameter import is_lazy

_Key = torch._C.DispatchKey


def _bits(*keys: Any) -> int:
    bits = 0
    for key in keys:
        bits |= torch._C.DispatchKeySet(key).raw_repr()
    return bits


_INFERENCE = _bits(_Key.CPU, _Key.AutocastCPU)
_PLAIN = frozenset({_INFERENCE, _INFERENCE | _bits(_Key.ADInplaceOrView, _Key.AutogradCPU)})
"""Dispatch keys of tensors in host memory, made in inference mode or not."""

_dispatch_keys: Callable[[torch.Tensor], Any] = torch._C._dispatch_keys


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why a tensor's memory may not be touched."""

    kind: str
    """What the tensor is: ``a FakeTensor, which has no data``."""
    instead: str
    """What to do: ``leave FakeTensorMode``."""

    def __str__(self) -> str:
        return f"{self.kind}; {self.instead}"


def is_plain(tensor: torch.Tensor) -> bool:
    """Whether its elements lie in host memory at ``data_ptr()``, as dtype and strides say.

    Subclasses that add nothing but methods are plain too.
    """
    return (
        _dispatch_keys(tensor).raw_repr() in _PLAIN
        and not is_lazy(tensor)
        and _reach(tensor) <= tensor.untyped_storage().nbytes()
    )


def obstacle(tensor: torch.Tensor) -> Obstacle | None:
    """Why its elements do not lie in memory as dtype and strides say; None if they do, in host
    memory or on a device."""
    if is_plain(tensor):
        return None
    if tensor.layout not in (torch.strided, torch.jagged):
        layout = str(tensor.layout).removeprefix("torch.")
        return Obstacle(f"a tensor of layout {layout}", "pass tensor.to_dense()")
    found = next((found for is_so, found in _KINDS if is_so(tensor)), None)
    if found is not None:
        return found
    kind = type(tensor)
    if kind.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
        what = f"a {kind.__name__}, a subclass that keeps its data in its own way"
        return Obstacle(what, "pass the plain tensors inside of it")
    if _reach(tensor) > tensor.untyped_storage().nbytes():
        return Obstacle(
            "a tensor whose memory was given back, as sharding or offloading does",
            "gather its shards, or make its storage as large as the tensor, first",
        )
    if not tensor.is_cpu:
        return None
    return Obstacle(f"a tensor of an unknown kind, {_dispatch_keys(tensor)}", "pass a copy of it")


def resolved(tensor: torch.Tensor) -> tuple[torch.Tensor, Obstacle | None]:
    """The tensor, conjugated and negated where that was pending; and what is still in the way."""
    why = obstacle(tensor)
    if why in (_CONJUGATED, _NEGATED):
        tensor = tensor.resolve_conj().resolve_neg()
        why = obstacle(tensor)
    return tensor, why


def is_dtensor(tensor: torch.Tensor) -> bool:
    """Whether it is one, without importing what they are made of."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


def fakes() -> bool:
    """Whether ``FakeTensorMode`` is on, in which tensors are to be made without data."""
    if not torch._C._len_torch_dispatch_stack():
        return False
    return torch._guards.detect_fake_mode(None) is not None


@contextmanager
def without_modes() -> Iterator[None]:
    """Tensors that are made here have data, whatever mode the caller is in."""
    if not torch._C._len_torch_dispatch_stack():
        yield
        return
    from torch.utils._python_dispatch import _disable_current_modes

    with _disable_current_modes():
        yield


def outside_of_transforms() -> AbstractContextManager[None]:
    """Tensors that are made here are what they are elsewhere, also inside of a torch.func
    transform, where they would stand for others and share no memory."""
    disabled: AbstractContextManager[None] = torch._C._DisableFuncTorch()
    return disabled


def _reach(tensor: torch.Tensor) -> int:
    """Bytes of its storage up to the tensor's last element."""
    elements = tensor.numel()
    if not elements:
        return 0
    if not tensor.is_contiguous():
        steps = zip(tensor.shape, tensor.stride(), strict=True)
        elements = 1 + sum((size - 1) * step for size, step in steps)
    return (int(tensor.storage_offset()) + elements) * tensor.itemsize


def _is_fake(tensor: torch.Tensor) -> bool:
    module = sys.modules.get("torch._subclasses.fake_tensor")
    return module is not None and isinstance(tensor, module.FakeTensor)


def _is_functional(tensor: torch.Tensor) -> bool:
    return torch._is_functional_tensor(tensor) or type(tensor).__name__ == "FunctionalTensor"


_CONJUGATED = Obstacle("a lazily conjugated tensor", "pass tensor.resolve_conj()")
_NEGATED = Obstacle("a lazily negated tensor", "pass tensor.resolve_neg()")

_KINDS: tuple[tuple[Callable[[torch.Tensor], bool], Obstacle], ...] = (
    (
        is_lazy,
        Obstacle("a lazy module's parameter without a shape", "run the model once before"),
    ),
    (_is_fake, Obstacle("a FakeTensor, which has no data", "leave FakeTensorMode for it")),
    (
        is_dtensor,
        Obstacle(
            "a DTensor, of which each process has a part",
            "pass tensor.to_local() for the part that is here, or tensor.full_tensor()",
        ),
    ),
    (
        torch._C._functorch.is_functorch_wrapped_tensor,
        Obstacle(
            "a tensor inside of a torch.func transform, which stands for others",
            "use it outside of the transform",
        ),
    ),
    (
        _is_functional,
        Obstacle(
            "a functional tensor, as tracing makes them, which stands for others",
            "use it outside of what is traced",
        ),
    ),
    (
        lambda tensor: tensor.is_nested,
        Obstacle("a nested tensor", "pass its parts: tensor.unbind()"),
    ),
    (
        lambda tensor: tensor.is_meta,
        Obstacle("a tensor on the meta device, which has no data", "load or initialize it first"),
    ),
    (
        lambda tensor: tensor.is_quantized,
        Obstacle(
            "a quantized tensor",
            "pass tensor.int_repr() and keep its scales and zero points, or tensor.dequantize()",
        ),
    ),
    (
        lambda tensor: tensor._is_zerotensor(),
        Obstacle("a tensor of zeros without memory, as autograd makes them", "pass a clone of it"),
    ),
    (lambda tensor: tensor.is_conj(), _CONJUGATED),
    (lambda tensor: tensor.is_neg(), _NEGATED),
)
"""In an order in which the first that applies says what the tensor is, and in which no question is
asked that an earlier kind can't answer."""
