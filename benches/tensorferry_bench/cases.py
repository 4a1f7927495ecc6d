"""What a child can be asked for, by name."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, TypeAlias

Case: TypeAlias = Callable[[dict[str, Any]], dict[str, Any]]

HOMES = {
    "images": "data.images",
    "arrays": "data.arrays",
    "slow": "data.slow",
    "consumers": "data.consumers",
    "beside": "data.beside",
    "training": "activations.training",
    "batch": "activations.batch",
    "loss": "activations.loss",
    "turns": "parameters.turns",
    "disk": "parameters.disk",
    "shadow": "parameters.shadow",
    "reserve": "parameters.reserve",
}
"""Where the cases are that begin with a name."""

_CASES: dict[str, Case] = {}


def case(name: str) -> Callable[[Case], Case]:
    """Makes a function known under the name by which it is asked for: ``home.what``."""

    def known(function: Case) -> Case:
        _CASES[name] = function
        return function

    return known


def find(name: str) -> Case:
    """The case, from the module that it is in."""
    home = HOMES.get(name.partition(".")[0])
    if home is not None:
        importlib.import_module(f"tensorferry_bench.{home}")
    if name not in _CASES:
        raise LookupError(f"no such case: {name}")
    return _CASES[name]


def describe(error: BaseException) -> str:
    """One line: rivals' errors can have many."""
    if isinstance(error, ModuleNotFoundError):
        return f"not installed: no module {error.name}"
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"[:300]
