"""What a child can be asked for, by name."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, TypeAlias

Case: TypeAlias = Callable[[dict[str, Any]], dict[str, Any]]

HOMES = {
    "images": "_bench_data.images",
    "arrays": "_bench_data.arrays",
    "slow": "_bench_data.slow",
    "consumers": "_bench_data.consumers",
    "beside": "_bench_data.beside",
    "training": "_bench_activations.training",
    "batch": "_bench_activations.batch",
    "loss": "_bench_activations.loss",
    "turns": "_bench_parameters.turns",
    "disk": "_bench_parameters.disk",
    "shadow": "_bench_parameters.shadow",
    "reserve": "_bench_parameters.reserve",
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
        importlib.import_module(f"tensorferry.{home}")
    if name not in _CASES:
        raise LookupError(f"no such case: {name}")
    return _CASES[name]


def describe(error: BaseException) -> str:
    """One line: rivals' errors can have many."""
    if isinstance(error, ModuleNotFoundError):
        return f"not installed: no module {error.name}"
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"[:300]
