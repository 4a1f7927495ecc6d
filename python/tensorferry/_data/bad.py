"""Samples that can't be read, and what stands in for them.

The rules, the same for every engine. ``raise``: the error names the sample's index. ``substitute``:
another sample takes its place, the first of ``substitutes(seed, epoch, index, n)`` that can be
read; if none can, it raises. ``skip``: it is left out, its batch is smaller; in a batch of nothing
but bad samples each is substituted, and those without a good substitute are left out; if nothing is
left, it raises.

So each batch of the order is yielded or raised, whatever is bad: ranks get as many as ``len`` says.
A dataset of no more than ``SUBSTITUTES_MAX + 1`` samples raises only if all of it is bad. Nothing
of this depends on timing or on another rank.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tensorferry._errors import InvalidInput

SUBSTITUTES_MAX = 16
"""Other samples that are tried in place of a bad one."""

NAMED_MAX = 100
"""Bad samples that are named; all are counted."""

REASON_CHARS_MAX = 200

_WORD = (1 << 64) - 1


def substitutes(seed: int, epoch: int, index: int, length: int) -> Iterator[int]:
    """Which samples to try in place of a bad one, of ``length`` in the dataset: others, each once.

    The others are counted from the one behind the bad one. Attempt ``k`` is the one with number
    ``hash(seed, epoch, index, k)``, modulo how many there are, or the next that was not tried. The
    hash sends its numbers one after the other, modulo 2**64, through splitmix64: ``h = mix(h ^ x)``
    from ``h = 0``.
    """
    others = length - 1
    tried: list[int] = []
    for attempt in range(min(SUBSTITUTES_MAX, others)):
        place = _hash(seed, epoch, index, attempt) % others
        while place in tried:
            place = (place + 1) % others
        tried.append(place)
        yield (index + 1 + place) % length


def _hash(*numbers: int) -> int:
    mixed = 0
    for number in numbers:
        mixed = _mix(mixed ^ (number & _WORD))
    return mixed


def _mix(x: int) -> int:
    x = (x + 0x9E3779B97F4A7C15) & _WORD
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _WORD
    return x ^ (x >> 31)


@dataclass(frozen=True, slots=True)
class BadSample:
    """A sample that could not be read."""

    epoch: int
    index: int | str
    """Its index; of a sampler that yields other keys, the key's ``repr``."""
    reason: str
    substitute: int | None = None
    """The sample that took its place."""

    @classmethod
    def of(
        cls, epoch: int, index: Any, error: BaseException, instead: int | None = None
    ) -> BadSample:
        """From what went wrong."""
        reason = f"{type(error).__name__}: {error}"[:REASON_CHARS_MAX]
        return cls(epoch, index if isinstance(index, int) else repr(index), reason, instead)

    def __str__(self) -> str:
        instead = "" if self.substitute is None else f"; {self.substitute} in its place"
        return f"sample {self.index} in epoch {self.epoch}: {self.reason}{instead}"


class Ledger:
    """All bad samples that a loader met: how many, and the first by name.

    Those of batches that would come again after a resume are not in the state, or they would be
    counted twice then: they are *settled* when a later batch is yielded, or none can be.
    """

    def __init__(self) -> None:
        self.count = 0
        self.named: list[BadSample] = []
        self._settled = 0

    def add(self, bad: Iterable[BadSample]) -> None:
        """Enters those of one batch."""
        for each in bad:
            self.count += 1
            if len(self.named) < NAMED_MAX:
                self.named.append(each)

    def settle(self) -> None:
        """Nothing that was met so far will come again."""
        self._settled = self.count

    def plain(self) -> dict[str, Any]:
        """What is settled, as plain data."""
        named = self.named[: self._settled]
        return {"count": self._settled, "named": [asdict(each) for each in named]}

    def load(self, plain: Mapping[str, Any]) -> None:
        """From plain data."""
        try:
            named = [BadSample(**each) for each in plain["named"]][:NAMED_MAX]
            self.count, self.named = int(plain["count"]), named
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidInput(f"this is no state of a DataLoader: bad: {error}") from error
        self.settle()
