"""What of an epoch has been yielded to the user.

Batches are yielded in order unless the user allows otherwise, so this is a number and, for those
that came before their turn, a short set. A batch that failed, or is none because its worker's
data is over, counts as passed once a later one is yielded.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from tensorferry._data import dataset_state
from tensorferry._data.engine import Batch
from tensorferry._data.epoch_order import EpochOrder
from tensorferry._data.state import State


class Position:
    """How far one epoch has come, from which ``state_dict`` is made."""

    def __init__(self, start: State, epoch_order: EpochOrder, initial: Sequence[Any]) -> None:
        self.start = start
        self.epoch_order = epoch_order
        self._dataset_states: list[Any] = list(start.places or initial)
        self._at_the_end: dict[int, Any] = {}
        """Of datasets whose data is over, ready for another epoch."""
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
        """A batch failed, or there is none."""
        self._unyielded.append(number)

    def exhausted(self, batch: Batch) -> None:
        """The data of a worker is over."""
        self._at_the_end[batch.worker] = batch.dataset_state

    def afterwards(self, *, is_iterable: bool) -> list[Any]:
        """The states of datasets that go on from here with another epoch, by worker."""
        states = self._dataset_states
        if is_iterable:
            states = [each and dataset_state.begun(each["dataset"]) for each in states]
        return [self._at_the_end.get(worker, each) for worker, each in enumerate(states)]

    def yielded(self, number: int, batch: Batch) -> None:
        """A batch went to the user."""
        if batch.dataset_state is not None:
            self._dataset_states[batch.worker] = batch.dataset_state
        self._pass(self._unyielded)
        self._unyielded = []
        self._pass([number])

    def state(self) -> State:
        """To resume here."""
        facts = self.epoch_order.facts(self.passed)
        return replace(
            self.start,
            batches=self.passed,
            beyond=sorted(self._beyond),
            base_seed=facts.base_seed,
            drawn=facts.drawn,
            generator=facts.generator,
            sampler=facts.sampler,
            places=list(self._dataset_states),
        )

    def _pass(self, numbers: Iterable[int]) -> None:
        self._beyond.update(numbers)
        while self.passed in self._beyond:
            self._beyond.remove(self.passed)
            self.passed += 1
