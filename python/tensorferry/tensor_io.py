"""A dictionary that learns the fastest tool.

A *tool* is one way between an object and a file: ``direct``, ``buffered``, ``mapped`` (reads only),
``torch`` and ``numpy``. Which is the fastest depends on the size, the disk, what is cached and what
else the machine does. ``TensorIO`` measures while it works, and chooses::

    io = ferry.TensorIO(goal="w+r")
    io.save(features, "scratch/0", durable=False)
    features = io.load("scratch/0")
    print(io.report())

What was learned is kept for each file system, so that the next run starts with it.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import IO, TYPE_CHECKING, Any, Literal, TypeAlias

from tensorferry import _lib
from tensorferry._errors import Error, InvalidInput, NotFound
from tensorferry._numbers import whole

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

    from tensorferry._checkpoint.location import MapLocation
    from tensorferry._checkpoint.report import SaveReport
    from tensorferry._checkpoint.tools import LoadOptions, SaveOptions, Tool
    from tensorferry._structure import Flat, Ties

__all__ = ["Report", "TensorIO"]

PathLike: TypeAlias = str | os.PathLike[str]
Explore: TypeAlias = Literal["bandit", "paper"]
Stamp: TypeAlias = tuple[int, int, int, int]
"""Device, number, time of change and length: what changes when a file is replaced."""

REMEMBERED_MAX = 10_000
"""Files of which is remembered how large the object in them is."""

KEPT_EVERY = 64
"""Operations after which what was learned is written down."""


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

    ``explore``: ``"bandit"`` tries tools when it may pay and notices when they change, ``"paper"``
    tries each once for each size, as Fastensor does. ``update_every``: after so many operations (or
    at each ``epoch()``, with ``"epoch"``) all is explored anew.

    ``persist``: whether what is learned outlives the process, in ``$XDG_CACHE_HOME/tensorferry``.
    ``tools``: those to choose from.
    """

    def __init__(
        self,
        tool: str = "auto",
        goal: str = "w",
        dictionary: PathLike | Mapping[str, Any] | None = None,
        explore: Explore = "bandit",
        update_every: int | Literal["epoch"] | None = None,
        *,
        persist: bool = True,
        tools: Sequence[str] = ("direct", "buffered", "mapped", "torch", "numpy"),
    ) -> None:
        # Here and not in each call: a small file is loaded in less time than some imports take.
        from tensorferry._checkpoint.tools import tool_named

        if tool != "auto" and dictionary is not None:
            raise InvalidInput("give a tool or a dictionary, not both")
        self._each_epoch = isinstance(update_every, str) and update_every == "epoch"
        if isinstance(update_every, str) and not self._each_epoch:
            raise InvalidInput(f"update_every is a number, 'epoch' or None, not {update_every!r}")
        every = None
        if update_every is not None and not isinstance(update_every, str):
            every = whole("update_every", update_every)
        self._make = _maker(tool, goal, dictionary, explore, every)
        self._make()  # Mistakes in the arguments show now.
        keeps = persist and tool == "auto" and dictionary is None
        # Dictionaries that start anew at other times know other things.
        self._kept_as = f"{explore}-{goal}-{every}".replace("+", "") if keeps else None
        self._tool_named: Callable[[str], Tool] = tool_named
        self._tools = tuple(tools)
        self._readers: dict[str, list[str]] = {}
        for each in self._tools:
            self._readers.setdefault(tool_named(each).format, []).append(each)
        self._by_mount: dict[str, _lib.Dictionary] = {}
        self._mounts: dict[int, str] = {}
        self._generation = 0
        self._latest: str | None = None
        self._remembered: OrderedDict[Stamp, tuple[int, str]] = OrderedDict()
        self._lock = threading.RLock()
        self._operations = 0
        self._warm = False
        if self._kept_as is not None:
            _leaving.add(self)

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
        from tensorferry._structure import flatten

        name = os.fspath(path)
        flat = flatten(obj, ties)
        eligible = [tool for tool in self._tools if not self._tool_named(tool).refuses(flat)]
        report = self._save(obj, flat, name, SaveOptions(durable, checksum, ties=ties), eligible)
        self._remember(name, flat.nbytes, report.tool)
        return report

    def save_core(self, obj: object, flat: Flat, path: str, options: SaveOptions) -> SaveReport:
        """The same in our own format: that of the files of several ranks."""
        from tensorferry._checkpoint.tools import CoreTool

        core = [tool for tool in self._tools if isinstance(self._tool_named(tool), CoreTool)]
        return self._save(obj, flat, path, options, core)

    def _save(
        self, obj: object, flat: Flat, path: str, options: SaveOptions, eligible: list[str]
    ) -> SaveReport:
        from tensorferry._checkpoint.run import save_with

        dictionary = self._dictionary(path)
        chosen = dictionary.choose_write(flat.nbytes, options.durable, self._warm, eligible)
        clock = _Clock()
        report = save_with(self._tool_named(chosen), obj, flat, path, options)
        situation = "durable" if options.durable else "relaxed"
        self._learn(dictionary, situation, chosen, flat.nbytes, clock)
        return report

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
        return self.load_with(os.fspath(path), options)

    def load_with(self, path: str, options: LoadOptions) -> Any:
        """The same, with options made before."""
        # Before anything is read: looking into a small file makes it warm.
        glance = _lib.glance(path)
        if glance is None:
            return _load_as_found(path, options)
        warm, stamp = glance
        known = self._remembered.get(stamp) or _look(path)
        if known is None:
            return _load_as_found(path, options)
        size, written_with = known
        eligible = self._readers.get(self._tool_named(written_with).format)
        if not eligible:
            return _load_as_found(path, options)
        dictionary = self._dictionary(path, stamp[0])
        chosen = dictionary.choose_read(size, warm, written_with, eligible)
        clock = _Clock()
        loaded = self._tool_named(chosen).load(path, options)
        if options.reads_all:
            self._learn(dictionary, "warm" if warm else "cold", chosen, size, clock)
            self._warm = warm
        return loaded

    def dictionary(self, path: PathLike | None = None) -> dict[str, Any]:
        """``WDic``, ``RDic`` and ``WRDic`` of the file system that ``path`` lies on (the one used
        last, by default): for each size the seconds of each tool, and the best."""
        chosen = self._of(path)
        return {} if chosen is None else dict(json.loads(chosen.tables()))

    def report(self, path: PathLike | None = None) -> Report:
        """For each situation and class of sizes: seconds by tool, the best tool, the share of the
        oracle that was reached (estimated), bandwidth, processor seconds, and IOef, the bandwidth
        for each processor kept busy. Processor seconds are those of the whole process: what other
        threads compute meanwhile is counted too."""
        chosen = self._of(path)
        if chosen is None:
            return Report([], "nothing was saved or loaded yet")
        data, text = chosen.report()
        return Report(json.loads(data)["rows"], text)

    def flush(self) -> None:
        """Forgets what was learned."""
        for dictionary in list(self._by_mount.values()):
            dictionary.flush()

    def epoch(self) -> None:
        """Says that an epoch is over: with ``update_every="epoch"``, all is explored anew."""
        if self._each_epoch:
            self.flush()

    def broadcast(self, src: int = 0, group: ProcessGroup | None = None) -> None:
        """Gives what rank ``src`` has learned to all ranks, through ``torch.distributed``."""
        import torch.distributed as dist

        if not dist.is_initialized():
            raise InvalidInput("broadcast needs torch.distributed; call init_process_group first")
        kept = {mount: each.to_json() for mount, each in self._by_mount.items()}
        box = [kept if dist.get_rank() == src else None]
        dist.broadcast_object_list(box, src=src, group=group)
        received = box[0]
        if received is not None:
            self._by_mount = {
                mount: _lib.Dictionary.from_json(text) for mount, text in received.items()
            }

    def _of(self, path: PathLike | None) -> _lib.Dictionary | None:
        if path is not None:
            return self._dictionary(os.fspath(path))
        return None if self._latest is None else self._by_mount.get(self._latest)

    def _dictionary(self, path: str, device: int | None = None) -> _lib.Dictionary:
        """That of the file system; ``device`` is the number of the one that the file lies on."""
        if device is None:
            mount = mount_of(path)
        else:
            # The number of a device that is gone may be another one's.
            generation = _mounts.generation()
            if self._generation != generation:
                self._generation = generation
                self._mounts.clear()
            known = self._mounts.get(device)
            mount = self._mounts[device] = mount_of(path) if known is None else known
        self._latest = mount
        with self._lock:
            found = self._by_mount.get(mount)
            if found is None:
                found = self._by_mount[mount] = self._kept(mount) or self._make()
            return found

    def _learn(
        self, dictionary: _lib.Dictionary, situation: str, tool: str, size: int, clock: _Clock
    ) -> None:
        seconds, cpu = clock.read()
        dictionary.record(situation, tool, size, seconds, cpu)
        self._operations += 1
        if self._operations % KEPT_EVERY == 0:
            self._keep()

    def _remember(self, path: str, nbytes: int, tool: str) -> None:
        try:
            stat = os.stat(path)
        except OSError:
            # It was saved, and somebody has moved it already.
            return
        stamp = (stat.st_dev, stat.st_ino, stat.st_mtime_ns, stat.st_size)
        with self._lock:
            self._remembered[stamp] = (nbytes, tool)
            while len(self._remembered) > REMEMBERED_MAX:
                self._remembered.popitem(last=False)

    def _kept(self, mount: str) -> _lib.Dictionary | None:
        if self._kept_as is None:
            return None
        try:
            with open(_kept_path(mount, self._kept_as), encoding="utf-8") as file:
                return _lib.Dictionary.from_json(file.read())
        except (OSError, ValueError, Error):
            # What can't be read is learned again.
            return None

    def _keep(self) -> None:
        """Writes down what was learned. That it can't is no reason to fail a save."""
        if self._kept_as is None:
            return
        for mount, dictionary in list(self._by_mount.items()):
            path = _kept_path(mount, self._kept_as)
            draft = f"{path}.{os.getpid()}-{threading.get_ident()}"
            try:
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(draft, "w", encoding="utf-8") as file:
                    file.write(dictionary.to_json())
                os.replace(draft, path)
            except OSError:
                return


