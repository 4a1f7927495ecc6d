"""What others call back: modules, optimizers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Hook:
    """A call that can be ended wherever it is registered. A copy of the module or optimizer that
    has it is a plain one, and its hooks do nothing."""

    def __init__(self, call: Callable[..., None] | None) -> None:
        self._call = call

    def __call__(self, *arguments: Any) -> None:
        if self._call is not None:
            self._call(*arguments)

    def __reduce__(self) -> tuple[Any, ...]:
        return Hook, (None,)

    @property
    def is_over(self) -> bool:
        """Whether it does nothing any more."""
        return self._call is None

    def end(self) -> None:
        """From now on it does nothing, and holds nothing."""
        self._call = None
