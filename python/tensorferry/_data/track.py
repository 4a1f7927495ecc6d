"""What of an epoch has been yielded to the user.

Batches are yielded in order unless the user allows otherwise, so this is a number and, for those
that came before their turn, a short set. A batch that failed, or was left out because all of it was
bad, counts as passed once a later one is yielded.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tensorferry._data.course import Course
from tensorferry._data.state import State


class Track:
    """The place in one epoch, from which ``state_dict`` is made."""

    def __init__(self, start: State, course: Course) -> None:
        self.start = start
        self.course = course
        self.passed = start.batches
        """All batches before this one are done with."""
        self.ended = False
        self._beyond = set(start.beyond)
        self._unyielded: list[int] = []

    @property
    def requested(self) -> int:
        """Batches that the user has asked for, by the order's count."""
        return self.passed + len(self._unyielded)

    def dropped(self, number: int) -> None:
        """A batch failed or was left out."""
        self._unyielded.append(number)

    def yielded(self, number: int) -> None:
        """A batch went to the user."""
        self._pass(self._unyielded)
        self._unyielded = []
        self._pass([number])

    def state(self) -> State:
        """To resume here."""
        facts = self.course.facts(self.passed)
        return replace(
            self.start,
            batches=self.passed,
            beyond=sorted(self._beyond),
            base_seed=facts.base_seed,
            generator=facts.generator,
            sampler=facts.sampler,
        )

    def _pass(self, numbers: Iterable[int]) -> None:
        self._beyond.update(numbers)
        while self.passed in self._beyond:
            self._beyond.remove(self.passed)
            self.passed += 1
