"""Data for training: batches in torch's order, planned ahead.

::

    loader = ferry.DataLoader(dataset, batch_size=64, shuffle=True)
    for epoch in range(90):
        for images, labels in loader:
            ...

``DataLoader`` is torch's ``DataLoader``: its arguments, its attributes, the same batches.
``ImageFolder``, ``TarShards`` and ``Files`` are datasets that never enter Python between storage
and batch; ``transforms`` are for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tensorferry._data import transforms
from tensorferry._data.bad import BadSample
from tensorferry._data.datasets import Files, ImageFolder, TarShards
from tensorferry._data.stats import Stats
from tensorferry._data.worker import WorkerInfo, get_worker_info

if TYPE_CHECKING:
    from tensorferry._data.loader import DataLoader

__all__ = [
    "BadSample",
    "DataLoader",
    "Files",
    "ImageFolder",
    "Stats",
    "TarShards",
    "WorkerInfo",
    "default_collate",
    "get_worker_info",
    "transforms",
]


def default_collate(batch: Sequence[Any]) -> Any:
    """Samples to a batch, as torch does it."""
    from torch.utils.data import default_collate

    return default_collate(list(batch))


def __getattr__(name: str) -> Any:
    """``DataLoader``, which is torch's and so needs torch."""
    if name == "DataLoader":
        from tensorferry._data.loader import DataLoader

        return DataLoader
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
