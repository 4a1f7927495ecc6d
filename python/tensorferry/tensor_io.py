"""A dictionary that learns the fastest tool.

A *tool* is one way between an object and a file: ``direct``, ``buffered``, ``mapped`` (reads only),
``torch`` and ``numpy``, or one of your own (``Tool``). Which is the fastest depends on the size,
the file system, and on whether a write must be durable or a file is cached. ``TensorIO`` knows a
rule, measures while it works, and chooses::

    io = ferry.TensorIO(goal="w+r")
    io.save(features, "scratch/0", durable=False)
    features = io.load("scratch/0")
    print(io.report())

What was learned is kept for each file system, so that the next run starts with it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from tensorferry import _lib
from tensorferry._errors import InvalidInput
from tensorferry._numbers import whole
from tensorferry._tool import Tool

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

    from tensorferry._checkpoint.location import MapLocation
    from tensorferry._checkpoint.report import SaveReport
    from tensorferry._checkpoint.tools import AnyTool
    from tensorferry._structure import Ties

__all__ = ["Report", "TensorIO", "Tool"]

PathLike: TypeAlias = str | os.PathLike[str]
Explore: TypeAlias = Literal["rule", "paper", "bandit"]


@dataclass(frozen=True, slots=True)
class Report:
    """What was done, for each situation and class of sizes; prints as a table."""

    rows: list[dict[str, Any]]
    text: str

    def __str__(self) -> str:
        return self.text


class TensorIO:
    """Saves and loads with the tool that is fastest here.

    ``tool``: one of the tools for everything, or ``"auto"``. ``goal``: what is to be fast, writing
    (``"w"``), reading (``"r"``) or both (``"w+r"``).

    ``dictionary``: your own choice, a JSON file or data, ``{"4096": "buffered", "1048576":
    "direct"}`` or what ``dictionary()`` gives; sizes that are not in it use the nearest.

    ``explore``: ``"rule"`` knows which tool is the fastest in which situation, until what it sees
    says otherwise, and tries others where that costs next to nothing (``"bandit"`` is another name
    for it); ``"paper"`` tries each once for each size, as Fastensor does. ``update_every``: after
    so many operations (or at each ``epoch()``, with ``"epoch"``) all is learned anew.

    ``persist``: whether what is learned outlives the process, in ``$XDG_CACHE_HOME/tensorferry``.
    ``tools``: those to choose from, by name, and tools of your own.
    """

    def __init__(
        self,
        tool: str = "auto",
        goal: str = "w",
        dictionary: PathLike | Mapping[str, Any] | None = None,
        explore: Explore = "rule",
        update_every: int | Literal["epoch"] | None = None,
        *,
        persist: bool = True,
        tools: Sequence[str | Tool] = ("direct", "buffered", "mapped", "torch", "numpy"),
    ) -> None:
        # Here and not in each call: a small file is loaded in less time than some imports take.
        from tensorferry._checkpoint import run
        from tensorferry._checkpoint.chooser import Chooser, kept_name, maker

        if tool != "auto" and dictionary is not None:
            raise InvalidInput("give a tool or a dictionary, not both")
        self._each_epoch = isinstance(update_every, str) and update_every == "epoch"
        every = None if self._each_epoch else _operations(update_every)
        judged = _judged(tools)
        make = maker(tool, goal, dictionary, explore, every)
        keeps = persist and tool == "auto" and dictionary is None
        theirs = [each.name for each in tools if isinstance(each, Tool)]
        kept_as = kept_name(explore, goal, every, theirs) if keeps else None
        self._run = run
        self._chooser = Chooser(make, judged, kept_as)

    def save(
        self,
        obj: object,
        path: PathLike,
        *,
        durable: bool = True,
        checksum: bool = True,
        ties: Ties = "names",
    ) -> SaveReport:
        """Saves an object, as ``ferry.save`` does, with the tool that the dictionary chooses."""
        from tensorferry._checkpoint.tools import SaveOptions

        options = SaveOptions(durable, checksum, ties=ties)
        return self._run.save(self._chooser, obj, os.fspath(path), options)

    def load(
        self,
        path: PathLike,
        *,
        map_location: MapLocation = None,
        keys: Sequence[str] | None = None,
        mmap: bool | None = None,
        verify: bool = True,
    ) -> Any:
        """Loads an object, as ``ferry.load`` does, with the tool that the dictionary chooses."""
        from tensorferry._checkpoint.tools import LoadOptions

        options = LoadOptions(keys, bool(mmap), verify, map_location)
        return self._run.load(self._chooser, os.fspath(path), options)

    def dictionary(self, path: PathLike | None = None) -> dict[str, Any]:
        """``WDic``, ``RDic`` and ``WRDic`` of the file system that ``path`` lies on (the one used
        last, by default): for each size the seconds of each tool, and the best."""
        found = self._chooser.of(None if path is None else os.fspath(path))
        return {} if found is None else dict(json.loads(found.tables()))

    def report(self, path: PathLike | None = None) -> Report:
        """For each situation and class of sizes: seconds by tool, the best tool, the share of the
        oracle that was reached (estimated), bandwidth, processor seconds, and IOef, the bandwidth
        for each processor kept busy. Processor seconds are those of the whole process: what other
        threads compute meanwhile is counted too."""
        found = self._chooser.of(None if path is None else os.fspath(path))
        if found is None:
            return Report([], "nothing was saved or loaded yet")
        data, text = found.report()
        return Report(json.loads(data)["rows"], text)

    def flush(self) -> None:
        """Forgets what was learned."""
        for dictionary in list(self._chooser.by_mount.values()):
            dictionary.flush()

    def epoch(self) -> None:
        """Says that an epoch is over: with ``update_every="epoch"``, all is learned anew."""
        if self._each_epoch:
            self.flush()

    def broadcast(self, src: int = 0, group: ProcessGroup | None = None) -> None:
        """Gives what rank ``src`` has learned to all ranks, through ``torch.distributed``."""
        import torch.distributed as dist

        if not dist.is_initialized():
            raise InvalidInput("broadcast needs torch.distributed; call init_process_group first")
        kept = {mount: each.to_json() for mount, each in self._chooser.by_mount.items()}
        box = [kept if dist.get_rank() == src else None]
        dist.broadcast_object_list(box, src=src, group=group)
        received = box[0]
        if received is not None:
            self._chooser.by_mount = {
                mount: _lib.Dictionary.from_json(text) for mount, text in received.items()
            }


def _operations(update_every: object) -> int | None:
    if isinstance(update_every, str):
        raise InvalidInput(f"update_every is a number, 'epoch' or None, not {update_every!r}")
    return None if update_every is None else whole("update_every", update_every)


def _judged(tools: Sequence[str | Tool]) -> list[AnyTool]:
    """The tools to choose from, each once."""
    from tensorferry._checkpoint.added import AddedTool
    from tensorferry._checkpoint.tools import tool_named

    judged: dict[str, AnyTool] = {}
    for each in tools:
        if isinstance(each, str):
            judged[each] = tool_named(each)
        elif isinstance(each, Tool):
            added = AddedTool(each)
            if added.name in judged:
                raise InvalidInput(f"two tools have the name {added.name!r}; rename one")
            judged[added.name] = added
        else:
            what = f"{type(each).__name__}: {each!r}"
            raise InvalidInput(f"tools are names, or objects of classes of ferry.Tool, not {what}")
    return list(judged.values())
