"""A tensor of a checkpoint: its name, and the memory that its bytes come from."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from tensorferry._kinds import outside_of_transforms, without_modes
from tensorferry._structure.dtypes import OF_TORCH, address_of, raw_view
from tensorferry._structure.pieces import copied, copied_array

Source: TypeAlias = torch.Tensor | npt.NDArray[Any] | bytes


class Stored:
    """A tensor to store.

    ``address`` is where its ``nbytes`` bytes lie, if they lie in the host's memory in order
    already; ``source`` keeps them alive.
    """

    __slots__ = ("address", "dtype", "name", "nbytes", "shape", "source")

    def __init__(
        self,
        name: str,
        dtype: str,
        shape: tuple[int, ...],
        nbytes: int,
        source: Source,
        address: int | None,
    ) -> None:
        self.name = name
        self.dtype = dtype
        self.shape = shape
        self.nbytes = nbytes
        self.source = source
        self.address = address

    def materialize(self) -> tuple[int, object]:
        """Where the bytes lie in the host's memory, and what keeps them there: the source itself,
        or a copy in order."""
        if self.address is not None:
            return self.address, self.source
        if isinstance(self.source, torch.Tensor):
            with without_modes(), outside_of_transforms():
                tensor = _gather(self.source.detach())
            return tensor.data_ptr(), tensor
        # Bytes of Python have an address.
        assert isinstance(self.source, np.ndarray)
        array = copied_array(self.source)
        return address_of(array), array

    def __repr__(self) -> str:
        return f"Stored({self.name!r}, {self.dtype}, {list(self.shape)})"


def _gather(tensor: torch.Tensor) -> torch.Tensor:
    # Torch moves the bytes of every dtype that safetensors knows, but not of all others.
    known = tensor.dtype in OF_TORCH
    return copied(tensor if known else raw_view(tensor))
