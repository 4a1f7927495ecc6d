"""What children of the data scenarios do."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import torch

import tensorferry as ferry
from soak.data import samples
from soak.data.order import Order
from soak.tell import Tell

EPOCHS_MAX = 1000


def store(tell: Tell, place: str, kind: samples.Kind, seed: int, count: int, length: int) -> None:
    """Writes the samples."""
    samples.store(Path(place), kind, seed, count, length)


def consume(
    tell: Tell,
    place: str,
    kind: samples.Kind,
    seed: int,
    count: int,
    length: int,
    order: dict[str, Any],
    epochs: int,
    kept: str | None = None,
    **options: Any,
) -> list[dict[str, int]]:
    """Takes all batches of some epochs and compares them; goes on from where ``kept`` says, and
    keeps its own place there after every batch. What it held after each epoch."""
    follows = Order(**order)
    wanted = follows.epochs(epochs)
    loader = ferry.DataLoader(
        samples.dataset(Path(place), kind, count), **follows.arguments(), **options
    )
    epoch, taken = _go_on(loader, kept)
    held = []
    for number in range(epoch, epochs):
        for found in loader:
            if taken >= len(wanted[number]):
                raise ValueError(f"epoch {number} has more than {taken} batches")
            _compare(found, kind, seed, wanted[number][taken], length)
            taken += 1
            if kept is not None:
                _keep(kept, {"epoch": number, "taken": taken, "loader": loader.state_dict()})
            tell("batch", [number, taken])
        if taken != len(wanted[number]):
            raise ValueError(f"epoch {number} has {taken} batches, not {len(wanted[number])}")
        taken = 0
        held.append(tell.held())
    return held


def _compare(found: Any, kind: samples.Kind, seed: int, indices: list[int], length: int) -> None:
    if kind == "pictures":
        found, classes = found
        if classes.tolist() != [0] * len(indices):
            raise ValueError(f"classes are {classes.tolist()}")
    wanted = samples.batch(kind, seed, indices, length)
    if found.dtype != wanted.dtype or found.shape != wanted.shape:
        raise ValueError(f"{found.dtype} {found.shape}, not {wanted.dtype} {wanted.shape}")
    wrong = [place for place in range(len(indices)) if not torch.equal(found[place], wanted[place])]
    if wrong:
        raise ValueError(f"of samples {indices}, those in places {wrong} are wrong")


def _go_on(loader: ferry.DataLoader, kept: str | None) -> tuple[int, int]:
    """The epoch and the batches that were taken of it."""
    if kept is None or not os.path.exists(kept):
        return 0, 0
    state = json.loads(Path(kept).read_text())
    loader.load_state_dict(state["loader"])
    return state["epoch"], state["taken"]


def _keep(kept: str, state: dict[str, Any]) -> None:
    draft = Path(f"{kept}.draft")
    draft.write_text(json.dumps(state))
    draft.replace(kept)


def take(
    tell: Tell,
    place: str,
    kind: samples.Kind,
    count: int,
    order: dict[str, Any],
    batches: int | None,
    state: dict[str, Any] | None,
    **options: Any,
) -> dict[str, Any]:
    """Takes so many batches, or all that remain; which samples those were, and the state then."""
    loader = ferry.DataLoader(
        samples.dataset(Path(place), kind, count), **Order(**order).arguments(), **options
    )
    if state is not None:
        loader.load_state_dict(state)
    found: list[float] = []
    for number, batch in enumerate(loader, 1):
        # The first number of a sample is as good as its name.
        found += batch.reshape(len(batch), -1)[:, 0].tolist()
        tell("batch", number)
        if number == batches:
            break
    return {"found": found, "state": loader.state_dict()}


def names(tell: Tell, kind: samples.Kind, seed: int, count: int, length: int) -> list[float]:
    """The first numbers of all samples."""
    return [float(samples.batch(kind, seed, [index], length)[0, 0]) for index in range(count)]
