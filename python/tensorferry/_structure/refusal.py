"""What can't be saved: why, and at which place of the object.

The place is made while the error is on its way out, a step for each container that it leaves, so
that paths cost nothing while all is well. It is written as Python would: ``state[3].hook``.
"""

from __future__ import annotations

from typing import NoReturn

import numpy as np
import torch

from tensorferry._kinds import obstacle
from tensorferry._structure.values import key_text

_ALLOWED = (
    "an object to save consists of dict, OrderedDict, Counter, list, tuple, set, frozenset, None, "
    "bool, int, float, complex, str, bytes, bytearray, tensors, parameters, NumPy arrays and "
    "scalars, torch.Size, torch.dtype and torch.device"
)
KEYS = "keys are None, bool, int, float, str, bytes or tuples of these"
ELEMENTS = "elements of sets are None, bool, int, float, str, bytes, tuples or frozensets of these"
NO_RECORDS = "records, objects and texts of any length have no bytes to store; pass plain numbers"


class CannotSave(Exception):
    """Why, and the steps from the culprit to the root, as far as it has come."""

    def __init__(self, why: str, *, again: int | None = None) -> None:
        self.why = why
        self.steps: list[str] = []
        # The identity of a container that contains itself, and the steps from there to it again.
        self.again = again
        self.cycle: int | None = None

    def leave(self, container: object, step: str) -> NoReturn:
        """Goes on, with the step from a container to the culprit's side."""
        self.steps.append(step)
        if self.again == id(container):
            self.cycle = len(self.steps)
        raise self

    def message(self) -> str:
        """For the user."""
        if self.cycle is not None:
            outer = _path(self.steps[self.cycle :])
            return f"can't save {_path(self.steps)}: it is {outer} again; break the cycle first"
        return f"can't save {_path(self.steps)}: {self.why}"


def _path(steps: list[str]) -> str:
    return "".join(reversed(steps)).removeprefix(".") or "the object"


def key_step(key: object) -> str:
    """From a dict to one of its items."""
    if type(key) is str and key.isidentifier():
        return f".{key}"
    try:
        shown = repr(key)
    except ValueError:
        shown = key_text(key)
    return f"[{shown}]" if len(shown) <= 100 else f"[{shown[:97]}...]"


def reason(value: object) -> str:
    """Why a value of no allowed type can't be saved."""
    name = type_name(type(value))
    for base in (dict, list, tuple, set, str, int, float, bytes, np.ndarray):
        if isinstance(value, base):
            plain = "np.asarray" if base is np.ndarray else base.__name__
            return f"{name}, which would come back as another type; pass {plain}(...); {_ALLOWED}"
    return f"{name}; {_ALLOWED}"


def another_type(tensor: torch.Tensor) -> str:
    """What to do with a tensor that is neither a plain one nor a parameter."""
    why = obstacle(tensor)
    if why is not None:
        return str(why)
    return (
        f"{type_name(type(tensor))}; only plain tensors and parameters can be saved; save "
        "tensor.as_subclass(torch.Tensor)"
    )


def check_text(text: str) -> None:
    """Refuses texts that JSON can't hold."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise CannotSave("a text with lone surrogates, which UTF-8 can't write") from None


def type_name(kind: type) -> str:
    """``function``, ``collections.deque``."""
    return (
        kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    )
