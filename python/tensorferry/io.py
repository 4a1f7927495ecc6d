"""The I/O engine: bytes between files and memory, at the speed of the disk, without the GIL.

Most users want the paths above it (checkpoints, data, offload). It is here for those who move
their own bytes::

    with ferry.Engine() as engine:
        file = engine.open("weights.bin", "w")
        file.write(tensor).wait()          # a tensor, an array, bytes: anything with a buffer
        file.sync().wait()
        again = torch.empty_like(tensor)
        file.read(into=again).wait()

Operations run side by side and in no order. Each keeps its memory alive until it is done, also when
its ``Pending`` is dropped; change the memory before that, and a mixture reaches the disk.
"""

from __future__ import annotations

import atexit
import os
import sys
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias

from tensorferry import _lib
from tensorferry._errors import InvalidInput
from tensorferry._lib import Buffer, Pending
from tensorferry._numbers import whole

if TYPE_CHECKING:
    import numpy.typing as npt
    import torch
    from typing_extensions import Buffer as BufferLike

    Bytes: TypeAlias = BufferLike | npt.NDArray[Any] | torch.Tensor

__all__ = ["Buffer", "Engine", "File", "Pending"]

Backend: TypeAlias = Literal["auto", "ring", "threads", "memory"]
Mode: TypeAlias = Literal["r", "r+", "a", "w", "x"]
Priority: TypeAlias = Literal["waiting", "prefetch", "offload", "background"]

# Before the interpreter goes: accepted operations are finished, and buffers given back to Python.
atexit.register(_lib._leave)


class Engine:
    """Moves bytes between files and memory.

    ``backend``: ``"ring"`` (io_uring), ``"threads"``, ``"memory"`` (for tests) or ``"auto"``, the
    fastest that this kernel allows; ``tensorferry doctor`` says which and why. ``in_flight``
    bounds the bytes under way, ``piece`` those of one request to the kernel; both are sizes.
    """

    def __init__(
        self,
        backend: Backend = "auto",
        *,
        in_flight: str | int | None = None,
        piece: str | int | None = None,
    ) -> None:
        self._engine = _lib.Engine(backend, in_flight=in_flight, piece=piece)

    def open(self, path: str | os.PathLike[str], mode: Mode = "r", *, direct: bool = True) -> File:
        """Opens a file: ``"r"`` to read, ``"r+"`` to read and write, ``"a"`` makes it if it is
        missing, ``"w"`` empties it, ``"x"`` insists on making it.

        ``direct`` goes around the page cache where the file system allows it.
        """
        return File(self._engine.open(path, mode, direct=direct))

    def facts(self) -> dict[str, Any]:
        """What this engine is: backend, why, depth and limits."""
        return self._engine.facts()

    def close(self) -> None:
        """Lets the engine go: no file can be opened any more. Open files keep working; it stops
        with the last of them, when all that it has accepted is done."""
        self._engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Engine({self.facts()['backend']!r})"


class File:
    """An open file of an engine; it closes with its last reference."""

    def __init__(self, file: _lib.File) -> None:
        self._file = file

    @property
    def path(self) -> str:
        """The path it was opened by."""
        return os.fspath(self._file.path)

    @property
    def direct(self) -> bool:
        """Whether transfers go around the page cache."""
        return self._file.direct

    def __len__(self) -> int:
        return len(self._file)

    def write(self, data: Bytes, offset: int = 0, *, priority: Priority = "offload") -> Pending:
        """Starts writing all bytes of ``data`` at ``offset``."""
        offset = whole("offset", offset)
        return self._file.write(_bytes_of(data), offset, priority=priority)

    def read(
        self,
        length: int | None = None,
        offset: int = 0,
        *,
        into: Bytes | None = None,
        priority: Priority = "waiting",
    ) -> Pending:
        """Starts reading: ``length`` bytes (all from ``offset`` on if None) into new memory, or as
        many as fit ``into`` the memory given. Waiting gives the memory."""
        offset = whole("offset", offset)
        if into is not None:
            if length is not None:
                raise InvalidInput("read takes a length or memory to read into, not both")
            return self._file.read_into(_bytes_of(into), offset, priority=priority)
        if length is None:
            length = max(0, len(self._file) - offset)
        return self._file.read(whole("length", length), offset, priority=priority)

    def sync(self, *, priority: Priority = "waiting") -> Pending:
        """Starts making everything whose writing was waited for survive a power cut."""
        return self._file.sync(priority=priority)

    def reserve(self, length: int) -> None:
        """Makes the file at least ``length`` long, with room on the disk: a full disk shows now,
        and writes inside the length run side by side."""
        self._file.reserve(whole("length", length))

    def set_len(self, length: int) -> None:
        """Cuts the file, or extends it with zeros."""
        self._file.set_len(whole("length", length))

    def __repr__(self) -> str:
        return f"File({self.path!r})"


def _bytes_of(data: Bytes) -> BufferLike:
    """The bytes of a tensor or of anything with a buffer, without a copy."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(data, torch.Tensor):
        data = _bytes_of_tensor(data)
    try:
        view = memoryview(data)  # type: ignore[arg-type]
    except TypeError as error:
        kind = type(data).__name__
        raise TypeError(f"bytes come from a tensor, an array or a buffer, not {kind}") from error
    if not view.c_contiguous:
        raise InvalidInput("the memory is not contiguous; make a contiguous copy of it first")
    # A view with a zero in its shape can't be cast.
    return view.cast("B") if view.nbytes else bytearray()


def _bytes_of_tensor(tensor: torch.Tensor) -> Any:
    import torch

    from tensorferry._kinds import obstacle, without_modes

    why = obstacle(tensor)
    if why is not None:
        raise InvalidInput(f"can't take the bytes of {why}")
    if not tensor.is_cpu:
        raise InvalidInput(f"the tensor is on {tensor.device}; copy it with .cpu() first")
    if not tensor.is_contiguous():
        raise InvalidInput("the tensor is not contiguous; pass tensor.contiguous()")
    with without_modes():
        return tensor.detach().reshape(-1).view(torch.uint8).numpy()
