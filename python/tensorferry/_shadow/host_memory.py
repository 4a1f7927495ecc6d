"""Host memory in which parameters and gradients live; torch and the core both see it."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

import torch

from tensorferry import _lib
from tensorferry._errors import InvalidInput
from tensorferry._kinds import is_plain

ALIGNMENT = 64
"""Of each tensor: what vector instructions like."""
SAMPLES = 8
"""Words of a parameter that tell whether somebody changed it behind its counter."""
WORD = 4

Slice = tuple[_lib.Home, int, int]


class Slot:
    """A parameter, and where it lives."""

    def __init__(self, name: str, parameter: torch.Tensor, memory: _lib.Home, offset: int) -> None:
        self.name = name
        self.parameter = parameter
        self.nbytes = parameter.nbytes
        self.slice: Slice = (memory, offset, parameter.nbytes)
        self.host = view_of(memory, offset, parameter)
        self.now = self.host
        """What the parameter points to."""
        self.is_rewritten = False
        """Forward has written to it: copies on the device may be older than this."""
        self.is_written = False
        """Every forward may write to it."""
        self.gradient_buffer: torch.Tensor | None = None
        """Where its gradient arrives."""
        self.gradient_slice: Slice = (memory, 0, 0)
        self._buffer_uses = 0
        """By us."""
        self.handed_out: torch.Tensor | None = None
        """The gradient that was handed out last, which lies in the buffer."""
        self.spare: torch.Tensor | None = None
        """Memory for a gradient that adds up."""
        self._spare_uses = 0

    def move_to_host(self) -> None:
        """Copies the parameter to its host memory and points it there."""
        self.host.copy_(self.parameter.detach())
        self.parameter.data = self.host
        self.now = self.host

    def point(self, tensor: torch.Tensor) -> None:
        """From now on the parameter is there."""
        self.parameter.data = tensor
        self.now = tensor

    def is_in_place(self) -> bool:
        """Whether the parameter is where it was put."""
        return self.parameter.data_ptr() == self.host.data_ptr()

    def is_elsewhere(self) -> bool:
        """Whether somebody has put other memory in the place of that which it was pointed to."""
        given, now = self.parameter, self.now
        is_here = given.data_ptr() == now.data_ptr() and given.shape == now.shape
        return not (is_here and given.stride() == now.stride())

    def adopt(self) -> None:
        """Takes over what somebody has put in the parameter's place."""
        given = self.parameter
        same = given.shape == self.host.shape and given.dtype == self.host.dtype
        if not (same and is_plain(given)):
            raise InvalidInput(
                f"{self.name} has become {given.dtype}{list(given.shape)} on {given.device} since "
                "the model was wrapped; close() the ShadowModel before such a change, and wrap anew"
            )
        self.move_to_host()

    def put_gradient_at(self, memory: _lib.Home, offset: int) -> None:
        """From now on its gradient arrives there."""
        self.gradient_buffer = view_of(memory, offset, self.parameter)
        self.gradient_slice = (memory, offset, self.nbytes)
        self._buffer_uses = uses(self.gradient_buffer)
        self.handed_out = None

    def free_gradient_buffer(self) -> bool:
        """Whether the next gradient may arrive there: not while somebody has views of another."""
        assert self.gradient_buffer is not None
        given, self.handed_out = self.handed_out, None
        gradient = self.parameter.grad
        if given is not None and given is not gradient:
            # One is this name, one the argument.
            is_kept = sys.getrefcount(given) > 2
            if is_kept and self._is_in_buffer(given):
                given.data = given.clone()
        del given
        own = gradient is not None and self._is_in_buffer(gradient)
        return uses(self.gradient_buffer) == self._buffer_uses + own

    def set_aside(self, gradient: torch.Tensor) -> None:
        """Takes a gradient that is to be added to out of the gradient_buffer."""
        if not self._is_in_buffer(gradient):
            return
        spare = self.spare
        if (
            spare is None
            or spare.stride() != gradient.stride()
            or uses(spare) != self._spare_uses  # Somebody keeps an earlier gradient.
        ):
            self.spare = spare = torch.empty_like(gradient)
            self._spare_uses = uses(spare)
        gradient.data = spare.copy_(gradient)

    def _is_in_buffer(self, gradient: torch.Tensor) -> bool:
        gradient_buffer = self.gradient_buffer
        return gradient_buffer is not None and gradient.data_ptr() == gradient_buffer.data_ptr()


