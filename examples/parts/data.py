"""Data: an epoch of arrays from files, beside torch's DataLoader.

Torch's loader with two workers reads a dataset of arrays, ferry's reads the same dataset with the
same generator, and the core reads the files by itself. All must give the same batches.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

import tensorferry as ferry
from parts.common import say, seconds
from tensorferry.data import Files

SAMPLES = 512
ROUNDS = 3


class Arrays(Dataset[torch.Tensor]):
    """Pictures as arrays, a file each."""

    def __init__(self, paths: list[Path]) -> None:
        self.paths = paths

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.from_numpy(np.load(self.paths[index]))


def make(scratch: Path) -> list[Path]:
    """Files of 3 x 224 x 224 bytes."""
    random = np.random.default_rng(0)
    paths = [scratch / f"{number:04}.npy" for number in range(SAMPLES)]
    for path in paths:
        np.save(path, random.integers(0, 256, (3, 224, 224), np.uint8))
    return paths


def loaders(paths: list[Path], seed: int) -> dict[str, Iterable[torch.Tensor]]:
    """The same epoch, three ways."""
    dataset = Arrays(paths)

    def same() -> torch.Generator:
        return torch.Generator().manual_seed(seed)

    return {
        "torch": DataLoader(dataset, 64, True, generator=same(), num_workers=2),
        "ferry": ferry.DataLoader(dataset, 64, True, generator=same(), num_workers=2),
        "core": ferry.DataLoader(Files(map(str, paths)), 64, True, generator=same()),
    }


def first(loader: Iterable[torch.Tensor]) -> torch.Tensor:
    """Its first batch."""
    return next(iter(loader))


def run(scratch: Path) -> str:
    """Does the part; what was measured."""
    paths = make(scratch)
    epochs: dict[str, list[float]] = {"torch": [], "ferry": [], "core": []}
    firsts: dict[str, list[float]] = {"torch": [], "ferry": [], "core": []}
    for number in range(1, ROUNDS + 1):
        say(f"round {number} of {ROUNDS}: {SAMPLES} arrays of 150 kB in batches of 64, three ways")
        batches = [list(each) for each in loaders(paths, number).values()]
        for name, loader in loaders(paths, number).items():
            epochs[name].append(seconds(partial(list, loader)))
        for name, loader in loaders(paths, number).items():
            firsts[name].append(seconds(partial(first, loader)))
        for theirs, ours, core in zip(*batches, strict=True):
            assert torch.equal(theirs, ours), "the same generator must give the same batches"
            assert torch.equal(theirs, core), "and the same samples, whoever reads them"
    return table(epochs, firsts)


def table(epochs: dict[str, list[float]], firsts: dict[str, list[float]]) -> str:
    """What was measured, as medians."""
    rows = [f"  {'':44} {'arrays/s':>8} {'first s':>8} {'x torch':>8}"]
    names = {
        "core": "ferry.DataLoader(Files(...))",
        "ferry": "ferry.DataLoader(the same dataset)",
        "torch": "torch DataLoader, 2 workers",
    }
    for name, what in names.items():
        epoch, begun = statistics.median(epochs[name]), statistics.median(firsts[name])
        ratio = statistics.median(epochs["torch"]) / epoch
        rows.append(f"  {what:44} {SAMPLES / epoch:8.0f} {begun:8.3f} {ratio:8.2f}")
    checked = "All three gave the same batches in the same order, bit for bit."
    return "\n".join([*rows, "", f"  {checked}"])
