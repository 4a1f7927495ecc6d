"""A safetensors file that is open: its tensors into memory of their own, or mapped."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from tensorferry import _lib
from tensorferry._checkpoint.location import MapLocation, placer, without_data
from tensorferry._errors import InvalidInput, NotFound, Unsupported
from tensorferry._kinds import is_plain, without_modes
from tensorferry._structure import build, names, parse, select
from tensorferry._structure.dtypes import BY_NAME

SMALL_BYTES = 256 << 10
"""Smaller tensors lie in torch's own memory; larger ones each in pages of their own."""


class Opened:
    """A file, judged; ``verify`` says whether its checksums are verified."""

    def __init__(
        self, path: str | os.PathLike[str], *, tool: str | None = None, verify: bool = True
    ) -> None:
        self.path = os.fspath(path)
        self.core = _lib.Checkpoint(self.path, tool=tool, verify=verify)
        self.tensors = self.core.tensors()
        self.numbers = {tensor[0]: number for number, tensor in enumerate(self.tensors)}
        self.metadata = self.core.metadata()
        self.mapping: dict[str, torch.Tensor] | None = None

    def node(self) -> Any:
        """The object that the file holds: what was saved, or its tensors by name."""
        text = self.metadata.get("tensorferry")
        if text is not None:
            return parse(text).object
        return {"dict": {tensor[0]: {"tensor": tensor[0]} for tensor in self.tensors}}

    def object(
        self, *, keys: Sequence[str] | None, mmap: bool, map_location: MapLocation = None
    ) -> Any:
        """Loads the object, or the parts at these paths."""
        node = self.node()
        if keys is not None:
            node = {"dict": select(node, as_keys(keys))}
        needed = names(node)
        device = without_data(map_location)
        if device is not None:
            fetched = self._without_data(node, device)
        else:
            fetched = self.mapped(needed) if mmap else self.owned(needed)
        return build(node, fetched.pop, placer(map_location))

    def owned(self, wanted: Iterable[str]) -> dict[str, torch.Tensor]:
        """Tensors in memory of their own, verified."""
        made: dict[str, torch.Tensor | None] = {}
        requests: list[tuple[int, int | None]] = []
        with without_modes():
            # What is made inside of a torch.func transform may have no address.
            small_bytes = SMALL_BYTES if is_plain(torch.empty(1, device="cpu")) else 0
            for name in wanted:
                small = self.tensors[self._number(name)][3] < small_bytes
                made[name] = tensor = self._empty(name, "cpu") if small else None
                requests.append((self.numbers[name], None if tensor is None else tensor.data_ptr()))
        buffers = self.core.load(requests)
        return {
            name: self._over(name, buffer) if tensor is None else tensor
            for (name, tensor), buffer in zip(made.items(), buffers, strict=True)
        }

    def mapped(self, wanted: Iterable[str]) -> dict[str, torch.Tensor]:
        """Tensors as parts of a private mapping of the file."""
        buffers = self.core.map()
        return {name: self._over(name, buffers[self._number(name)]) for name in wanted}

    def _without_data(self, node: Any, device: str) -> dict[str, torch.Tensor]:
        """Tensors without data; arrays and long bytes have no such thing and are loaded."""
        bare = set(names(node, tags=("tensor",)))
        others = self.owned(name for name in names(node) if name not in bare)
        return others | {name: self._empty(name, device) for name in bare}

    def names(self) -> list[str]:
        """Those of all tensors, in the order of the file."""
        return list(self.numbers)

    def tensor(self, name: str) -> torch.Tensor:
        """One tensor, verified."""
        return self.owned([name])[name]

    def parts(self, name: str) -> tuple[list[torch.Tensor], int]:
        """A tensor in a mapping of the file, which is made once: all of it is one part."""
        self._number(name)
        if self.mapping is None:
            self.mapping = self.mapped(self.numbers)
        return [self.mapping[name]], 0

    def forget(self) -> None:
        """Gives the mapping back."""
        self.mapping = None

    def stored_dtype(self, name: str) -> str:
        """By the name that the file has for it."""
        return self.tensors[self._number(name)][1]

    def dtype(self, name: str) -> torch.dtype:
        """A tensor's dtype in the file."""
        stored = self.stored_dtype(name)
        dtype = BY_NAME.get(stored)
        if dtype is None:
            raise Unsupported(f"this torch ({torch.__version__}) has no dtype {stored}")
        return dtype

    def shape(self, name: str) -> list[int]:
        """A tensor's shape in the file."""
        return self.tensors[self._number(name)][2]

    def _number(self, name: str) -> int:
        number = self.numbers.get(name)
        if number is None:
            text = self.metadata.get("tensorferry")
            hint = ""
            if text is not None and "rank" in parse(text).beside:
                hint = "; it is one rank's part of a checkpoint, load the index beside it"
            raise NotFound(f"the file has no tensor {name!r}{hint} (file: {self.path})")
        return number

    def _empty(self, name: str, device: str) -> torch.Tensor:
        return torch.empty(self.shape(name), dtype=self.dtype(name), device=device)

    def _over(self, name: str, buffer: _lib.Buffer | None) -> torch.Tensor:
        if not buffer:
            return self._empty(name, "cpu")
        return torch.frombuffer(buffer, dtype=self.dtype(name)).view(self.shape(name))


def as_keys(keys: Sequence[str]) -> list[str]:
    """The paths of parts, judged."""
    keys = [keys] if isinstance(keys, str) else list(keys)
    for key in keys:
        if not isinstance(key, str):
            raise InvalidInput(f"keys are dotted paths such as 'model.weight', not {key!r}")
    return keys
