"""Which worker the present thread is.

torch's ``get_worker_info`` is one variable of a process and stays None in threads. This one answers
for each thread, and in a worker process of torch's own loader as torch's does: a dataset that asks
it works with both.
"""

from __future__ import annotations

import sys
import threading
from dataclasses import dataclass
from typing import Any, Protocol


class AnyWorkerInfo(Protocol):
    """What torch's information and ours have in common."""

    @property
    def id(self) -> int: ...
    @property
    def num_workers(self) -> int: ...
    @property
    def seed(self) -> int: ...
    @property
    def dataset(self) -> Any: ...


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """A worker thread of a loader, by the names that torch has for a worker process."""

    id: int
    num_workers: int
    seed: int
    """The epoch's base seed and the worker's number, added up. Nothing was seeded with it: the
    global generators are shared by all threads."""
    dataset: Any
    """The dataset itself, not a copy."""


class _Here(threading.local):
    info: WorkerInfo | None = None


_here = _Here()


def get_worker_info() -> AnyWorkerInfo | None:
    """The worker that this thread or process is; None outside."""
    if _here.info is not None:
        return _here.info
    torch_data = sys.modules.get("torch.utils.data")
    return None if torch_data is None else torch_data.get_worker_info()


def set_worker_info(info: WorkerInfo | None) -> None:
    """Says which worker this thread is from now on."""
    _here.info = info