class _Clock:
    """Seconds, and processor seconds of all threads, since it was made."""

    def __init__(self) -> None:
        self.cpu = time.process_time()
        self.began = time.perf_counter()

    def read(self) -> tuple[float, float]:
        return time.perf_counter() - self.began, max(0.0, time.process_time() - self.cpu)


def _maker(
    tool: str,
    goal: str,
    dictionary: PathLike | Mapping[str, Any] | None,
    explore: str,
    update_every: int | None,
) -> Any:
    if tool != "auto":
        return lambda: _lib.Dictionary.one(tool)
    if dictionary is None:
        return lambda: _lib.Dictionary.aware(explore, goal, update_every)
    text = json.dumps(dictionary) if isinstance(dictionary, Mapping) else _text_of(dictionary)
    return lambda: _lib.Dictionary.own(text, goal)


def _text_of(path: PathLike) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError as error:
        raise NotFound(f"there is no dictionary (file: {os.fspath(path)})") from error
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"can't read the dictionary: {error}") from error


def _load_as_found(path: str, options: LoadOptions) -> Any:
    """Loads what no tool of ours chooses among, or says why it can't."""
    from tensorferry._checkpoint import run

    return run.load(path, options)


def _look(path: str) -> tuple[int, str] | None:
    """Size of the object in a file that this process has not saved, and the tool that wrote it;
    nothing of an index of several files."""
    from tensorferry._checkpoint.recognise import recognise

    found = recognise(path)
    if found == "index":
        return None
    if found != "safetensors":
        return os.path.getsize(path), found
    opened = _lib.Checkpoint(path, tool="buffered", verify=False)
    tool = opened.written_with
    return opened.nbytes, tool if tool in ("direct", "buffered") else "direct"


