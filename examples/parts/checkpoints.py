"""Checkpoints: a real model saved and loaded, beside torch.

Saves the state of a torch transformer, loads it into a second model, checks that both are the same
bit for bit, saves once more in the background, and shows torch.save and torch.load on the same disk
beside it.
"""

from __future__ import annotations

import os
import statistics
import sys
from functools import partial
from pathlib import Path

import torch
from torch import nn

import tensorferry as ferry
from parts.common import say, seconds

ROUNDS = 5


def build_model(seed: int) -> nn.Module:
    """A transformer of about 85 million parameters, the size of BERT-base without embeddings."""
    torch.manual_seed(seed)
    layer = nn.TransformerEncoderLayer(768, 12, dim_feedforward=3072, batch_first=True)
    return nn.TransformerEncoder(layer, 12, enable_nested_tensor=False).eval()


def save(model: nn.Module, path: Path) -> None:
    """Durable, checksummed, whole or not at all."""
    ferry.save(model.state_dict(), path)


def load(model: nn.Module, path: Path) -> None:
    """Verified on the way."""
    model.load_state_dict(ferry.load(path))


def save_async(model: nn.Module, path: Path) -> None:
    """Only what holds the caller; `make_sure` waits for the rest."""
    JOBS.append(ferry.save_async(model.state_dict(), path))


JOBS: list[ferry.SaveJob] = []


def make_sure() -> None:
    """Waits for saves in the background."""
    while JOBS:
        JOBS.pop().wait()


def torch_save(model: nn.Module, path: Path) -> None:
    """What users do today, made to survive a power cut as well."""
    with path.open("wb") as file:
        torch.save(model.state_dict(), file)
        file.flush()
        os.fsync(file.fileno())


def torch_load(model: nn.Module, path: Path) -> None:
    """What users do today."""
    model.load_state_dict(torch.load(path, weights_only=True))


def drop_cache(path: Path) -> None:
    """Makes the next read come from the disk, whoever reads."""
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def same_bits(a: nn.Module, b: nn.Module) -> bool:
    """Whether two models have the same parameters, NaNs and signed zeros included."""

    def bits(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.reshape(-1).view(torch.uint8)

    left, right = a.state_dict(), b.state_dict()
    return left.keys() == right.keys() and all(
        bits(left[key]).equal(bits(right[key])) for key in left
    )


def measure(scratch: Path) -> tuple[int, dict[str, list[float]]]:
    """Saves and loads in turn, ours and theirs, and checks every load."""
    model, other = build_model(0), build_model(1)
    size = sum(tensor.nbytes for tensor in model.state_dict().values())
    assert not same_bits(model, other), "two seeds must give two models"
    ours, theirs, behind = (scratch / name for name in ("model.ferry", "model.pt", "behind.ferry"))
    names = ("save", "save_async", "torch.save", "load", "torch.load")
    times: dict[str, list[float]] = {name: [] for name in names}
    for number in range(1, ROUNDS + 1):
        say(f"round {number} of {ROUNDS}: save and load {size / 1e6:.0f} MB, then torch's turn")
        times["save"].append(seconds(partial(save, model, ours)))
        times["save_async"].append(seconds(partial(save_async, model, behind)))
        make_sure()
        times["torch.save"].append(seconds(partial(torch_save, model, theirs)))
        readers = [("load", load, ours), ("torch.load", torch_load, theirs)]
        for name, read, path in readers:
            drop_cache(path)
            other = build_model(number)
            times[name].append(seconds(partial(read, other, path)))
            if not same_bits(model, other):
                sys.exit(f"error: {name} gave other bits than were saved")
    load(other, behind)
    assert same_bits(model, other), "what was saved in the background must be the same"
    x = torch.randn(2, 16, 768)
    with torch.no_grad():
        assert torch.equal(model(x), other(x)), "the same parameters must give the same output"
    return size, times


def table(size: int, times: dict[str, list[float]]) -> str:
    """What was measured, as medians."""
    rows = [f"  {'':44} {'seconds':>8} {'GB/s':>7} {'x torch':>8}"]
    for name, rival, what in [
        ("save", "torch.save", "save, survives a power cut: ferry.save"),
        ("save_async", "torch.save", "save, caller held: ferry.save_async"),
        ("torch.save", "torch.save", "torch.save and fsync"),
        ("load", "torch.load", "load from the disk into a model: ferry.load"),
        ("torch.load", "torch.load", "torch.load"),
    ]:
        middle = statistics.median(times[name])
        ratio = statistics.median(times[rival]) / middle
        rows.append(f"  {what:44} {middle:8.3f} {size / middle / 1e9:7.2f} {ratio:8.2f}")
    return "\n".join(rows)


def run(scratch: Path) -> str:
    """Does the part; what was measured."""
    size, times = measure(scratch)
    checked = f"Every load was compared bit for bit with the model that was saved ({ROUNDS} rounds,"
    return f"{table(size, times)}\n\n  {checked}\n  medians)."
