"""The state of a dataset that can save and restore its own.

``state_dict`` and ``load_state_dict`` on a dataset, or on the iterator that an iterable dataset
gives, are used as torchdata's ``StatefulDataLoader`` uses them. What they say is the user's, and is
copied: an object may go on changing what it gave.
"""

from __future__ import annotations

import copy
from typing import Any

from tensorferry._errors import InvalidInput


def is_stateful(held: object) -> bool:
    """Whether it can save its state, and be brought back to it."""
    return all(callable(getattr(held, name, None)) for name in ("state_dict", "load_state_dict"))


def of(held: Any) -> Any:
    """Its state; None if it has none."""
    return copy.deepcopy(held.state_dict()) if is_stateful(held) else None


def restore(held: Any, saved: Any) -> None:
    """Brings it back to a state that it saved; None is no state."""
    if saved is None:
        return
    if not is_stateful(held):
        what = f"the state has a place of the dataset's own, and this {type(held).__name__}"
        raise InvalidInput(f"{what} has no state_dict and load_state_dict to go back to it")
    held.load_state_dict(copy.deepcopy(saved))


def initial(dataset: Any, *, is_iterable: bool) -> Any:
    """The state that a batch would have if nothing of the epoch was read; None if there is none."""
    state = of(dataset)
    return begun(state) if is_iterable else state


def begun(state: Any) -> Any:
    """That of an iterable dataset, from the dataset's own."""
    if state is None:
        return None
    return {"count": 0, "ended": False, "dataset": state, "iterator": None}
