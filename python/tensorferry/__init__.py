"""Moves tensors between storage, host memory and accelerators while a model trains.

``import tensorferry`` is cheap: torch is imported by the parts that need it, when they are used.
"""

from typing import TYPE_CHECKING, Any

from tensorferry import data
from tensorferry._errors import (
    Closed,
    Corrupt,
    Error,
    FileTooLarge,
    Internal,
    InvalidInput,
    Io,
    NotFound,
    OutOfMemory,
    OutOfSpace,
    PermissionDenied,
    Timeout,
    Truncated,
    Unsupported,
)
from tensorferry._lib import __version__, parse_size
from tensorferry.activations import ActivationOffload
from tensorferry.checkpoint import SaveJob, SaveReport, load, safe_open, save, save_async
from tensorferry.io import Engine
from tensorferry.ledger import limit, memory
from tensorferry.observe import metrics, prometheus, trace
from tensorferry.tensor_io import TensorIO, Tool

if TYPE_CHECKING:
    from tensorferry import optim
    from tensorferry.data import DataLoader
    from tensorferry.shadow import ShadowModel

__all__ = [
    "ActivationOffload",
    "Closed",
    "Corrupt",
    "DataLoader",
    "Engine",
    "Error",
    "FileTooLarge",
    "Internal",
    "InvalidInput",
    "Io",
    "NotFound",
    "OutOfMemory",
    "OutOfSpace",
    "PermissionDenied",
    "SaveJob",
    "SaveReport",
    "ShadowModel",
    "TensorIO",
    "Timeout",
    "Tool",
    "Truncated",
    "Unsupported",
    "__version__",
    "data",
    "limit",
    "load",
    "memory",
    "metrics",
    "optim",
    "parse_size",
    "prometheus",
    "safe_open",
    "save",
    "save_async",
    "trace",
]


def __getattr__(name: str) -> Any:
    """``ferry.DataLoader``, ``ferry.optim`` and ``ferry.ShadowModel``, which need torch."""
    import importlib

    if name == "DataLoader":
        return data.DataLoader
    if name == "optim":
        return importlib.import_module("tensorferry.optim")
    if name == "ShadowModel":
        return importlib.import_module("tensorferry.shadow").ShadowModel
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
