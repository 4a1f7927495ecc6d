"""Types of elements, by their names in safetensors, torch and NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

_NAMES = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "int64": "I64",
    "int32": "I32",
    "int16": "I16",
    "int8": "I8",
    "uint64": "U64",
    "uint32": "U32",
    "uint16": "U16",
    "uint8": "U8",
    "bool": "BOOL",
    "complex64": "C64",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e4m3fnuz": "F8_E4M3FNUZ",
    "float8_e5m2": "F8_E5M2",
    "float8_e5m2fnuz": "F8_E5M2FNUZ",
    "float8_e8m0fnu": "F8_E8M0",
}

BY_TORCH_NAME: dict[str, torch.dtype] = {
    str(value).removeprefix("torch."): value
    for value in vars(torch).values()
    if isinstance(value, torch.dtype)
}
"""Every dtype of this torch; older ones lack some."""

OF_TORCH: dict[torch.dtype, str] = {
    BY_TORCH_NAME[name]: stored for name, stored in _NAMES.items() if name in BY_TORCH_NAME
}
"""The name under which safetensors stores a dtype of torch. The others are stored as bytes."""

BY_NAME: dict[str, torch.dtype] = {stored: dtype for dtype, stored in OF_TORCH.items()}
"""And back."""

OF_NUMPY: dict[str, str] = {
    np.dtype(name).str: stored
    for name, stored in _NAMES.items()
    if not name.startswith(("bfloat", "float8"))
}
"""The same for NumPy's in the order of bytes of this machine, by ``dtype.str``."""

KNOWN_TO_NUMPY: frozenset[torch.dtype] = frozenset(
    BY_TORCH_NAME[name] for name in (*_NAMES, "complex128") if hasattr(np, name)
)
"""Dtypes of torch that NumPy has too."""


def torch_name(dtype: torch.dtype) -> str:
    """``float32``."""
    return str(dtype).removeprefix("torch.")


def is_plain(dtype: np.dtype[Any]) -> bool:
    """Whether elements are bytes that ``dtype.str`` describes: no objects, pointers or records."""
    return dtype.kind in "biufcmMSUV" and np.dtype(dtype.str) == dtype


def raw_view(tensor: torch.Tensor) -> torch.Tensor:
    """The bytes of any strided tensor, without a copy, elements in the last dimension.

    By way of the storage: ``view`` refuses some dtypes.
    """
    size = tensor.element_size()
    empty = torch.empty(0, dtype=torch.uint8, device=tensor.device)
    strides = [size * stride for stride in tensor.stride()]
    return empty.set_(
        tensor.untyped_storage(),
        tensor.storage_offset() * size,
        (*tensor.shape, size),
        (*strides, 1),
    )


def span(shape: Sequence[int], stride: Sequence[int]) -> int:
    """Elements from a tensor's first to behind its last, with those between that are not its."""
    if 0 in shape:
        return 0
    return 1 + sum((size - 1) * step for size, step in zip(shape, stride, strict=True))


def address_of(array: npt.NDArray[Any]) -> int:
    """Where an array's bytes lie."""
    address: int = array.__array_interface__["data"][0]
    return address
