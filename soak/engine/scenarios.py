"""Every byte that was waited for is there, whatever happens around the engine."""

from __future__ import annotations

from typing import Any

from soak.child import Child
from soak.engine import work
from soak.failure import Leftover, Wrong
from soak.stage import Stage, only

MIB = 1 << 20


def options(stage: Stage) -> dict[str, Any]:
    """Of an engine and a file."""
    return {
        "backend": stage.chance.choice(("auto", "ring", "threads")),
        "direct": stage.chance.random() < 0.7,
    }


def _file(stage: Stage, most: int) -> dict[str, Any]:
    length = int(most * (0.05 + 0.95 * stage.chance.random()))
    return {"path": str(stage.directory() / "file"), "seed": stage.seed, "length": length}


def killed(stage: Stage) -> None:
    """Killed in the middle of writes, and gone on with."""
    about, first = _file(stage, 12 * MIB), 0
    for _ in range(stage.chance.randint(1, 3)):
        child = stage.start(work.write_rounds, first=first, **about, **options(stage))
        child.wait_for("writing", stage.chance.randint(1, 4))
        stage.moment(child, "writing")
        child.kill()
        first = _look(stage, child, about)
        # A round that was cut off is repeated as a whole.


def _look(stage: Stage, child: Child, about: dict[str, Any]) -> int:
    begun: int = child.last("writing") + 1
    written = begun if child.last("written") == child.last("writing") else begun - 1
    stage.saw["kills in the middle"] += written < begun
    stage.run(work.look, written=written, begun=begun, **about)
    return written


def paused(stage: Stage) -> None:
    """Stopped for seconds, several processes on files of their own; nothing grows."""
    children = [
        stage.start(work.write_rounds, rounds=24, **_file(stage, 8 * MIB), **options(stage))
        for _ in range(stage.chance.randint(1, 3))
    ]
    for times in (4, 10, 15):
        for child in children:
            child.wait_for("held", times)
        stage.pause(children)
    for child in children:
        stage.steady(child.result())


def full_disk(stage: Stage) -> None:
    """Some writes find no room, at moments that change."""
    disk = stage.disk(16 * MIB)
    length = int(10 * MIB * (0.1 + 0.9 * stage.chance.random()))
    path = str(disk.place / "file")
    child = stage.start(
        work.write_until_there_is_room,
        path=path,
        seed=stage.seed,
        length=length,
        **options(stage),
    )
    for _ in range(stage.chance.randint(1, 4)):
        disk.fill(int(length * stage.chance.random()))
        child.wait_for("round", child.count("round") + stage.chance.randint(1, 3))
        disk.drain()
        stage.moment(child, "round")
    (disk.place.parent / "enough").touch()
    stage.saw["refusals"] += child.result()
    if disk.names() != ["file"]:
        raise Leftover(f"on the disk: {disk.names()}")


def file_size_limit(stage: Stage) -> None:
    """Half of the file is not allowed."""
    counts = stage.run(work.write_beyond_a_limit, **_file(stage, 24 * MIB), **options(stage))
    if not counts["refused"]:
        raise Wrong(f"nothing was refused: {counts}")
    stage.saw["refusals"] += counts["refused"]


def little_memory(stage: Stage) -> None:
    """A container with room for the file in memory, twice, and what is under way."""
    about = _file(stage, 24 * MIB)
    group = stage.group(8 * 24 * MIB)
    stage.start(work.write_rounds, group, rounds=8, **about, **options(stage)).result()
    only((stage.place / about["path"]).parent, {"file"})


SCENARIOS = {
    "killed": killed,
    "paused": paused,
    "full disk": full_disk,
    "file size limit": file_size_limit,
    "little memory": little_memory,
}
