"""Who chooses tools: a dictionary for each file system, which learns from every operation.

::

    path ──Mounts──► file system ──► Dictionary ──► Chosen: the tool
                        Kept ───────────┘ ▲            │ seconds
                                          └────────────┘
"""

from __future__ import annotations

import atexit
import json
import os
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from tensorferry import _lib
from tensorferry._checkpoint.added import AddedTool
from tensorferry._checkpoint.kept import Kept
from tensorferry._checkpoint.mounts import MOUNTS, Mount
from tensorferry._checkpoint.remembered import Remembered, Stamp
from tensorferry._checkpoint.tools import AnyTool, tool_named
from tensorferry._errors import InvalidInput, NotFound

KEPT_EVERY = 64
"""Operations after which what was learned is written down."""

OURS = ("direct", "buffered", "mapped", "torch", "numpy")
"""The tools to choose from, unless the user names others."""


class Chooser:
    """Chooses among ``tools``, as a dictionary decides that ``make`` makes for each file system.

    What is learned is kept between processes by the name ``kept_as``, if there is one."""

    def __init__(
        self,
        make: Callable[[], _lib.Dictionary],
        tools: Sequence[AnyTool],
        kept_as: str | None = None,
    ) -> None:
        make()  # Mistakes in the arguments show now.
        self._make = make
        self._kept = None if kept_as is None else Kept(kept_as)
        self.tools = {tool.name: tool for tool in tools}
        self._readers: dict[str, list[str]] = {}
        for tool in tools:
            self._readers.setdefault(tool.format, []).append(tool.name)
        self.by_mount: dict[str, _lib.Dictionary] = {}
        self.remembered = Remembered()
        self._latest: str | None = None
        self._lock = threading.RLock()
        self._operations = 0
        self._warm: dict[str, bool] = {}
        if self._kept is not None:
            _leaving.add(self)

    def to_save(self, path: str, size: int, *, durable: bool, among: Sequence[str]) -> Chosen:
        """The tool for an object of this size, among those that can save it."""
        mount, dictionary = self._at(path)
        # It will be read as was read there last.
        durable, warm = durable and not mount.in_memory, self._warm.get(mount.name, mount.in_memory)
        name = dictionary.choose_write(size, durable, warm, among)
        return Chosen(self.tools[name], size, "durable" if durable else "relaxed", dictionary, self)

    def to_load(
        self, path: str, stamp: Stamp, size: int, written_with: str, *, warm: bool
    ) -> Chosen | None:
        """The tool for a file, if one of these reads what wrote it."""
        among = self.readers(written_with)
        if not among:
            return None
        mount, dictionary = self._at(path, stamp[0])
        self._warm[mount.name] = warm = warm or mount.in_memory
        name = dictionary.choose_read(size, warm, written_with, among)
        return Chosen(self.tools[name], size, "warm" if warm else "cold", dictionary, self)

    def readers(self, tool: str) -> list[str]:
        """The tools that read what another one writes."""
        known = self.tools.get(tool)
        return self._readers.get((known or tool_named(tool)).format, [])

    @property
    def added(self) -> list[AddedTool]:
        """The tools that are the user's."""
        return [tool for tool in self.tools.values() if isinstance(tool, AddedTool)]

    def of(self, path: str | None) -> _lib.Dictionary | None:
        """The dictionary of the file system that a path lies on, or of the one used last."""
        if path is not None:
            return self._at(path)[1]
        return None if self._latest is None else self.by_mount.get(self._latest)

    def count(self) -> None:
        """Counts an operation; what was learned is written down now and then."""
        self._operations += 1
        if self._operations % KEPT_EVERY == 0:
            self.keep()

    def keep(self) -> None:
        """Writes down what was learned."""
        if self._kept is not None and self._operations:
            for mount, dictionary in list(self.by_mount.items()):
                self._kept.write(mount, dictionary)

    def _at(self, path: str, device: int | None = None) -> tuple[Mount, _lib.Dictionary]:
        """The file system that a path lies on, and its dictionary."""
        mount = MOUNTS.of(path, device)
        self._latest = mount.name
        with self._lock:
            found = self.by_mount.get(mount.name)
            if found is None:
                kept = None if self._kept is None else self._kept.read(mount.name)
                found = self.by_mount[mount.name] = kept or self._make()
            return mount, found


@dataclass(slots=True)
class Chosen:
    """A tool for one operation, which tells the dictionary how long that took."""

    tool: AnyTool
    size: int
    situation: str
    dictionary: _lib.Dictionary
    chooser: Chooser

    def took(self, seconds: float, cpu_seconds: float = 0.0) -> None:
        """Says how long the operation took."""
        self.dictionary.record(self.situation, self.tool.name, self.size, seconds, cpu_seconds)
        self.chooser.count()


class Clock:
    """Seconds, and processor seconds of all threads, since it was made."""

    def __init__(self) -> None:
        self._cpu = time.process_time()
        self._began = time.perf_counter()

    def read(self) -> tuple[float, float]:
        """Both."""
        return time.perf_counter() - self._began, max(0.0, time.process_time() - self._cpu)


def maker(
    tool: str,
    goal: str,
    dictionary: str | os.PathLike[str] | Mapping[str, Any] | None,
    explore: str,
    update_every: int | None,
) -> Callable[[], _lib.Dictionary]:
    """How a dictionary is made: of one tool, the user's own, or one that learns."""
    if tool != "auto":
        return lambda: _lib.Dictionary.one(tool)
    if dictionary is None:
        return lambda: _lib.Dictionary.aware(explore, goal, update_every)
    text = json.dumps(dictionary) if isinstance(dictionary, Mapping) else _text_of(dictionary)
    return lambda: _lib.Dictionary.own(text, goal)


def _text_of(path: str | os.PathLike[str]) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError as error:
        raise NotFound(f"there is no dictionary (file: {os.fspath(path)})") from error
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"can't read the dictionary: {error}") from error


def kept_name(explore: str, goal: str, update_every: int | None, added: Sequence[str] = ()) -> str:
    """Dictionaries that start anew at other times, or know other tools, know other things."""
    learns = "rule" if explore == "bandit" else explore
    return "-".join([learns, goal.replace("+", ""), str(update_every), *sorted(added)])


@cache
def default(tool: str, goal: str) -> Chooser:
    """What ``ferry.save`` and ``ferry.load`` use: our own format only, unless a tool is named, so
    that every tool of the ecosystem reads what they save."""
    if tool != "auto":
        return Chooser(maker(tool, goal, None, "rule", None), [tool_named(name) for name in OURS])
    ours = [tool_named("direct"), tool_named("buffered")]
    return Chooser(maker("auto", goal, None, "rule", None), ours, kept_name("rule", goal, None))


@cache
def behind() -> Chooser:
    """What ``ferry.save_async`` uses. A save behind its caller steps aside for others, so what it
    takes tells nothing of saves that are waited for."""
    ours = [tool_named("direct"), tool_named("buffered")]
    kept_as = f"behind-{kept_name('rule', 'w', None)}"
    return Chooser(maker("auto", "w", None, "rule", None), ours, kept_as)


_leaving: weakref.WeakSet[Chooser] = weakref.WeakSet()


@atexit.register
def _keep_all() -> None:
    for each in _leaving:
        each.keep()
