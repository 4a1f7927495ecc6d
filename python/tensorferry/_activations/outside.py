"""What of a forward pass stays in memory without counting, though it is as large as what counts.

Casts of parameters, as autocast makes them, belong to the parameters. Tensors whose bytes are not
plainly in one storage (DTensors, sparse ones, subclasses) can't be taken away and put back. Nobody
should look for that memory in vain, so it is reported: in numbers, and those that are no casts by
a warning, once for each kind.
"""

from __future__ import annotations

import threading
import warnings

import torch

from tensorferry._activations.report import Outside
from tensorferry._kinds import is_dtensor

CASTS = "casts of parameters"


class Uncounted:
    """Tensors of the last forward pass that do not count, by kind."""

    def __init__(self, min_bytes: int) -> None:
        self._min_bytes = min_bytes
        self._lock = threading.Lock()
        self._kinds: dict[str, Outside] = {}
        self._seen: set[int] = set()
        self._warned: set[str] = set()

    def begin(self) -> None:
        """A forward pass begins."""
        with self._lock:
            self._kinds, self._seen = {}, set()

    def add_cast(self, tensor: torch.Tensor) -> None:
        """A cast of a parameter, or a view of one, was saved."""
        storage = tensor.untyped_storage()
        self._add(CASTS, storage._cdata, storage.nbytes())

    def add(self, tensor: torch.Tensor) -> None:
        """A tensor that is not plain was saved."""
        size = _bytes(tensor)
        if size >= self._min_bytes:
            kind = _kind(tensor)
            self._add(kind, id(tensor), size)
            self._warn(kind)

    def kinds(self) -> dict[str, Outside]:
        """What there was, by kind."""
        with self._lock:
            return dict(self._kinds)

    def _add(self, kind: str, which: int, size: int) -> None:
        with self._lock:
            if size >= self._min_bytes and which not in self._seen:
                self._seen.add(which)
                before = self._kinds.get(kind, Outside(0, 0))
                self._kinds[kind] = Outside(before.tensors + 1, before.bytes + size)

    def _warn(self, kind: str) -> None:
        with self._lock:
            if kind in self._warned:
                return
            self._warned.add(kind)
        warnings.warn(
            f"{kind} stay in memory and do not count against the budget of "
            "ferry.ActivationOffload; report().outside says how many there are",
            stacklevel=2,
        )


def is_cast_of_parameter(tensor: torch.Tensor) -> bool:
    """Whether it is a parameter in another dtype, or a view of that."""
    base = tensor if tensor._base is None else tensor._base
    node = base.grad_fn
    if node is None or node.name() != "ToCopyBackward0":
        return False
    maker = node.next_functions[0][0]
    return isinstance(getattr(maker, "variable", None), torch.nn.Parameter)


def _kind(tensor: torch.Tensor) -> str:
    if is_dtensor(tensor):
        return "DTensors"
    if tensor.layout is not torch.strided:
        return f"tensors of layout {str(tensor.layout).removeprefix('torch.')}"
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        return f"tensors of {type(tensor).__name__}"
    return "lazily conjugated or negated tensors"


def _bytes(tensor: torch.Tensor) -> int:
    """Bytes that it holds here."""
    if is_dtensor(tensor):
        return tensor._local_tensor.nbytes  # type: ignore[attr-defined, no-any-return]
    if tensor.layout is torch.sparse_coo:
        return tensor._nnz() * tensor.element_size()
    is_pending = tensor.is_conj() or tensor.is_neg()
    if tensor.layout is not torch.strided or (type(tensor) is torch.Tensor and not is_pending):
        return 0
    return tensor.nbytes
