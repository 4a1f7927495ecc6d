"""What is written in each round, known to who writes and to who looks afterwards."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]


class Rounds:
    """A file of ``length`` bytes, zeros at first, and what each round of a seed writes to it."""

    def __init__(self, seed: int, length: int) -> None:
        self._seed = seed
        self.length = length

    def pieces(self, number: int) -> Iterator[tuple[int, Bytes]]:
        """Offsets and bytes, which do not overlap: aligned ones and odd ones, tiny and large."""
        chance = np.random.default_rng((self._seed, number))
        at = 0
        while at < self.length:
            at += int(chance.choice((0, 1, 511, 4096, 65536)))
            length = int(chance.choice((1, 300, 4096, 8192, 1 << 17, 1 << 20, 3_000_001)))
            length = min(length, self.length - at)
            if length > 0:
                yield at, chance.integers(0, 256, length, np.uint8)
            at += length

    def after(self, number: int) -> Bytes:
        """The whole file when so many rounds are over."""
        whole = np.zeros(self.length, np.uint8)
        for each in range(number):
            self.apply(whole, each)
        return whole

    def apply(self, whole: Bytes, number: int) -> None:
        """Does a round to an array."""
        for at, piece in self.pieces(number):
            whole[at : at + len(piece)] = piece
