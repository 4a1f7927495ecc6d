"""Tools: the ways between an object and a file. Each writes or reads one format.

The first three are the core's and share a format, safetensors. The others are what users have
today; they are here because a dictionary of tools can only learn what is fastest if it may try
them. Whoever writes, the file takes its place whole or not at all.
"""

from __future__ import annotations

import io
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

from tensorferry import _lib
from tensorferry._checkpoint.collector import uncollected
from tensorferry._checkpoint.location import MapLocation, placer, without_data
from tensorferry._checkpoint.opened import Opened, as_keys
from tensorferry._checkpoint.refused import by_numpy, by_torch
from tensorferry._errors import InvalidInput, Io, Unsupported
from tensorferry._kinds import is_plain, outside_of_transforms
from tensorferry._structure import Flat, Ties, structure_text
from tensorferry._structure.pieces import copied, copied_array, copy_into, pieces

ASKED_BYTES = 1 << 20
"""So many are written to learn why a library could not."""


@dataclass(frozen=True, slots=True)
class SaveOptions:
    """How to save."""

    durable: bool = True
    checksum: bool = True
    staging: int | None = None
    """Bytes for saves behind their callers; the others need a fixed few."""
    ties: Ties = "names"
    """How tensors that share memory are stored."""


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """What to load, and where to."""

    keys: Sequence[str] | None = None
    mmap: bool = False
    verify: bool = True
    map_location: MapLocation = None

    @property
    def reads_all(self) -> bool:
        """Whether every byte of every tensor is read: only that tells how fast a tool is."""
        return self.keys is None and not self.mmap and without_data(self.map_location) is None


class AnyTool(Protocol):
    """One way between an object and a file, ours or the user's."""

    name: str
    format: str

    def refuses(self, obj: object, flat: Flat) -> str | None:
        """Why an object can't be saved this way, if it can't."""
        ...

    def save(self, obj: object, flat: Flat, path: str, options: SaveOptions) -> dict[str, Any]: ...

    def load(self, path: str, options: LoadOptions) -> Any: ...


class CoreTool:
    """``direct``, ``buffered`` or ``mapped``, by the Rust core."""

    format = "safetensors"

    def __init__(self, name: str, *, writes: bool = True) -> None:
        self.name = name
        self.writes = writes

    def refuses(self, obj: object, flat: Flat) -> str | None:
        """Everything that can be flattened can be saved."""
        return None if self.writes else f"the tool {self.name!r} only reads"

    def save(self, obj: object, flat: Flat, path: str, options: SaveOptions) -> dict[str, Any]:
        """Saves, and waits until it is done."""
        return _lib.save(path, *self._given(flat, options))

    def save_behind(self, flat: Flat, path: str, options: SaveOptions) -> _lib.Saving:
        """Saves, and waits until all tensors are in staging memory."""
        return _lib.save_behind(path, *self._given(flat, options))

    def _given(self, flat: Flat, options: SaveOptions) -> tuple[Any, ...]:
        _finish_streams(flat)
        tensors = [(t.name, t.dtype, t.shape, t.address) for t in flat.stored]
        text = structure_text(flat, checksum=options.checksum, tool=self.name)
        how = {
            "tool": self.name,
            "durable": options.durable,
            "checksum": options.checksum,
            "staging": options.staging,
        }
        return tensors, lambda number: flat.stored[number].materialize(), text, how

    def load(self, path: str, options: LoadOptions) -> Any:
        """Loads the object."""
        return load_core(path, options, self.name)


def load_core(path: str, options: LoadOptions, tool: str | None = None) -> Any:
    """Loads a safetensors file; without a tool, the core chooses by what is cached."""
    with uncollected(), outside_of_transforms():
        opened = Opened(path, tool=tool, verify=options.verify)
        return opened.object(
            keys=options.keys, mmap=options.mmap, map_location=options.map_location
        )


def _finish_streams(flat: Flat) -> None:
    """Tensors on a device are copied by other threads, which have other streams: what the caller's
    stream still has to do to them is waited for here."""
    if not torch.cuda.is_available():
        return
    sources = (stored.source for stored in flat.stored if stored.address is None)
    devices = {source.device for source in sources if isinstance(source, torch.Tensor)}
    for device in devices:
        if device.type == "cuda":
            torch.cuda.current_stream(device).synchronize()


class TorchTool:
    """``torch.save`` and ``torch.load`` with its safe loader."""

    name = "torch"
    format = "torch"

    def refuses(self, obj: object, flat: Flat) -> str | None:
        """What the safe loader could not load again."""
        return None if flat.only_torch else "torch's safe loader could not load it again"

    def save(self, obj: object, flat: Flat, path: str, options: SaveOptions) -> dict[str, Any]:
        """Saves, and waits until it is done."""
        return by_draft(self.name, path, options, lambda draft: torch.save(obj, draft))

    def load(self, path: str, options: LoadOptions) -> Any:
        """Loads the object."""
        place = _Noted(options.map_location)
        try:
            loaded = torch.load(
                path,
                map_location=place if callable(options.map_location) else options.map_location,  # type: ignore[arg-type]
                weights_only=True,
                mmap=options.mmap or None,
            )
        except Exception as error:
            if error is place.raised or isinstance(error, Warning):
                # A warning that the user wants as an error is none of the file's either.
                raise
            raise by_torch(error, path) from error
        return parts(loaded, options.keys)


