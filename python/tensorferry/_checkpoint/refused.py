"""What the loaders of others mean when they fail, as errors of ours.

They tell a damaged file, a healthy one with something in it that they do not make, and a missing
device by whatever exception their code has run into, often by its words alone.
"""

from __future__ import annotations

import errno
import pickle
import re

from tensorferry import _lib
from tensorferry._errors import Corrupt, Error, OutOfMemory, Unsupported

_ELSEWHERE = ("Attempting to deserialize object on", "don't know how to restore data location")
"""How torch says that a device is not here."""

_FRAME = "Unsupported operand 149"
"""What torch's safe loader finds in pickles of protocol 4 and later."""


def by_torch(error: Exception, path: str) -> Error:
    """Why ``torch.load`` has failed with its safe loader."""
    said = str(error)
    if isinstance(error, pickle.UnpicklingError):
        return _by_unpickler(said, path)
    if isinstance(error, RuntimeError) and "TorchScript" in said:
        what = "the file holds a program of TorchScript; load it with torch.jit.load"
        return Unsupported(f"{what} (file: {path})")
    if isinstance(error, RuntimeError) and any(words in said for words in _ELSEWHERE):
        return Unsupported(f"torch can't load the file here: {said} (file: {path})")
    return by_tool(error, "torch's safe loader", path)


def by_numpy(error: Exception, path: str) -> Error:
    """Why ``numpy.load`` has failed."""
    if isinstance(error, ValueError) and "Object arrays" in str(error):
        what = "the file holds an array of Python objects: loading it would run whatever it says"
        hint = "if you trust it, use numpy.load(path, allow_pickle=True)"
        return Unsupported(f"{what}; {hint} (file: {path})")
    return by_tool(error, "NumPy", path)


def _by_unpickler(said: str, path: str) -> Error:
    found = re.search(r"GLOBAL ([\w.]+)", said)
    if found:
        what = f"the file holds {found[1]}, which torch's safe loader does not make"
        hint = (
            "a checkpoint holds tensors and plain values, such as module.state_dict(). If you "
            "trust the file, torch.load(path, weights_only=False) loads it, and runs whatever it "
            "says; or allow the type by torch.serialization.add_safe_globals"
        )
        return Unsupported(f"{what}: {hint} (file: {path})")
    if _FRAME in said:
        what = "the file was pickled by another protocol than torch's safe loader reads"
        hint = "save it again without pickle_protocol"
        return Unsupported(f"{what}; {hint} (file: {path})")
    return Corrupt(f"torch's safe loader can't load the file: {_first_words(said)} (file: {path})")


def _first_words(said: str) -> str:
    """Without torch's advice around it."""
    return said.partition("WeightsUnpickler error:")[2].strip().partition("\n")[0] or said


def by_tool(error: Exception, loader: str, path: str) -> Error:
    """Why any loader has failed, as far as its exception tells."""
    said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    if isinstance(error, MemoryError):
        return OutOfMemory(f"no memory for what the file claims: {error} (file: {path})")
    # To go where a damaged archive leads is an invalid argument to the kernel.
    if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
        what = f"{loader} can't read the file: {said} (file: {path})"
        return _lib.os_error(error.errno, what)
    return Corrupt(f"{loader} can't load the file: {said} (file: {path})")
