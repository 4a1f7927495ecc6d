"""Data for training: batches in torch's order, made by threads.

::

    loader = ferry.DataLoader(dataset, batch_size=64, shuffle=True)
    for epoch in range(90):
        for images, labels in loader:
            ...

``DataLoader`` takes the arguments of torch's and yields the same batches. ``ImageFolder``,
``TarShards`` and ``Files`` are datasets that never enter Python between storage and batch;
``transforms`` are for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tensorferry._data import transforms
from tensorferry._data.bad import BadSample
from tensorferry._data.datasets import Files, ImageFolder, TarShards
from tensorferry._data.loader import DataLoader
from tensorferry._data.stats import Stats
from tensorferry._data.worker import WorkerInfo, get_worker_info

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
