"""The same batches in the same order, whatever happens to the loader, its workers and its disks."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import Any

from soak.data import samples, work
from soak.data.order import Order
from soak.failure import Leftover, Wrong
from soak.stage import Stage

MIB = 1 << 20
CORE: tuple[samples.Kind, ...] = ("files", "tar")
"""Datasets of arrays that never enter Python."""


def stored(stage: Stage, kind: samples.Kind, count: int, length: int) -> dict[str, Any]:
    """Samples on the disk."""
    about = {
        "place": str(stage.place / "samples"),
        "kind": kind,
        "seed": stage.seed,
        "count": count,
        "length": length,
    }
    stage.run(work.store, **about)
    return about


def order(stage: Stage, count: int) -> dict[str, Any]:
    """How the samples are shuffled and divided."""
    chance = stage.chance
    batch_size, drop = chance.randint(1, 9), chance.random() < 0.3
    if chance.random() < 0.5:
        return asdict(Order("generator", stage.seed, count, batch_size, drop))
    world_size = chance.randint(1, 3)
    rank = chance.randrange(world_size)
    return asdict(Order("seed", stage.seed, count, batch_size, drop, rank, world_size))


def options(stage: Stage, kind: samples.Kind, follows: dict[str, Any]) -> dict[str, Any]:
    """Of a loader of such a dataset that follows an order."""
    workers = stage.chance.choice((0, 1, 2, 3))
    if workers == 0:
        return {"num_workers": 0}
    # With workers that stay, torch draws from a generator once for all epochs.
    stay = follows["kind"] == "seed" and stage.chance.random() < 0.5
    factor = stage.chance.randint(1, 4)
    chosen = {"num_workers": workers, "prefetch_factor": factor, "persistent_workers": stay}
    if kind == "python" and stage.chance.random() < 0.3:
        chosen["workers"] = "threads"
    return chosen


def killed(stage: Stage) -> None:
    """Killed anywhere, again and again; the next process takes exactly the batches that remain."""
    kind = stage.chance.choice(samples.KINDS)
    count = stage.chance.randint(5, 150)
    about = stored(stage, kind, count, stage.chance.choice((1, 100, 20_000)))
    follows = order(stage, count)
    about |= {"order": follows, "epochs": 3, "kept": str(stage.place / "kept")}
    for _ in range(stage.chance.randint(1, 5)):
        child = stage.start(work.consume, **about, **options(stage, kind, follows))
        child.wait_for_or_end("batch", stage.chance.randint(1, 20))
        stage.moment(child, "batch")
        child.kill()
        stage.saw["kills in the middle"] += child.was_killed and child.count("batch") > 0
    stage.run(work.consume, **about, **options(stage, kind, follows))


def paused(stage: Stage) -> None:
    """Stopped for seconds, workers and all; over many epochs nothing grows."""
    kind = stage.chance.choice(samples.KINDS)
    about = stored(stage, kind, 40, stage.chance.choice((100, 20_000)))
    follows = order(stage, 40)
    child = stage.start(
        work.consume, epochs=20, order=follows, **about, **options(stage, kind, follows)
    )
    for times in (3, 8, 13):
        child.wait_for("held", times)
        stage.moment(child, "batch")
        stage.pause([child])
    stage.steady(child.result())


def worker_killed(stage: Stage) -> None:
    """A worker process dies: an error that says so, and no wait for what will never come."""
    about = stored(stage, "python", 400, 100)
    about |= {"order": order(stage, 400), "epochs": 50}
    child = stage.start(work.consume, num_workers=stage.chance.randint(1, 3), **about)
    child.wait_for("batch", stage.chance.randint(1, 200))
    if stage.kill_one_of_those_started_by(child):
        stage.saw["workers killed"] += 1
        if child.result("RuntimeError", "Error") not in ("RuntimeError", "Error"):
            raise Wrong("a loader went on without the worker that was killed")
    child.kill()


def full_cache(stage: Stage) -> None:
    """The disk of the cache fills up and gets room again: batches are the same."""
    disk = stage.disk(8 * MIB)
    kind: samples.Kind = stage.chance.choice(CORE)
    about = stored(stage, kind, 120, 20_000)
    follows = order(stage, 120)
    child = stage.start(
        work.consume,
        epochs=6,
        order=follows,
        cache_limit=stage.chance.choice((0, 200_000, 3 * MIB)),
        cache_dir=str(disk.place),
        cache=stage.chance.choice(("raw", "decoded")),
        **about,
        **options(stage, kind, follows),
    )
    for _ in range(stage.chance.randint(1, 4)):
        child.wait_for_or_end("batch", child.count("batch") + stage.chance.randint(1, 10))
        disk.fill(stage.chance.choice((0, 4096, 100_000, 2 * MIB)))
        child.wait_for_or_end("batch", child.count("batch") + stage.chance.randint(1, 10))
        disk.drain()
    if stage.chance.random() < 0.5:
        child.kill()
    else:
        child.result()
    if disk.names():
        raise Leftover(f"in the directory of the cache: {disk.names()}")


def little_memory(stage: Stage) -> None:
    """A container that is much smaller than the dataset, with large samples."""
    kind: samples.Kind = stage.chance.choice((*CORE, "python"))
    about = stored(stage, kind, 96, 1 << 20)
    follows = Order("seed", stage.seed, 96, 4, False)
    group = stage.group(320 * MIB)
    child = stage.start(
        work.consume,
        group,
        epochs=2,
        order=asdict(follows),
        num_workers=stage.chance.choice((0, 2)),
        **about,
    )
    child.result()


def regrouped(stage: Stage) -> None:
    """Ranks are killed in the middle of an epoch; another number of ranks reads what remains."""
    count, length = stage.chance.randint(20, 150), 4
    kind: samples.Kind = stage.chance.choice((*CORE, "python"))
    about = stored(stage, kind, count, length)
    whole = stage.run(work.names, **{key: about[key] for key in about if key != "place"})
    about = {key: about[key] for key in ("place", "kind", "count")}
    before, after = stage.chance.randint(1, 3), stage.chance.randint(1, 3)
    batches = stage.chance.randint(1, 4)
    found, state = _ranks(stage, about, before, batches, None)
    if len(found) < count:
        rest, _ = _ranks(stage, about, after, None, state)
        found += rest
    if missing := set(whole) - set(found):
        raise Wrong(f"{len(missing)} samples never came")
    # The last samples of an epoch may come twice, so that all ranks have as many.
    twice = sum((Counter(found) - Counter(whole)).values())
    if twice > max(before, after):
        raise Wrong(f"{twice} samples came twice")


def _ranks(
    stage: Stage, about: dict[str, Any], world_size: int, batches: int | None, state: Any
) -> tuple[list[float], Any]:
    about = about | {"batches": batches, "state": state}
    ranks = []
    for rank in range(world_size):
        follows = asdict(Order("seed", stage.seed, about["count"], 3, False, rank, world_size))
        chosen = options(stage, about["kind"], follows)
        ranks.append(stage.start(work.take, order=follows, **about, **chosen))
    told = [rank.result() for rank in ranks]
    return [each for one in told for each in one["found"]], told[0]["state"]


SCENARIOS = {
    "killed": killed,
    "paused": paused,
    "worker killed": worker_killed,
    "full cache": full_cache,
    "little memory": little_memory,
    "regrouped": regrouped,
}
