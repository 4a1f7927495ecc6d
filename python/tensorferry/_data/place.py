"""Where a dataset stands that keeps its own place.

``state_dict`` and ``load_state_dict`` on a dataset, or on the iterator that an iterable dataset
gives, are used as torchdata's ``StatefulDataLoader`` uses them. What they say is the user's, and is
copied: an object may go on changing what it gave.
"""

from __future__ import annotations

import copy
from typing import Any

from tensorferry._errors import InvalidInput


def is_stateful(held: object) -> bool:
    """Whether it can say where it stands, and be brought back there."""
    return all(callable(getattr(held, name, None)) for name in ("state_dict", "load_state_dict"))


def of(held: Any) -> Any:
    """Where it stands; None if it can't say."""
    return copy.deepcopy(held.state_dict()) if is_stateful(held) else None


def put_back(held: Any, saved: Any) -> None:
    """Brings it to a place that it told before; None is no place."""
    if saved is None:
        return
    if not is_stateful(held):
        what = f"the state has a place of the dataset's own, and this {type(held).__name__}"
        raise InvalidInput(f"{what} has no state_dict and load_state_dict to go back to it")
    held.load_state_dict(copy.deepcopy(saved))


def resting(dataset: Any, *, is_iterable: bool) -> Any:
    """The place that a batch would name if nothing of the epoch was read; None if there is none."""
    where = of(dataset)
    if where is None or not is_iterable:
        return where
    return {"count": 0, "ended": False, "dataset": where, "iterator": None}
