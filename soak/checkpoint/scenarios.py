"""Old or new, never a mixture, never lost: whatever happens to who saves and who loads."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

from soak.checkpoint import work
from soak.child import Child
from soak.failure import Leftover, Wrong
from soak.stage import Stage, only

MIB = 1 << 20


def sizes(stage: Stage, most: int = 24 * MIB) -> list[int]:
    """Bytes of a few tensors, small and large; together at most so many."""
    count = stage.chance.choice((1, 3, 12, 60))
    return [max(64, int(most / count * stage.chance.random() ** 3)) for _ in range(count)]


def options(stage: Stage) -> dict[str, Any]:
    """Of a save."""
    return {
        "tool": stage.chance.choice(("auto", "direct", "buffered")),
        "durable": stage.chance.random() < 0.5,
        "checksum": stage.chance.random() < 0.8,
    }


def loading(stage: Stage) -> dict[str, Any]:
    """Options of a load."""
    return stage.chance.choice(({}, {}, {"mmap": True}, {"verify": False}, {"tool": "buffered"}))


def killed(stage: Stage) -> None:
    """Killed in the middle of saves, over and over, at one path."""
    path = stage.directory() / "model.ferry"
    about: dict[str, Any] = {"path": str(path), "seed": stage.seed, "sizes": sizes(stage)}
    stage.run(work.save_steps, first=0, steps=1, **about)
    oldest = 0
    for job in range(1, stage.chance.randint(2, 4)):
        saving = stage.chance.choice((work.save_steps, work.save_steps_behind))
        child = stage.start(saving, first=job * work.STEPS_MAX, **about, **options(stage))
        child.wait_for("saving", stage.chance.randint(1, 4))
        stage.moment(child, "saving")
        child.kill()
        oldest = _one_of(stage, child, about, oldest)
    # Drafts of those that were killed go with the next save.
    stage.run(work.save_steps, first=10 * work.STEPS_MAX, steps=1, **about)
    only(path.parent, {path.name})


def _one_of(stage: Stage, child: Child, about: dict[str, Any], oldest: int) -> int:
    """Judges what a killed process has left, which is its last step, or the one it was at."""
    oldest, newest = child.last("saved", oldest), child.last("saving", oldest)
    stage.saw["kills in the middle"] += newest > oldest
    found: int = stage.run(work.look, **about, **loading(stage))
    if not oldest <= found <= newest:
        raise Wrong(f"step {found} is there; {oldest} was saved, {newest} was begun")
    return found


def readers(stage: Stage) -> None:
    """One saves, others load, all are paused, and the one that saves is killed in the end."""
    path = stage.directory() / "model.ferry"
    about: dict[str, Any] = {"path": str(path), "seed": stage.seed, "sizes": sizes(stage)}
    stage.run(work.save_steps, first=0, steps=1, **about)
    saving = stage.chance.choice((work.save_steps, work.save_steps_behind))
    writer = stage.start(saving, first=1, **about, **options(stage))
    loads = stage.chance.randint(3, 12)
    readers = [
        stage.start(work.read_steps, loads=loads, **about, **loading(stage))
        for _ in range(stage.chance.randint(1, 3))
    ]
    for _ in range(stage.chance.randint(0, 4)):
        stage.pause([writer, *readers])
    for reader in readers:
        reader.result()
    writer.kill()
    _one_of(stage, writer, about, 0)


def full_disk(stage: Stage) -> None:
    """The disk has room for the old file and the new one, or not, and changes its mind."""
    about: dict[str, Any] = {"seed": stage.seed, "sizes": sizes(stage, 8 * MIB)}
    disk = stage.disk(40 * MIB)
    path = str(disk.place / "model.ferry")
    stage.run(work.save_steps, first=0, steps=1, path=path, **about)
    behind = stage.chance.random() < 0.5
    child = stage.start(
        work.save_while_full, path=path, first=1, behind=behind, **about, **options(stage)
    )
    for _ in range(stage.chance.randint(1, 4)):
        disk.fill(int(sum(about["sizes"]) * stage.chance.random() * 1.5))
        child.wait_for("saving", child.count("saving") + stage.chance.randint(1, 3))
        disk.drain()
        child.wait_for("saving", child.count("saving") + 1)
        stage.moment(child, "saving")
    # What is begun after the last ballast has gone is saved.
    child.wait_for("saving", child.count("saving") + 1)
    child.wait_for("saved", child.count("saved") + 1)
    (disk.place.parent / "enough").touch()
    child.result()
    stage.saw["refusals"] += child.count("refused")
    if disk.names() != ["model.ferry"]:
        raise Leftover(f"on the disk: {disk.names()}")


def little_memory(stage: Stage) -> None:
    """A container with room for two objects, what tells them apart, and the windows of a save. The
    copy that a background save makes is one of the objects, and gone when the other is loaded."""
    # Larger than what the C library ever keeps for itself.
    tensor = 33 * MIB
    group = stage.group(6 * tensor + 100 * MIB)
    child = stage.start(
        work.save_and_load,
        group,
        path=str(stage.directory() / "model.ferry"),
        seed=stage.seed,
        sizes=[tensor, tensor],
        rounds=4,
        behind=stage.chance.random() < 0.5,
        **options(stage),
    )
    child.result()


def steady(stage: Stage) -> None:
    """Many rounds, with pauses: nothing grows."""
    path = stage.directory() / "model.ferry"
    about: dict[str, Any] = {"path": str(path), "seed": stage.seed, "sizes": sizes(stage, 8 * MIB)}
    behind = stage.chance.random() < 0.5
    child = stage.start(work.save_and_load, rounds=30, behind=behind, **about, **options(stage))
    for times in (5, 12, 20):
        child.wait_for("held", times)
        stage.pause([child])
    stage.steady(child.result())
    only(path.parent, {path.name})


def interrupted(stage: Stage) -> None:
    """Control-C in the middle: the process goes on, and nothing half-written is left."""
    path = stage.directory() / "model.ferry"
    about: dict[str, Any] = {"path": str(path), "seed": stage.seed, "sizes": sizes(stage)}
    stage.run(work.save_steps, first=0, steps=1, **about)
    behind = stage.chance.random() < 0.5
    child = stage.start(work.interrupted, first=1, behind=behind, **about)
    for heard in range(2):
        child.wait_for("saving", child.count("saving") + stage.chance.randint(1, 3))
        stage.moment(child, "saving")
        child.signal(signal.SIGINT)
        child.wait_for("interrupted", heard + 1)
    steps = child.result()
    stage.saw["interrupts"] += 2
    found = stage.run(work.look, **about)
    if not steps["whole"] <= found <= steps["begun"]:
        raise Wrong(f"step {found} is there, {steps} may be")
    only(path.parent, {path.name})


# -- several ranks --


def _ranks(
    stage: Stage, path: Path, count: int, first: int, about: dict[str, Any], rendezvous: Path | None
) -> list[Child]:
    where = None if rendezvous is None else str(rendezvous)
    return [
        stage.start(
            work.save_ranks,
            path=str(path),
            first=first,
            rank=rank,
            world_size=count,
            rendezvous=where,
            **about,
        )
        for rank in range(count)
    ]


def ranks_killed(stage: Stage) -> None:
    """Ranks that know nothing of each other are all killed, and started again."""
    path = stage.directory() / "model.ferry"
    about: dict[str, Any] = {"seed": stage.seed, "sizes": sizes(stage, 4 * MIB)}
    found = -1
    for job in range(1, stage.chance.randint(2, 4)):
        count = stage.chance.randint(2, 4)
        ranks = _ranks(stage, path, count, job * work.STEPS_MAX, about, None)
        for rank in ranks:
            rank.wait_for("saved", stage.chance.randint(1, 3))
        stage.moment(ranks[0], "saving")
        for rank in stage.chance.sample(ranks, count):
            rank.kill()
        found = _one_of_ranks(stage, path, ranks, about, found)


def _one_of_ranks(
    stage: Stage, path: Path, ranks: list[Child], about: dict[str, Any], before: int
) -> int:
    """A step that every rank has saved was whole at some time, and later ones may be."""
    oldest = max(before, min(rank.last("saved", -1) for rank in ranks))
    newest = max(before, min(rank.last("saving", -1) for rank in ranks))
    world_size = stage.chance.choice((len(ranks), 1, 3))
    found: int = stage.run(
        work.look_at_ranks, path=str(path), saved_by=len(ranks), world_size=world_size, **about
    )
    if not oldest <= found <= newest:
        raise Wrong(f"step {found} is there; {oldest} was saved by all, {newest} begun by all")
    return found


def ranks_one_killed(stage: Stage) -> None:
    """With torch.distributed: one is killed, and the others are told so instead of waiting."""
    path = stage.directory() / "model.ferry"
    about: dict[str, Any] = {"seed": stage.seed, "sizes": sizes(stage, 4 * MIB)}
    count = stage.chance.randint(2, 3)
    ranks = _ranks(stage, path, count, 1, about, stage.place / "rendezvous")
    for rank in ranks:
        rank.wait_for("saved", stage.chance.randint(1, 4))
    stage.moment(ranks[0], "saving")
    victim = stage.chance.choice(ranks)
    victim.kill()
    for rank in ranks:
        if rank is not victim:
            rank.result("Error", "DistBackendError", "RuntimeError")
    _one_of_ranks(stage, path, ranks, about, 0)


def ranks_paused(stage: Stage) -> None:
    """Ranks fall behind each other."""
    path = stage.directory() / "model.ferry"
    about: dict[str, Any] = {"seed": stage.seed, "sizes": sizes(stage, 4 * MIB)}
    together = stage.place / "rendezvous" if stage.chance.random() < 0.5 else None
    ranks = _ranks(stage, path, stage.chance.randint(2, 3), 1, about, together)
    for times in range(1, stage.chance.randint(2, 5)):
        for rank in ranks:
            rank.wait_for("saved", times)
        stage.pause(ranks)
    for rank in ranks:
        rank.kill()
    _one_of_ranks(stage, path, ranks, about, 0)


SCENARIOS = {
    "killed": killed,
    "readers": readers,
    "full disk": full_disk,
    "little memory": little_memory,
    "steady": steady,
    "interrupted": interrupted,
    "ranks killed": ranks_killed,
    "ranks, one killed": ranks_one_killed,
    "ranks paused": ranks_paused,
}
