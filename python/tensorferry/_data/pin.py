"""Page-locked memory, for copies to an accelerator that do not wait."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

_warned = False


def pinner(asked: bool, device: str) -> Callable[[Any], Any] | None:
    """What pins a batch, as torch's loader does; None where nothing is to be pinned."""
    if not asked:
        return None
    import torch

    if device:
        what = f"pin_memory_device={device!r} is ignored; the current accelerator is used"
        warnings.warn(what, DeprecationWarning, stacklevel=4)
    if not torch.accelerator.is_available():
        _warn_once()
        return None
    return _Pinner(torch.accelerator.current_device_index())


class _Pinner:
    """Pins for one device, from whichever thread."""

    def __init__(self, device: int) -> None:
        self._device = device

    def __call__(self, data: Any) -> Any:
        import torch
        from torch.utils.data._utils.pin_memory import pin_memory

        if torch.accelerator.current_device_index() != self._device:
            torch.accelerator.set_device_index(self._device)
        return pin_memory(data)  # type: ignore[no-untyped-call]


def _warn_once() -> None:
    global _warned
    if not _warned:
        _warned = True
        what = "pin_memory=True, but there is no accelerator; memory won't be pinned"
        warnings.warn(what, UserWarning, stacklevel=5)
