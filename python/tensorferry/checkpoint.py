"""Checkpoints: objects with tensors to a file and back, at the speed of the disk.

::

    ferry.save(model.state_dict(), "model.ferry")
    state = ferry.load("model.ferry")

    job = ferry.save_async(state, "model.ferry")    # held only while the tensors are copied
    ...                                             # train on
    job.wait()

A checkpoint is a safetensors file, which every tool of the ecosystem reads. A save replaces the old
file whole or not at all, survives a power cut once it returns, and is verified when it is loaded.
Nothing is pickled.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from tensorferry._checkpoint.jobs import SaveJob, raise_earlier_failure
from tensorferry._checkpoint.report import SaveReport
from tensorferry._errors import InvalidInput

if TYPE_CHECKING:
    import torch

    from tensorferry._checkpoint.chooser import Chooser
    from tensorferry._checkpoint.location import MapLocation
    from tensorferry._checkpoint.opened import Opened
    from tensorferry._checkpoint.ranks.opened import OpenedIndex
    from tensorferry._structure.sharing import Ties

__all__ = ["SaveJob", "SaveReport", "load", "safe_open", "save", "save_async"]

PathLike: TypeAlias = str | os.PathLike[str]


def save(
    obj: object,
    path: PathLike,
    *,
    tool: str = "auto",
    goal: str = "w",
    durable: bool = True,
    checksum: bool = True,
    ties: Ties = "names",
    rank: int | None = None,
    world_size: int | None = None,
    sharded: Mapping[str, int] | None = None,
    replicated: Sequence[str] | bool = False,
) -> SaveReport:
    """Saves an object as the file ``path``.

    The object consists of dicts, lists, tuples, tensors, parameters, arrays and plain values,
    nested at will. Anything else is an ``InvalidInput`` that names its place, before a byte is
    written.

    ``tool``: ``"direct"`` (around the page cache), ``"buffered"``, ``"torch"`` (a ``.pt`` file),
    ``"numpy"`` (a ``.npy`` file, for one tensor), or ``"auto"``: whichever of the first two has
    turned out faster here, for the ``goal`` of fast writing (``"w"``), reading (``"r"``) or both
    (``"w+r"``). ``durable``: it survives a power cut once this returns. ``checksum``: whether
    tensors are checksummed; the header always is.

    Tensors that share memory share it again when loaded. ``ties`` says how they are stored: each
    under its own name, in the shape that it has, so that readers of others find it (``"names"``;
    what is shared takes its bytes once for each name), or once (``"shared"``; others then find the
    first name of tied tensors only, and of overlapping views perhaps one tensor of bytes).

    With ``rank`` and ``world_size``, each rank saves its own object to a file of its own beside
    ``path``, which becomes an index of them when the last rank is done. ``sharded`` says along
    which dimension tensors are cut evenly between the ranks, by patterns of their names
    (``{"*.weight": 0}``); ``replicated`` names those that are the same on every rank (True: all
    others), which are then stored once. Both can be loaded by any number of ranks. Parts have the
    sizes that ``torch.chunk`` gives. Until all ranks have saved, the old checkpoint stays. If
    torch.distributed is initialised for as many ranks, all wait for each other, and all raise if
    one fails; otherwise no call waits, the n-th calls of all ranks for a path belong together, and
    ``complete`` in the report says whether this one was the last.
    """
    from tensorferry._checkpoint import run
    from tensorferry._checkpoint.chooser import default
    from tensorferry._checkpoint.tools import SaveOptions

    options = SaveOptions(durable, checksum, ties=ties)
    if rank is None and world_size is None:
        if sharded or replicated:
            what = "sharded and replicated are for several ranks"
            raise InvalidInput(f"{what}; give rank and world_size too")
        raise_earlier_failure()
        return run.save_over(default(tool, goal), obj, os.fspath(path), options)
    from tensorferry._checkpoint.ranks.group import Group, check_tool, group_of
    from tensorferry._checkpoint.ranks.save import save as save_part

    group = group_of(rank, world_size)

    def prepare() -> tuple[Chooser, Group]:
        # What one rank raises here, the others have to learn as any failure of its save.
        raise_earlier_failure()
        check_tool(tool)
        return default(tool, goal), group.saying(sharded, replicated)

    return save_part(prepare, obj, os.fspath(path), group, options)


def save_async(
    obj: object,
    path: PathLike,
    *,
    tool: str = "auto",
    durable: bool = True,
    checksum: bool = True,
    ties: Ties = "names",
    staging: str | int | None = None,
) -> SaveJob:
    """Saves as ``save`` does, but returns as soon as all tensors are copied to staging memory, and
    goes on without the GIL.

    ``tool``: ``"direct"``, ``"buffered"``, or ``"auto"``: whichever of the two has turned out
    faster for such saves here. A save steps aside while somebody in this process waits for a disk,
    and keeps a third of the speed of the disk then; what it takes is learned by itself, apart from
    that of ``save``.

    ``staging`` bounds that memory (by default an eighth of what the process may have, at most 8
    GiB); an object that does not fit, or for which memory is short, is streamed through it, and the
    caller is held a little longer. The memory is kept for the next save for some seconds. A second
    save of the same path takes effect after the first.
    """
    from tensorferry._checkpoint import run
    from tensorferry._checkpoint.tools import SaveOptions

    raise_earlier_failure()
    options = SaveOptions(durable, checksum, run.staging_bytes(staging), ties)
    name = os.fspath(path)
    saving, took = run.save_behind(obj, name, tool, options)
    return SaveJob(name, saving, took)


def load(
    path: PathLike,
    *,
    map_location: MapLocation = None,
    keys: Sequence[str] | None = None,
    mmap: bool | None = None,
    verify: bool = True,
    tool: str = "auto",
    rank: int | None = None,
    world_size: int | None = None,
) -> Any:
    """Loads what was saved; also any safetensors file, a ``.npy`` file (as a tensor) and, by the
    safe loader of torch, a ``.pt`` file. What a file is, its content says.

    ``map_location`` as in ``torch.load``. ``keys`` loads only the parts at these dotted paths
    (``["model", "optimizer.state.3"]``) and gives a dict of them. ``mmap=True`` maps the file
    privately: nothing is read, and no tensor verified, before it is used, but overlapping views
    that are put together again. ``verify`` checks the checksums of tensors, where the file has
    them; that of the header is always checked. ``tool`` is the way to read, for files of a format
    that it reads.

    A checkpoint of several ranks is put together again; with ``rank`` and ``world_size``, each of
    any number of ranks gets its part: of sharded tensors what ``torch.chunk`` gives it, the others
    as they are, the rest as rank 0 saved it. As many ranks as saved it get what each has saved. Any
    other checkpoint is the same for all ranks, as is one in plain safetensors files with an index
    (``model.safetensors.index.json``).
    """
    from tensorferry._checkpoint import run
    from tensorferry._checkpoint.chooser import default
    from tensorferry._checkpoint.tools import LoadOptions

    options = LoadOptions(keys, bool(mmap), verify, map_location)
    if rank is None and world_size is None:
        return run.load(default(tool, "r"), os.fspath(path), options)
    from tensorferry._checkpoint.ranks.group import group_of
    from tensorferry._checkpoint.ranks.load import load as load_parts

    group = group_of(rank, world_size)
    return load_parts(os.fspath(path), options, rank=group.rank, world_size=group.world_size)


class safe_open:  # noqa: N801  (the name that users know from safetensors)
    """A file whose tensors are loaded one by one, by the names they have in it; or the index of
    several, as several ranks or Hugging Face's tools write them.

    ::

        with ferry.safe_open("model.safetensors") as file:
            for name in file.keys():
                tensor = file.get_tensor(name)
            rows = file.get_slice("embedding.weight")[:1000]
    """

    def __init__(
        self,
        filename: PathLike,
        framework: str = "pt",
        device: str | torch.device = "cpu",
        *,
        verify: bool = True,
    ) -> None:
        from tensorferry._checkpoint.location import placer
        from tensorferry._checkpoint.opened import Opened
        from tensorferry._checkpoint.recognise import recognise

        if framework not in ("pt", "torch", "pytorch"):
            raise InvalidInput(f"framework is 'pt', not {framework!r}")
        self._place = placer(device)
        self._opened: Opened | OpenedIndex
        if recognise(filename) == "index":
            from tensorferry._checkpoint.ranks.opened import OpenedIndex

            self._opened = OpenedIndex(os.fspath(filename), verify=verify)
        else:
            self._opened = Opened(filename, verify=verify)

    def keys(self) -> list[str]:
        """The names of all tensors; of an index, without those that each rank has for itself."""
        return sorted(self._opened.names())

    def offset_keys(self) -> list[str]:
        """The same, in the order of the file."""
        return self._opened.names()

    def metadata(self) -> dict[str, str]:
        """The texts beside the tensors."""
        return self._opened.metadata

    def get_tensor(self, name: str) -> torch.Tensor:
        """One tensor, verified."""
        from tensorferry._kinds import without_modes

        with without_modes():
            tensor = self._opened.tensor(name)
        return self._place(_as_mode(tensor), "cpu")

    def get_slice(self, name: str) -> Slice:
        """One tensor, to be indexed before it is read."""
        return Slice(self, name)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._opened.forget()


class Slice:
    """A tensor of a file; indexing reads what the index needs, unverified."""

    def __init__(self, file: safe_open, name: str) -> None:
        from tensorferry._kinds import without_modes

        self._place = file._place
        self._dtype = file._opened.stored_dtype(name)
        with without_modes():
            self._parts, self._dim = file._opened.parts(name)

    def get_shape(self) -> list[int]:
        """Its shape."""
        shape = list(self._parts[0].shape)
        if len(self._parts) > 1:
            shape[self._dim] = sum(part.shape[self._dim] for part in self._parts)
        return shape

    def get_dtype(self) -> str:
        """Its dtype, by the name that the file has for it."""
        return self._dtype

    def __getitem__(self, index: Any) -> torch.Tensor:
        from tensorferry._checkpoint.slices import indexed
        from tensorferry._kinds import without_modes

        with without_modes():
            found = indexed(self._parts, self._dim, index).clone()
        return self._place(_as_mode(found), "cpu")


def _as_mode(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, or one without data in ``FakeTensorMode``, as ``load`` gives them there."""
    import torch

    from tensorferry._kinds import fakes

    return torch.empty(tensor.shape, dtype=tensor.dtype) if fakes() else tensor
