"""What the tests of the loader share."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

from torch.utils.data import Dataset


class Numbers(Dataset[int]):
    """Sample i is the number i."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> int:
        return index


def seen(loader: Iterable[Any]) -> list[Any]:
    """The batches as lists."""
    return [batch.tolist() for batch in loader]


def flat(loader: Iterable[Any]) -> list[int]:
    """The samples one after the other."""
    return list(itertools.chain.from_iterable(seen(loader)))


def told(error: BaseException) -> str:
    """All that an error says: one from a worker process has in its text what another has in its
    notes."""
    return "\n".join([str(error), *getattr(error, "__notes__", [])])
