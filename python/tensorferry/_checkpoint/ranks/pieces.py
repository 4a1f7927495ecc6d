"""Tensors from files: whole ones, and those that are cut otherwise than they were saved.

Of a cut tensor only the files are read that hold something of it. Parts that lie in one row in
memory are read straight into their place. Others are read first and then copied, in batches, or
all are taken from a mapping where nothing is to be verified.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from tensorferry._checkpoint.opened import Opened
from tensorferry._checkpoint.ranks.index import Sharded
from tensorferry._checkpoint.ranks.split import chunk

BATCH_BYTES = 256 << 20
"""Bytes that are read to be copied, at a time; one tensor may have more."""


class Cut:
    """What one rank of ``parts`` gets of a tensor that others saved."""

    def __init__(self, name: str, tensor: Sharded, saved: int, part: int, parts: int) -> None:
        self.name = name
        self.tensor = tensor
        size = tensor.shape[tensor.dim]
        self.start, self.end = chunk(size, part, parts)
        self.shape = list(tensor.shape)
        self.shape[tensor.dim] = self.end - self.start
        ranges = {rank: chunk(size, rank, saved) for rank in range(saved)}
        self.ranges = {
            rank: (start, end)
            for rank, (start, end) in ranges.items()
            if max(start, self.start) < min(end, self.end)
        }
        """In the whole, of the parts that hold something of it, by rank."""
        self.holders = list(self.ranges) or [0]
        """The ranks of these; of nothing, one whose file knows the dtype."""

    def overlap(self, rank: int) -> tuple[int, int]:
        """What of a rank's part is wanted, in places of the whole."""
        start, end = self.ranges[rank]
        return max(start, self.start), min(end, self.end)

    def in_a_row(self, rank: int) -> bool:
        """Whether a rank's part is wanted whole and lies in one row in memory."""
        return (
            self.overlap(rank) == self.ranges[rank]
            and math.prod(self.shape[: self.tensor.dim]) == 1
        )


@dataclass(slots=True)
class Fetch:
    """How tensors are taken from files."""

    mmap: bool
    verify: bool
    bare: frozenset[str] = frozenset()
    """Tensors that are wanted without their bytes,"""
    device: str = "meta"
    """and where."""

    def whole(self, file: Opened, names: Sequence[str]) -> dict[str, torch.Tensor]:
        """Tensors as they are."""
        made = {
            name: _empty(file, name, file.shape(name), self.device)
            for name in names
            if name in self.bare
        }
        wanted = [name for name in names if name not in self.bare]
        if wanted:
            made |= file.mapped(wanted) if self.mmap else file.owned(wanted)
        return made

    def cut(self, file: Opened, rank: int, cuts: list[Cut], made: dict[str, torch.Tensor]) -> None:
        """Puts what the file of a rank holds of cut tensors into their places, in tensors that are
        made when the first of their ranks comes."""
        for cut in cuts:
            if cut.name not in made and not self._is_part_of_a_mapping(cut):
                device = self.device if cut.name in self.bare else "cpu"
                made[cut.name] = _empty(file, cut.name, cut.shape, device)
        filled = [cut for cut in cuts if cut.ranges and cut.name not in self.bare]
        if filled:
            self._fill(file, rank, filled, made)

    def _is_part_of_a_mapping(self, cut: Cut) -> bool:
        return self.mmap and cut.name not in self.bare and len(cut.ranges) == 1

    def _fill(
        self, file: Opened, rank: int, cuts: list[Cut], made: dict[str, torch.Tensor]
    ) -> None:
        """Puts a rank's parts of tensors into their places."""
        if self.mmap or not self.verify:
            mapped = file.mapped([cut.name for cut in cuts])
            for cut in cuts:
                wanted = _wanted(cut, rank, mapped[cut.name])
                if self._is_part_of_a_mapping(cut):
                    made[cut.name] = wanted.contiguous()
                else:
                    _place(cut, rank, made[cut.name]).copy_(wanted)
            return
        straight = [cut for cut in cuts if cut.in_a_row(rank)]
        places = (_place(cut, rank, made[cut.name]).data_ptr() for cut in straight)
        numbers = (file.numbers[cut.name] for cut in straight)
        file.core.load(list(zip(numbers, places, strict=True)))
        for batch in _batches(file, [cut for cut in cuts if not cut.in_a_row(rank)]):
            read = file.owned([cut.name for cut in batch])
            for cut in batch:
                _place(cut, rank, made[cut.name]).copy_(_wanted(cut, rank, read[cut.name]))


def _place(cut: Cut, rank: int, tensor: torch.Tensor) -> torch.Tensor:
    """Where a rank's part belongs."""
    start, end = cut.overlap(rank)
    return tensor.narrow(cut.tensor.dim, start - cut.start, end - start)


def _wanted(cut: Cut, rank: int, part: torch.Tensor) -> torch.Tensor:
    """What of a rank's part is wanted."""
    start, end = cut.overlap(rank)
    return part.narrow(cut.tensor.dim, start - cut.ranges[rank][0], end - start)


def _empty(file: Opened, name: str, shape: Sequence[int], device: str) -> torch.Tensor:
    return torch.empty(list(shape), dtype=file.dtype(name), device=device)


def _batches(file: Opened, cuts: list[Cut]) -> Iterator[list[Cut]]:
    batch: list[Cut] = []
    size = 0
    for cut in cuts:
        nbytes = file.tensors[file.numbers[cut.name]][3]
        if batch and size + nbytes > BATCH_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(cut)
        size += nbytes
    if batch:
        yield batch