class HostMemory:
    """All slots of a model, in the order of its parameters."""

    def __init__(self, engine: _lib.Shadow, named: Sequence[tuple[str, torch.Tensor]]) -> None:
        self._engine = engine
        offsets, total = laid_out(parameter.nbytes for _, parameter in named)
        memory = engine.home(max(total, ALIGNMENT))
        self.slots = [
            Slot(name, parameter, memory, offset)
            for (name, parameter), offset in zip(named, offsets, strict=True)
        ]
        self.of = {slot.parameter: slot for slot in self.slots}
        for slot in self.slots:
            slot.move_to_host()
        self._words = torch.frombuffer(memory, dtype=torch.int32)
        self._samples = _samples(zip(offsets, self.slots, strict=True))

    def versions(self) -> int:
        """Changes to parameters, as torch counts them."""
        return sum(slot.parameter._version for slot in self.slots)

    def sampled(self) -> torch.Tensor:
        """Some elements of each: a parameter that is another shows in any of them."""
        return self._words[self._samples]

    def make_gradient_buffers(self) -> None:
        """A place for the gradient of each parameter that has one."""
        wanting = [slot for slot in self.slots if slot.parameter.requires_grad]
        if all(slot.gradient_buffer is not None for slot in wanting):
            return
        offsets, total = laid_out(slot.nbytes for slot in wanting)
        memory = self._engine.home(max(total, ALIGNMENT))
        for slot, offset in zip(wanting, offsets, strict=True):
            slot.put_gradient_at(memory, offset)

    def take_back(self) -> bool:
        """Points every parameter to its host memory; whether something else was in its place."""
        away = [slot for slot in self.slots if not slot.is_in_place()]
        for slot in away:
            slot.adopt()
        return bool(away)

    def release(self) -> None:
        """Forgets where gradients arrive: what lies there is whose it is."""
        for slot in self.slots:
            slot.gradient_buffer = slot.handed_out = slot.spare = None

    def give_back(self) -> None:
        """Parameters and gradients as plain tensors."""
        for slot in self.slots:
            # What somebody has put in the parameter's place since the last forward stays.
            if slot.parameter.data_ptr() == slot.now.data_ptr():
                slot.parameter.data = slot.now.clone()
            gradient = slot.parameter.grad
            if gradient is not None:
                gradient.data = gradient.clone()


def view_of(memory: _lib.Home, offset: int, like: torch.Tensor) -> torch.Tensor:
    """A tensor there, with its elements in the same order."""
    with torch.inference_mode(False):
        flat = torch.frombuffer(memory, dtype=like.dtype, count=like.numel(), offset=offset)
        return flat.as_strided(like.shape, like.stride())


def _samples(placed: Iterable[tuple[int, Slot]]) -> torch.Tensor:
    """Words of the memory, some of each parameter."""
    found: list[int] = []
    for offset, slot in placed:
        first, count = offset // WORD, max(slot.nbytes // WORD, 1)
        found += range(first, first + count, max(count // SAMPLES, 1))
    return torch.tensor(found, dtype=torch.int64)


def uses(tensor: torch.Tensor) -> int:
    """How many use a tensor's memory: itself, its views, arrays on them."""
    return int(torch._C._storage_Use_Count(tensor.untyped_storage()._cdata))


def laid_out(sizes: Iterable[int]) -> tuple[list[int], int]:
    """Where tensors of these sizes begin, one after the other, and where the last ends."""
    offsets, end = [], 0
    for size in sizes:
        offsets.append(end)
        end += -(-size // ALIGNMENT) * ALIGNMENT
    return offsets, end
