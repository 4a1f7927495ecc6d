"""Samples, each made from a seed and its index: stored in several ways, and as they come out."""

from __future__ import annotations

import io
import struct
import tarfile
import zlib
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import Dataset

from tensorferry.data import Files, ImageFolder, TarShards

Kind = Literal["files", "tar", "pictures", "python"]
KINDS: tuple[Kind, ...] = ("files", "tar", "pictures", "python")
SHARD_SAMPLES = 16
WIDTH, HEIGHT = 24, 16


class InPython(Dataset[torch.Tensor]):
    """Reads its own files, as users' datasets do."""

    def __init__(self, place: Path, count: int) -> None:
        self._place = place
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.from_numpy(np.load(self._place / f"{index:06}.npy"))


def store(place: Path, kind: Kind, seed: int, count: int, length: int) -> None:
    """Writes samples, if they are not there."""
    if place.exists():
        return
    place.mkdir()
    if kind == "tar":
        for first in range(0, count, SHARD_SAMPLES):
            indices = range(first, min(first + SHARD_SAMPLES, count))
            _shard(place / f"{first:06}.tar", seed, indices, length)
    elif kind == "pictures":
        (place / "class").mkdir()
        for index in range(count):
            (place / "class" / f"{index:06}.png").write_bytes(_png(_pixels(seed, index)))
    else:
        for index in range(count):
            np.save(place / f"{index:06}.npy", _numbers(seed, index, length))


def dataset(place: Path, kind: Kind, count: int) -> Any:
    """What a loader is made of."""
    if kind == "files":
        return Files(str(place / "*.npy"))
    if kind == "tar":
        return TarShards([str(path) for path in sorted(place.iterdir())])
    if kind == "pictures":
        return ImageFolder(place)
    return InPython(place, count)


def batch(kind: Kind, seed: int, indices: list[int], length: int) -> torch.Tensor:
    """What a loader must give for these samples; of pictures, without their classes."""
    if kind == "pictures":
        pixels = np.stack([_pixels(seed, index) for index in indices])
        return torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous().float().div(255)
    return torch.from_numpy(np.stack([_numbers(seed, index, length) for index in indices]))


def _numbers(seed: int, index: int, length: int) -> npt.NDArray[np.float32]:
    return np.random.default_rng((seed, index)).random(length, np.float32)


def _pixels(seed: int, index: int) -> npt.NDArray[np.uint8]:
    return np.random.default_rng((seed, index)).integers(0, 256, (HEIGHT, WIDTH, 3), np.uint8)


def _shard(path: Path, seed: int, indices: range, length: int) -> None:
    with tarfile.open(path, "w") as tar:
        for index in indices:
            file = io.BytesIO()
            np.save(file, _numbers(seed, index, length))
            member = tarfile.TarInfo(f"{index:06}.npy")
            member.size = file.tell()
            file.seek(0)
            tar.addfile(member, file)


def _png(pixels: npt.NDArray[np.uint8]) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    head = struct.pack(">IIBBBBB", WIDTH, HEIGHT, 8, 2, 0, 0, 0)
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)
    chunks = (chunk(b"IHDR", head), chunk(b"IDAT", zlib.compress(rows)), chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)
