"""``map_location``, with torch's meaning."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import torch

from tensorferry._errors import InvalidInput, Unsupported
from tensorferry._kinds import fakes

MapLocation: TypeAlias = (
    str
    | torch.device
    | Mapping[str, str]
    | Callable[[torch.UntypedStorage, str], torch.UntypedStorage | None]
    | None
)
Place: TypeAlias = Callable[[torch.Tensor, str], torch.Tensor]


def placer(map_location: MapLocation) -> Place:
    """How a tensor gets from host memory to where it belongs, given where it was saved from."""
    if map_location is None:
        return _to
    if isinstance(map_location, str | torch.device):
        device = str(_device(map_location))
        return lambda tensor, _: _to(tensor, device)
    if isinstance(map_location, Mapping):
        table = {str(saved): str(wanted) for saved, wanted in map_location.items()}
        return lambda tensor, saved: _to(tensor, table.get(saved, saved))
    if callable(map_location):
        return lambda tensor, saved: _by_call(tensor, saved, map_location)
    kind = type(map_location).__name__
    raise InvalidInput(f"map_location is a device, a dict of devices or a function, not {kind}")


def without_data(map_location: MapLocation) -> str | None:
    """The device on which tensors are to be made without a byte of data, if no byte is wanted: on
    the meta device, or anywhere in ``FakeTensorMode``, as ``torch.load`` does."""
    if isinstance(map_location, str | torch.device) and _device(map_location).type == "meta":
        return "meta"
    return "cpu" if fakes() else None


def _device(name: str | torch.device) -> torch.device:
    try:
        return torch.device(name)
    except RuntimeError as error:
        raise InvalidInput(f"torch knows no device {name!r}: {error}") from error


def _to(tensor: torch.Tensor, device: str) -> torch.Tensor:
    if device == "cpu":
        return tensor
    try:
        return tensor.to(device)
    except (RuntimeError, AssertionError) as error:
        hint = 'pass map_location="cpu" to load into host memory'
        raise Unsupported(f"can't put a tensor on {device} here; {hint}: {error}") from error


def _by_call(tensor: torch.Tensor, saved: str, function: Callable[..., Any]) -> torch.Tensor:
    storage = function(tensor.untyped_storage(), saved)
    if storage is None:
        return _to(tensor, saved)
    if isinstance(storage, torch.TypedStorage):
        storage = storage._untyped_storage
    own = tensor.untyped_storage()
    if (storage.data_ptr(), storage.device) == (own.data_ptr(), own.device):
        return tensor
    empty = torch.empty(0, dtype=tensor.dtype, device=storage.device)
    offset = tensor.storage_offset()
    return empty.set_(storage, offset, tensor.shape, tensor.stride())
