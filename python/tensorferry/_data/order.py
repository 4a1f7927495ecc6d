"""The order of samples, exactly torch's: pure functions on int64 tensors.

A *global* order is a permutation of all samples. A *share* is what one rank reads of it. At the
beginning of an epoch, shares are those of torch's ``DistributedSampler``: the order is padded by
wrapping around, so that all are of one length, and dealt out. What remains of an epoch when the
number of ranks or the batch size changes is dealt out with no more padding than makes all ranks get
as many batches: each sample comes once, or, where that can't be, some come twice.
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
    order: torch.Tensor,
    base: int,
    rank: int,
    world_size: int,
    batch_size: int | None,
    *,
    drop_last: bool,
) -> torch.Tensor:
    """A rank's share of what comes after the first ``base`` samples, each sample once, so that all
    ranks get as many batches: one with fewer would have the others wait for it.

    With ``drop_last``, up to ``world_size - 1`` samples are left out. Otherwise some ranks get one
    sample more; where that makes a batch of its own, the others get one again, as in padding.
    """
    import torch

    rest = order[base:]
    if drop_last:
        rest = rest[: len(rest) // world_size * world_size]
    share = rest[rank::world_size]
    longest = rest[::world_size]
    if count(len(share), batch_size, drop_last) < count(len(longest), batch_size, drop_last):
        again = base + rank + len(share) * world_size
        share = torch.cat((share, order[again % len(order)].reshape(1)))
    return share


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
