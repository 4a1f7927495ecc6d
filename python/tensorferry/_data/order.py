"""The order of samples, exactly torch's: pure functions on int64 tensors.

A *global* order is a permutation of all samples. A *share* is what one rank reads of it. At the
beginning of an epoch, shares are those of torch's ``DistributedSampler``: the order is padded by
wrapping around, so that all are of one length, and dealt out. What remains of an epoch when the
number of ranks or the batch size changes is dealt out without padding: each sample comes once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def sequential(length: int) -> torch.Tensor:
    """From first to last."""
    import torch

    return torch.arange(length)


def shuffled(length: int, number: int) -> torch.Tensor:
    """The permutation that follows from a number: that of ``DistributedSampler`` from the sum of
    its seed and epoch, that of ``RandomSampler`` from what it draws."""
    import torch

    generator = torch.Generator()
    generator.manual_seed(number)
    return torch.randperm(length, generator=generator)


def share(order: torch.Tensor, rank: int, world_size: int) -> torch.Tensor:
    """A rank's share of a whole epoch, padded as torch does."""
    import torch

    length = len(order)
    if world_size == 1 or length == 0:
        return order
    padded = -(-length // world_size) * world_size
    return order[torch.arange(rank, padded, world_size) % length]


def remainder(
    order: torch.Tensor, base: int, rank: int, world_size: int, *, even: bool
) -> torch.Tensor:
    """A rank's share of what comes after the first ``base`` samples, each sample once.

    ``even``: all ranks get the same number, and up to ``world_size - 1`` samples are left out, as
    ``drop_last`` allows; otherwise some get one more.
    """
    rest = order[base:]
    if even:
        rest = rest[: len(rest) // world_size * world_size]
    return rest[rank::world_size]


def count(length: int, batch_size: int | None, drop_last: bool) -> int:
    """Batches in so many samples."""
    size = batch_size or 1
    return length // size if drop_last else -(-length // size)


def batches(
    indices: torch.Tensor,
    batch_size: int | None,
    drop_last: bool,
    first: int,
    without: Collection[int],
) -> Iterator[tuple[int, list[int]]]:
    """Batches from number ``first`` on, each with its number, ``without`` some."""
    size = batch_size or 1
    for number in range(first, count(len(indices), batch_size, drop_last)):
        if number not in without:
            yield number, indices[number * size : (number + 1) * size].tolist()
