"""What children of the checkpoint scenarios do. Each step's state can be told from any other's."""

from __future__ import annotations

import gc
import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch

import tensorferry as ferry
from soak.checkpoint.state import differ, state, step_of, tensors
from soak.tell import Tell

STEPS_MAX = 1_000_000


def save_steps(
    tell: Tell,
    path: str,
    seed: int,
    first: int,
    sizes: list[int],
    steps: int = STEPS_MAX,
    **options: Any,
) -> int:
    """Saves one step after the other at one path."""
    tell("ready")
    for step in range(first, first + steps):
        tell("saving", step)
        ferry.save(state(seed, step, sizes), path, **options)
        tell("saved", step)
    return steps


def save_steps_behind(
    tell: Tell,
    path: str,
    seed: int,
    first: int,
    sizes: list[int],
    steps: int = STEPS_MAX,
    **options: Any,
) -> int:
    """Likewise in the background; what was handed over is changed as soon as that is allowed."""
    tell("ready")
    before: tuple[int, ferry.SaveJob] | None = None
    for step in range(first, first + steps):
        now = state(seed, step, sizes)
        tell("saving", step)
        job = ferry.save_async(now, path, **options)
        for tensor in now["model"].values():
            tensor.zero_()
        if before is not None:
            before[1].wait()
            tell("saved", before[0])
        before = (step, job)
    if before is not None:
        before[1].wait()
        tell("saved", before[0])
    return steps


def look(tell: Tell, path: str, seed: int, sizes: list[int], **options: Any) -> int:
    """The step that is there, whole."""
    return step_of(ferry.load(path, **options), seed, sizes)


def read_steps(
    tell: Tell, path: str, seed: int, sizes: list[int], loads: int = STEPS_MAX, **options: Any
) -> int:
    """Loads again and again; what is there never goes back."""
    newest = -1
    for _ in range(loads):
        step = step_of(ferry.load(path, **options), seed, sizes)
        if step < newest:
            raise ValueError(f"step {step} is there after step {newest}")
        newest = step
        tell("loaded", step)
    return newest


def save_while_full(
    tell: Tell, path: str, seed: int, first: int, sizes: list[int], behind: bool, **options: Any
) -> int:
    """Saves until told that there is room; a full disk leaves the last whole step and no draft."""
    whole = first - 1
    place = Path(path).parent
    for step in range(first, STEPS_MAX):
        tell("saving", step)
        try:
            if behind:
                ferry.save_async(state(seed, step, sizes), path, **options).wait()
            else:
                ferry.save(state(seed, step, sizes), path, **options)
            whole = step
            tell("saved", step)
        except ferry.OutOfSpace as error:
            tell("refused", str(error))
        names = set(os.listdir(place)) - {"ballast", Path(path).name}
        if names:
            raise ValueError(f"a save has left {sorted(names)}")
        found = step_of(ferry.load(path), seed, sizes)
        if found != whole:
            raise ValueError(f"step {found} is there, not {whole}")
        if (place.parent / "enough").exists():
            return whole
    return whole


def save_and_load(
    tell: Tell, path: str, seed: int, sizes: list[int], rounds: int, behind: bool, **options: Any
) -> list[dict[str, int]]:
    """Equal rounds of a save and a load; what the process held after each. At no time does it have
    more of its own than two objects."""
    held = []
    for step in range(rounds):
        saved = tensors(seed, step, sizes)
        if behind:
            ferry.save_async(saved, path, **options).wait()
        else:
            ferry.save(saved, path, **options)
        loaded = ferry.load(path)
        differ(loaded, saved, "the state")
        del loaded, saved
        held.append(tell.held())
    return held


def interrupted(
    tell: Tell, path: str, seed: int, first: int, sizes: list[int], behind: bool
) -> dict[str, int]:
    """Saves and loads until the second interrupt, surviving the first; which steps may be there."""
    heard, step, whole = 0, first - 1, first - 1
    while heard < 2:
        try:
            # Interrupts come after "saving", so that none comes outside of this.
            while True:
                step += 1
                tell("saving", step)
                if behind:
                    ferry.save_async(state(seed, step, sizes), path).wait()
                else:
                    ferry.save(state(seed, step, sizes), path)
                whole = step
                tell("saved", step)
                step_of(ferry.load(path), seed, sizes)
        except KeyboardInterrupt:
            heard += 1
            tell("interrupted", step)
    return {"whole": whole, "begun": step}


# -- several ranks --

GROUP_TIMEOUT = timedelta(seconds=60)
"""Gloo does not always notice at once that a rank was killed; then it waits for so long."""


def save_ranks(
    tell: Tell,
    path: str,
    seed: int,
    first: int,
    sizes: list[int],
    rank: int,
    world_size: int,
    rendezvous: str | None,
) -> None:
    """One rank's saves, step after step, with torch.distributed or without."""
    if rendezvous is not None:
        torch.distributed.init_process_group(
            "gloo",
            init_method=f"file://{rendezvous}",
            rank=rank,
            world_size=world_size,
            timeout=GROUP_TIMEOUT,
        )
    tell("ready")
    for step in range(first, first + STEPS_MAX):
        tell("saving", step)
        ferry.save(
            part(seed, step, sizes, rank, world_size),
            path,
            rank=rank,
            world_size=world_size,
            sharded={"sharded": 0},
            replicated=["step", "same.*"],
        )
        tell("saved", step)


def part(seed: int, step: int, sizes: list[int], rank: int, world_size: int) -> dict[str, Any]:
    """What a rank has: its rows of one tensor, what all have, and its own."""
    whole = tensors(seed, step, sizes)
    rows = next(iter(whole.values())).view(torch.uint8).reshape(-1, 8)
    return {
        "step": torch.tensor(step),
        "sharded": rows.chunk(world_size)[rank].clone(),
        "same": dict(whole),
        f"own{rank}": torch.full((1000,), step * 100 + rank),
    }


def look_at_ranks(
    tell: Tell, path: str, seed: int, sizes: list[int], saved_by: int, world_size: int
) -> int:
    """The step that is there, whole, for any number of ranks that load."""
    steps = set()
    # Another number of ranks has no use for what each had to itself.
    keys = None if world_size == saved_by else ["step", "sharded", "same"]
    for rank in range(world_size):
        got = ferry.load(path, keys=keys, rank=rank, world_size=world_size)
        step = int(got["step"])
        steps.add(step)
        wanted = part(seed, step, sizes, rank, world_size)
        for name in ("sharded", "same"):
            differ(got[name], wanted[name], name)
        if keys is None:
            differ(got[f"own{rank}"], wanted[f"own{rank}"], "its own")
        del got
        gc.collect()
    if len(steps) != 1:
        raise ValueError(f"ranks see steps {sorted(steps)}")
    return steps.pop()
