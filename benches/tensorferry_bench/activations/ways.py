"""Ways to train: what a forward pass is put into."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, TypeAlias

import torch
from torch.autograd.graph import saved_tensors_hooks

import tensorferry as ferry
from tensorferry._activations.capture import is_parameter


class Way(Protocol):
    """A context for forward passes, one after the other."""

    def __enter__(self) -> object: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None: ...


class File:
    """A tensor in a file that goes when nobody wants it any more."""

    def __init__(self, path: Path, tensor: torch.Tensor) -> None:
        self.path = path
        # A view would be saved with all that it is a view of.
        whole = tensor.untyped_storage().nbytes() == tensor.nbytes
        torch.save(tensor.detach() if whole else tensor.detach().clone(), path)

    def load(self) -> torch.Tensor:
        """The tensor."""
        tensor: torch.Tensor = torch.load(self.path, weights_only=True)
        return tensor

    def __del__(self) -> None:
        with contextlib.suppress(OSError):
            os.remove(self.path)


class ByHand:
    """What a user would write."""

    def __init__(self, directory: Path, min_bytes: int) -> None:
        self.written_bytes = 0
        self._directory, self._min_bytes, self._files = directory, min_bytes, 0
        self._hooks: list[saved_tensors_hooks] = []

    def __enter__(self) -> None:
        self._hooks.append(saved_tensors_hooks(self._pack, self._unpack))
        self._hooks[-1].__enter__()

    def __exit__(self, *error: Any) -> None:
        self._hooks.pop().__exit__(*error)

    def _pack(self, tensor: torch.Tensor) -> torch.Tensor | File:
        if tensor.nbytes < self._min_bytes or is_parameter(tensor):
            return tensor
        self._files += 1
        file = File(self._directory / f"{self._files}.pt", tensor)
        self.written_bytes += file.path.stat().st_size
        return file

    @staticmethod
    def _unpack(packed: torch.Tensor | File) -> torch.Tensor:
        return packed.load() if isinstance(packed, File) else packed


class Sizes:
    """Counts what is saved: each storage once, no parameters, nothing small."""

    def __init__(self, min_bytes: int) -> None:
        self.bytes = 0
        self.largest = 0
        self._min_bytes = min_bytes
        self._seen: set[int] = set()

    def hooks(self) -> saved_tensors_hooks:
        """The context."""
        return saved_tensors_hooks(self._pack, lambda tensor: tensor)

    def _pack(self, tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        new = storage.data_ptr() not in self._seen
        if new and storage.nbytes() >= self._min_bytes and not is_parameter(tensor):
            # It stays where it is as long as the graph does.
            self._seen.add(storage.data_ptr())
            self.bytes += storage.nbytes()
            self.largest = max(self.largest, storage.nbytes())
        return tensor


Request: TypeAlias = dict[str, Any]


def ours(request: Request) -> ferry.ActivationOffload:
    """tensorferry."""
    return ferry.ActivationOffload(
        request["directory"],
        int(request["budget"]),
        compress=request.get("compress", "lossless"),
        min_bytes=int(request["min_bytes"]),
    )


class Recycled(contextlib.nullcontext[None]):
    """Plain training, whose tensors get the memory of freed ones: of all that fits beside a budget.

    An offload that is never entered keeps it. Half of its budget is kept, so that one of twice the
    activations keeps them all.
    """

    def __init__(self, request: Request) -> None:
        super().__init__()
        self._beside = ours(request | {"budget": 2 * int(request["saved"])})


WAYS: dict[str, Callable[[Request], Way]] = {
    "plain": lambda _: contextlib.nullcontext(),
    "recycled": Recycled,
    "ours": ours,
    "least": lambda request: ours(request | {"budget": request["least"]}),
    "by hand": lambda request: ByHand(Path(request["directory"]), int(request["min_bytes"])),
}
"""By the name by which a child is asked for one."""
