"""The same losses and parameters bit for bit; an optimizer on SSD goes on, or is refused."""

from __future__ import annotations

from typing import Any

from soak.failure import Leftover, Wrong
from soak.networks import NETWORKS
from soak.parameters import work
from soak.stage import Stage

MIB = 1 << 20
LITTLE_MEMORY = 384 * MIB
"""Of a container; it is too small for the optimizer with its state in memory."""
STATE = {"optimizer-0.state", "optimizer-0.ledger"}


def shadow_options(stage: Stage) -> dict[str, Any]:
    """A network, and what of it may be on the device."""
    chance = stage.chance
    return {
        "name": chance.choice(sorted(NETWORKS)),
        "depth": chance.randint(2, 4),
        "seed": stage.seed,
        "share": chance.choice((0.7, 1.0, 2.0)),
        "gradient_reserve": chance.choice((0.0, 0.3, 1.0)),
        "planner": chance.choice(("exact", "exact", "paper", "copy")),
        "update": chance.choice(("auto", "step", "arrival")),
    }


def shadow(stage: Stage) -> None:
    """Trained while it is stopped for seconds; over many steps nothing grows."""
    child = stage.start(work.shadow, steps=18, **shadow_options(stage))
    for times in (2, 8, 13):
        child.wait_for_or_end("step", times)
        stage.moment(child, "step")
        stage.pause([child])
    held = child.result()
    stage.saw["budgets refused"] += child.count("refused")
    if len(held) == 18:
        stage.steady(held)


def shadow_in_little_memory(stage: Stage) -> None:
    """In a container with room for both models, and little else."""
    about = shadow_options(stage)
    group = stage.group(LITTLE_MEMORY)
    child = stage.start(work.shadow, group, steps=8, **about)
    child.result()
    stage.saw["budgets refused"] += child.count("refused")


def optimizer(stage: Stage, most: int = 3_000_000) -> dict[str, Any]:
    """Parameters of an optimizer with its state on SSD."""
    count = stage.chance.choice((1, 2, 12))
    sizes = [max(1, int(most / count * stage.chance.random())) for _ in range(count)]
    dtype = stage.chance.choice(("float32", "bfloat16", "float16"))
    return {"seed": stage.seed, "sizes": sizes, "dtype": dtype}


def killed(stage: Stage) -> None:
    """Killed in the middle of steps or between them: the state goes on bit for bit, or is refused
    as that of a process that ended within a step."""
    directory = str(stage.directory())
    about, first = optimizer(stage), 0
    for _ in range(stage.chance.randint(1, 4)):
        child = stage.start(work.step_on_disk, directory=directory, first=first, **about)
        child.wait_for("stepping", stage.chance.randint(1, 4))
        stage.moment(child, "stepping")
        child.kill()
        oldest, newest = child.last("stepped", first), child.last("stepping") + 1
        found = stage.run(work.resume, directory=directory, newest=newest, **about)
        stage.saw["kills in the middle"] += found is None
        if found is not None and not oldest <= found <= newest:
            raise Wrong(f"{found} steps are there, {oldest} were taken and {newest} begun")
        if found is None and newest == oldest:
            raise Wrong("a state was refused though no step was under way")
        first = 0 if found is None else found + 1


def full_disk(stage: Stage) -> None:
    """There is no room for the state, and then there is."""
    about = optimizer(stage, 1_000_000)
    disk, enough = stage.disk(24 * MIB), stage.place / "enough"
    disk.fill(stage.chance.choice((0, 4096, 100_000)))
    child = stage.start(
        work.step_while_full, directory=str(disk.place), enough=str(enough), **about
    )
    child.wait_for("tried", stage.chance.randint(1, 3))
    for _ in range(stage.chance.randint(1, 3)):
        disk.drain()
        child.wait_for("tried", child.count("tried") + stage.chance.randint(1, 3))
        disk.fill(stage.chance.choice((0, 4096)))
        child.wait_for("tried", child.count("tried") + stage.chance.randint(1, 3))
    enough.touch()
    disk.drain()
    stage.saw["refusals"] += child.result()
    if set(disk.names()) - STATE:
        raise Leftover(f"on the disk: {disk.names()}")


def paused(stage: Stage) -> None:
    """Stopped for seconds; over many steps nothing grows."""
    directory = str(stage.directory())
    about = optimizer(stage, 1_000_000)
    child = stage.start(work.step_on_disk, directory=directory, first=0, steps=30, **about)
    for times in (3, 9, 18):
        child.wait_for("stepping", times)
        stage.moment(child, "stepping")
        stage.pause([child])
    stage.steady(child.result())


def little_memory(stage: Stage) -> None:
    """A container with room for parameters and gradients, but not for twice that in moments."""
    about = {"seed": stage.seed, "sizes": [9_000_000] * 2, "dtype": "float32", "steps": 3}
    wanted = stage.run(work.fingerprint, directory=None, **about)
    if stage.chance.random() < 0.25:
        stage.needs_more(LITTLE_MEMORY, work.fingerprint, directory=None, **about)
    child = stage.start(
        work.fingerprint, stage.group(LITTLE_MEMORY), directory=str(stage.directory()), **about
    )
    if child.result() != wanted:
        raise Wrong("parameters differ from those of an optimizer in memory")


SCENARIOS = {
    "shadow": shadow,
    "shadow in little memory": shadow_in_little_memory,
    "optimizer killed": killed,
    "optimizer, full disk": full_disk,
    "optimizer paused": paused,
    "optimizer in little memory": little_memory,
}
