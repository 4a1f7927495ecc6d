"""Gradients and parameters as they were when backward ended: whether somebody changes them before
``step()``.

torch counts the changes of a tensor. What goes past its counter (``.data``, the unscaling of a
``GradScaler``) shows in the bits: in their sum where all are looked at, in some elements where that
would take too long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch

from tensorferry._shadow.host_memory import Slot

Digest = Callable[[torch.Tensor], torch.Tensor]
SAMPLES = 32
"""Elements of a gradient that tell whether somebody changed it behind its counter."""


@dataclass(slots=True)
class Snapshot:
    """One of them."""

    tensor: torch.Tensor
    address: int
    version: int
    digest: Digest | None
    """None while the bits change: an update is under way."""
    bits: torch.Tensor | None

    @classmethod
    def of(cls, tensor: torch.Tensor, digest: Digest | None) -> Snapshot:
        """As it is now."""
        bits = None if digest is None else digest(tensor)
        return cls(tensor, tensor.data_ptr(), tensor._version, digest, bits)

    def is_untouched(self, now: torch.Tensor | None) -> bool:
        """Whether it is still the same."""
        if now is not self.tensor or now._version != self.version:
            return False
        if now.data_ptr() != self.address:
            return False
        return self.digest is None or self.bits is None or torch.equal(self.bits, self.digest(now))


class Snapshots:
    """Those of the last backward."""

    def __init__(self) -> None:
        self._gradients: dict[Slot, Snapshot] = {}
        self._parameters: dict[Slot, Snapshot] = {}

    def take(self, slots: Iterable[Slot]) -> None:
        """Of all bits: nothing is under way."""
        for slot in slots:
            self._add(slot, total)
            self._parameters[slot] = Snapshot.of(slot.parameter, total)

    def take_updated(self, slots: Iterable[Slot]) -> None:
        """Of parameters whose update is under way."""
        for slot in slots:
            self._add(slot, sampled)
            self._parameters[slot] = Snapshot.of(slot.parameter, None)

    def changes(self) -> list[str]:
        """What is not as it was."""
        found = []
        gradients, parameters = self._gradients.items(), self._parameters.items()
        if any(not each.is_untouched(slot.parameter.grad) for slot, each in gradients):
            found.append("gradients are changed between backward and step()")
        if any(not each.is_untouched(slot.parameter) for slot, each in parameters):
            found.append("parameters are changed between backward and step()")
        return found

    def clear(self) -> None:
        """Forgets them."""
        self._gradients.clear()
        self._parameters.clear()

    def _add(self, slot: Slot, digest: Digest) -> None:
        gradient = slot.parameter.grad
        if gradient is not None and gradient.layout == torch.strided:
            self._gradients[slot] = Snapshot.of(gradient, digest)


def total(tensor: torch.Tensor) -> torch.Tensor:
    """One number that hardly stays the same when anything changes."""
    return _bits(tensor).sum(dtype=torch.int64)


def sampled(tensor: torch.Tensor) -> torch.Tensor:
    """Some elements: a scaled gradient shows in any of them."""
    flat = tensor.detach().as_strided((tensor.numel(),), (1,))
    return _bits(flat[:: max(tensor.numel() // SAMPLES, 1)]).clone()


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    whole = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return tensor.detach().view(whole[tensor.itemsize])