class NumpyTool:
    """``numpy.save`` and ``numpy.load``, for one tensor."""

    name = "numpy"
    format = "numpy"

    def refuses(self, obj: object, flat: Flat) -> str | None:
        """Anything but one tensor."""
        return None if flat.single else "a .npy file holds one tensor of a dtype that NumPy knows"

    def save(self, obj: object, flat: Flat, path: str, options: SaveOptions) -> dict[str, Any]:
        """Saves, and waits until it is done."""
        assert isinstance(obj, torch.Tensor)
        tensor = obj.detach()
        array = (tensor if is_plain(tensor) else copied(tensor)).numpy()
        array = array if array.flags.forc else copied_array(array)
        raw = array.ravel(order="K").view(np.uint8)

        def write(draft: Path) -> None:
            # numpy.save would write all of it at once, and keep the system's number to itself.
            with draft.open("wb") as file:
                header = np.lib.format.header_data_from_array_1_0(array)
                np.lib.format.write_array_header_1_0(file, header)
                for piece in pieces(raw.shape, 1):
                    file.write(raw[piece].data)

        return by_draft(self.name, path, options, write)

    def load(self, path: str, options: LoadOptions) -> torch.Tensor:
        """Loads the tensor."""
        if options.keys is not None:
            raise InvalidInput(f"a .npy file has no parts to choose by keys (file: {path})")
        try:
            if options.mmap:
                array = np.load(path, mmap_mode="c", allow_pickle=False)
            else:
                with open(path, "rb", buffering=0) as file:
                    array = np.load(_Stream(file), allow_pickle=False)
        except Exception as error:
            raise by_numpy(error, path) from error
        if not array.dtype.isnative:
            native = np.empty(array.shape, array.dtype.newbyteorder("="))
            copy_into(array, native)
            array = native
        try:
            tensor = torch.from_numpy(array)
        except (TypeError, ValueError) as error:
            raise Unsupported(f"torch has no such dtype: {error} (file: {path})") from error
        return placer(options.map_location)(tensor, "cpu")


class _Stream:
    """A file that NumPy does not know for one: it is read in pieces, between which an interruption
    is heard."""

    def __init__(self, file: io.FileIO) -> None:
        self.read = file.read
        self.seek = file.seek


class _Noted:
    """A function of the user's among the loader's own code: what it raises is no fault of the
    file."""

    def __init__(self, function: Any) -> None:
        self.function = function
        self.raised: Exception | None = None

    def __call__(self, *arguments: Any) -> Any:
        try:
            return self.function(*arguments)
        except Exception as error:
            self.raised = error
            raise


def by_draft(
    name: str, path: str, options: SaveOptions, write: Callable[[Path], object]
) -> dict[str, Any]:
    """Lets a library write a file, which takes its place whole or not at all."""
    began = time.perf_counter()
    draft = _lib.Draft(path)
    try:
        put(write, draft.path, path)
        size = os.path.getsize(draft.path)
        written = time.perf_counter()
        draft.publish(options.durable)
    finally:
        draft.discard()
    done = time.perf_counter()
    return {
        "bytes": size,
        "seconds": done - began,
        "staged_seconds": written - began,
        "waited_seconds": 0.0,
        "sync_seconds": done - written,
        "tool": name,
    }


def put(write: Callable[[Path], object], draft: Path, path: str) -> None:
    """Lets a library write. What went wrong, the system's number tells, never a library's words:
    one that keeps the number to itself is followed by a look at what the system says."""
    try:
        write(draft)
    except (OSError, RuntimeError) as error:
        code = getattr(error, "errno", None) or _refused(draft)
        if code is None:
            raise Io(f"can't save: {error} (file: {path})") from error
        raise _lib.os_error(code, f"can't save: {error} (file: {path})") from error


def _refused(draft: Path) -> int | None:
    """The number with which the system takes no more bytes for a file, if it takes none."""
    try:
        with draft.open("ab") as file:
            file.write(bytes(ASKED_BYTES))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return error.errno
    return None


def parts(loaded: Any, keys: Sequence[str] | None) -> Any:
    """Parts of an object that is there already, by the paths of a checkpoint of ours; all of it
    without keys."""
    from tensorferry._checkpoint.parts import part

    if keys is None:
        return loaded
    return {key: part(loaded, key) for key in as_keys(keys)}


DIRECT = CoreTool("direct")
BUFFERED = CoreTool("buffered")
MAPPED = CoreTool("mapped", writes=False)
TOOLS: dict[str, AnyTool] = {
    tool.name: tool for tool in (DIRECT, BUFFERED, MAPPED, TorchTool(), NumpyTool())
}


def tool_named(name: str) -> AnyTool:
    """The tool of this name."""
    tool = TOOLS.get(name)
    if tool is None:
        known = ", ".join(map(repr, TOOLS))
        raise InvalidInput(f"{name!r} is no tool; choose 'auto' or one of {known}")
    return tool
