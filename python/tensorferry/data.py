"""Data for training: batches in torch's order, made by threads.

::

    loader = ferry.DataLoader(dataset, batch_size=64, shuffle=True)
    for epoch in range(90):
        for images, labels in loader:
            ...

``DataLoader`` takes the arguments of torch's and yields the same batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tensorferry._data.bad import BadSample
from tensorferry._data.loader import DataLoader
from tensorferry._data.stats import Stats
from tensorferry._data.worker import WorkerInfo, get_worker_info

__all__ = ["BadSample", "DataLoader", "Stats", "WorkerInfo", "default_collate", "get_worker_info"]


def default_collate(batch: Sequence[Any]) -> Any:
    """Samples to a batch, as torch does it."""
    from torch.utils.data import default_collate

    return default_collate(list(batch))
