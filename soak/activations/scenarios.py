"""The same gradients bit for bit, whatever happens to the process and to its scratch directory."""

from __future__ import annotations

import os
from typing import Any

from soak.activations import work
from soak.failure import Leftover, Wrong
from soak.networks import NETWORKS
from soak.stage import Stage, only

MIB = 1 << 20
LITTLE_MEMORY = 256 * MIB
"""Of a container that is too small for plain training."""


def training(stage: Stage) -> dict[str, Any]:
    """A network, and how much of it is kept."""
    chance = stage.chance
    return {
        "name": chance.choice(sorted(NETWORKS)),
        "depth": chance.randint(2, 8),
        "seed": stage.seed,
        "shares": chance.choice(([1.0], [1.0], [1.0, 0.5], [1.0, 1.0, 0.3])),
        **options(stage),
    }


def options(stage: Stage) -> dict[str, Any]:
    """Of an offload. The budget is enough for any of the networks."""
    return {
        "budget": int(stage.chance.choice((4, 6, 12, 40)) * MIB),
        "compress": stage.chance.choice(("none", "lossless", "lossless")),
        "planner": stage.chance.choice(("timeline", "timeline", "paper")),
        "min_bytes": stage.chance.choice((4096, 65536, 1 << 18)),
        "recycle_memory": stage.chance.random() < 0.7,
    }


def killed(stage: Stage) -> None:
    """Killed in the middle of a step: the directory is empty, and its room is free again."""
    disk = stage.disk(256 * MIB)
    for _ in range(stage.chance.randint(1, 3)):
        child = stage.start(work.train, paths=[str(disk.place)], **training(stage))
        child.wait_for("step", stage.chance.randint(1, 5))
        stage.moment(child, "step")
        child.kill()
        only(disk.place, set())
        if lost := disk.wait_until_free():
            raise Leftover(f"{lost} bytes of the disk are gone with the process")


def paused(stage: Stage) -> None:
    """Stopped for longer than anybody's patience for the disk; over many steps nothing grows."""
    place = stage.directory()
    child = stage.start(work.train, paths=[str(place)], steps=40, **training(stage))
    for times in (3, 12, 24):
        child.wait_for("step", times)
        stage.moment(child, "step")
        stage.pause([child])
    stage.steady(child.result())
    only(place, set())


def full_disk(stage: Stage) -> None:
    """Steps find the disk full and say so; once there is room, all is as before."""
    disk, enough = stage.disk(48 * MIB), stage.place / "enough"
    about = training(stage) | {"compress": "none"}
    child = stage.start(work.train, paths=[str(disk.place)], enough=str(enough), **about)
    for _ in range(stage.chance.randint(1, 4)):
        child.wait_for("step", child.count("step") + stage.chance.randint(1, 4))
        disk.fill(int(stage.chance.choice((0, 1, 4)) * MIB))
        child.wait_for("step", child.count("step") + stage.chance.randint(1, 4))
        disk.drain()
    # The step that is under way may have found no room, the ones after it have it.
    child.wait_for("step", child.count("step") + 1)
    before = child.count("refused")
    child.wait_for("step", child.count("step") + 2)
    if child.count("refused") > before:
        raise Wrong(f"a step was refused though there is room: {child.last('refused')}")
    enough.touch()
    child.result()
    stage.saw["refusals"] += before
    only(disk.place, set())


def side_by_side(stage: Stage) -> None:
    """Two threads share an offload over two directories."""
    paths = [str(stage.directory()) for _ in range(2)]
    about = training(stage)
    del about["shares"]
    child = stage.start(work.train_side_by_side, paths=paths, steps=6, **about)
    for _ in range(stage.chance.randint(0, 2)):
        child.wait_for_or_end("step", child.count("step") + stage.chance.randint(1, 3))
        stage.pause([child])
    child.result()
    if left := [name for path in paths for name in os.listdir(path)]:
        raise Leftover(f"in the scratch directories: {left}")


def little_memory(stage: Stage) -> None:
    """A container in which the activations would not fit, with an offload that makes them."""
    about = {"name": "wide", "depth": 120, "seed": stage.seed, "steps": 4}
    wanted = stage.run(work.fingerprints, paths=None, **about)
    if stage.chance.random() < 0.25:
        stage.needs_more(LITTLE_MEMORY, work.fingerprints, paths=None, **about)
    chosen = options(stage) | {"budget": 24 * MIB, "recycle_memory": True, "min_bytes": 65536}
    paths = [str(stage.directory())]
    group = stage.group(LITTLE_MEMORY)
    child = stage.start(work.fingerprints, group, paths=paths, **about, **chosen)
    if child.result() != wanted:
        raise Wrong("gradients differ from those of training without an offload")


SCENARIOS = {
    "killed": killed,
    "paused": paused,
    "full disk": full_disk,
    "side by side": side_by_side,
    "little memory": little_memory,
}