def mount_of(path: str) -> str:
    """The file system that a path lies on: what is mounted, and where."""
    return _mount_of_directory(os.path.abspath(os.path.dirname(path)), _mounts.generation())


@lru_cache(maxsize=1024)
def _mount_of_directory(directory: str, generation: int) -> str:
    directory = os.path.realpath(directory)
    best = ("", "/")
    for source, point in _mounts.table():
        inside = directory == point or directory.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best[1]):
            best = (source, point)
    return f"{best[0]} on {best[1]}"


class _Mounts:
    """What is mounted where; the kernel says when that has changed."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._process = 0
        self._generation = 0
        self._known: list[tuple[str, str]] = []
        self._file: IO[str] | None = None
        self._changed = select.poll()

    def generation(self) -> int:
        """A number that is another one once something was mounted or unmounted."""
        with self._lock:
            if self._process != os.getpid():
                # A child shares the parent's descriptor, and the kernel tells each change once.
                self._open()
            elif self._file is None or not self._changed.poll(0):
                return self._generation
            self._read()
            return self._generation

    def table(self) -> list[tuple[str, str]]:
        """Sources and mount points, as they were when the generation was asked for."""
        return self._known

    def _open(self) -> None:
        self._process = os.getpid()
        self._changed = select.poll()
        try:
            self._file = open("/proc/self/mounts", encoding="utf-8", errors="replace")  # noqa: SIM115
        except OSError:
            self._file = None
            return
        self._changed.register(self._file, select.POLLPRI | select.POLLERR)

    def _read(self) -> None:
        self._generation += 1
        if self._file is None:
            return
        self._file.seek(0)
        fields = [line.split(" ") for line in self._file]
        self._known = [
            (f"{field[0]} ({field[2]})", field[1].replace("\\040", " ")) for field in fields
        ]


_mounts = _Mounts()


def _kept_path(mount: str, kept_as: str) -> str:
    import hashlib

    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    digest = hashlib.sha256(mount.encode(errors="replace")).hexdigest()[:16]
    return os.path.join(home, "tensorferry", "tools", f"{digest}-{kept_as}.json")


_leaving: weakref.WeakSet[TensorIO] = weakref.WeakSet()


@atexit.register
def _keep_all() -> None:
    for each in _leaving:
        if each._operations:
            each._keep()


@cache
def default(tool: str, goal: str) -> TensorIO:
    """What ``ferry.save`` and ``ferry.load`` use: our own format only, unless a tool is named, so
    that every tool of the ecosystem reads what they save."""
    if tool == "auto":
        return TensorIO("auto", goal, tools=("direct", "buffered"))
    return TensorIO(tool, goal, persist=False)
