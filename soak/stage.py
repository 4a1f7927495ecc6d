"""What one scenario has: a place, a source of chance, processes, disks, and a judge at its end."""

from __future__ import annotations

import os
import random
import shutil
import signal
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from soak import session
from soak.child import Child, watch
from soak.disk import Disk
from soak.failure import Growth, Leftover, Wrong
from soak.group import Group

SHARED = Path("/dev/shm")
PAUSE_SECONDS_MAX = 4.0
MEMORY_GROWTH_MAX = 48 << 20
"""Bytes between the middle and the end of many equal rounds; allocators are not exact."""
COUNT_GROWTH_MAX = 4
"""Descriptors or threads, likewise."""


class Stage:
    """A scenario's own; leaving it ends everything, and judges what is left."""

    def __init__(self, place: Path, chance: random.Random) -> None:
        self.place = place
        self.chance = chance
        self.seed = chance.randrange(1 << 30)
        self._home = place / "home"
        self._children: list[Child] = []
        self._ends = ExitStack()
        self._shared = _shared_names()
        self._made = 0
        self.saw: Counter[str] = Counter()

    def __enter__(self) -> Self:
        self._home.mkdir(parents=True)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.saw["kills"] += sum(child.was_killed for child in self._children)
        try:
            if kind is None:
                self._nobody_is_left()
        finally:
            for child in self._children:
                child.close()
            self._ends.close()
            shutil.rmtree(self.place, ignore_errors=True)

    # -- what it has --

    def start(
        self, work: Callable[..., Any], group: Group | None = None, **arguments: Any
    ) -> Child:
        """A process that does ``work(tell, **arguments)``."""
        return Child(work, arguments, self._home, self._children, group)

    def run(self, work: Callable[..., Any], *expected: str, **arguments: Any) -> Any:
        """The result of a process."""
        return self.start(work, **arguments).result(*expected)

    def disk(self, size: int) -> Disk:
        """A small file system, of either kind."""
        disk = Disk(self._fresh("disk"), size, self.chance.choice(("tmpfs", "ext4")))
        self._ends.callback(disk.close)
        return disk

    def group(self, limit: int) -> Group:
        """A bound on memory."""
        group = Group(f"soak-{os.getpid()}-{self._fresh('group').name}", limit)
        self._ends.callback(group.close)
        return group

    def directory(self) -> Path:
        """An empty one."""
        path = self._fresh("directory")
        path.mkdir()
        return path

    def _fresh(self, noun: str) -> Path:
        self._made += 1
        return self.place / f"{noun}-{self._made}"

    # -- what it does --

    def watch(self, seconds: float) -> None:
        """Lets the processes go on for so long."""
        watch(self._children, seconds)

    def moment(self, child: Child, word: str) -> None:
        """Lets them go on for a part of what passes between two times that a child says a word;
        short parts are as likely as long ones."""
        self.watch(child.pace(word) * self.chance.random() ** 2 * 1.5)

    def pause(self, children: Sequence[Child]) -> None:
        """Stops one of them for a while."""
        child = self.chance.choice(children)
        self.saw["pauses"] += 1
        child.pause(self.chance.random() ** 3 * PAUSE_SECONDS_MAX)

    def kill_one_of_those_started_by(self, child: Child) -> bool:
        """Kills a process that a child has started; False if there is none."""
        started = session.members(child.pid)
        if started:
            os.kill(self.chance.choice(started), signal.SIGKILL)
        return bool(started)

    def needs_more(self, limit: int, work: Callable[..., Any], **arguments: Any) -> None:
        """Judges that a container of this size is too small for work, which the kernel ends."""
        group = self.group(limit)
        child = self.start(work, group, **arguments)
        child.wait_for_or_end("ended")
        if not group.kills():
            raise Wrong(f"{child.name} has room in {limit} bytes: the scenario shows nothing")

    def steady(self, held: Sequence[dict[str, int]]) -> None:
        """Judges what a process has held after each of many equal rounds: no more at the end than
        in the middle."""
        middle, end = held[len(held) // 3 : 2 * len(held) // 3], held[2 * len(held) // 3 :]
        for name, most in (
            ("memory", MEMORY_GROWTH_MAX),
            ("files", COUNT_GROWTH_MAX),
            ("threads", COUNT_GROWTH_MAX),
        ):
            before, after = (max(each[name] for each in part) for part in (middle, end))
            if after - before > most:
                raise Growth(f"{name}: {before} in the middle, {after} at the end: {held}")

    # -- what it judges --

    def _nobody_is_left(self) -> None:
        for child in self._children:
            if not child.is_alive and (left := session.wait_until_gone(child.pid)):
                raise Leftover(f"processes of {child.name} live on: {left}")
        if left := sorted(_shared_names() - self._shared):
            raise Leftover(f"in {SHARED}: {left}")

    def transcript(self) -> str:
        """What all processes said."""
        return "\n".join(child.transcript() for child in self._children)


def _shared_names() -> set[str]:
    return set(os.listdir(SHARED)) if SHARED.exists() else set()


def only(place: Path, names: set[str]) -> None:
    """Judges that a directory holds nothing else."""
    if extra := sorted(set(os.listdir(place)) - names):
        raise Leftover(f"in {place}: {extra}")
