"""Files to load: pictures like photographs, as files and as shards, and arrays.

A few distinct pictures stand for many: the others are hard links, so that an epoch is long and the
disk is not filled. What is decoded is the same, and the page cache holds all of it either way.
"""

from __future__ import annotations

import importlib
import io
import os
import tarfile
from collections.abc import Sequence
from pathlib import Path

CLASSES = 8
SHARDS = 4
QUALITY = 90
GRAIN = 11.4
"""Noise that makes files of 500 x 375 about 82 KB long, as photographs of that size are."""


def jpeg(width: int, height: int, seed: int) -> bytes:
    """Smooth shapes of two sizes with grain on them."""
    import numpy as np

    image = importlib.import_module("PIL.Image")
    random = np.random.default_rng(seed)
    total = np.full((height, width, 3), 128.0, dtype=np.float32)
    for cells, strength in ((4, 70.0), (32, 18.0)):
        coarse = random.normal(128, strength, (cells * 3 // 4 + 1, cells, 3)).clip(0, 255)
        made = image.fromarray(coarse.astype(np.uint8)).resize((width, height), image.BICUBIC)
        total += np.asarray(made, dtype=np.float32) - 128
    total += GRAIN * random.standard_normal((height, width, 1), dtype=np.float32)
    file = io.BytesIO()
    image.fromarray(total.clip(0, 255).astype(np.uint8)).save(file, "JPEG", quality=QUALITY)
    return file.getvalue()


def folder(root: Path, names: int, pictures: Sequence[bytes]) -> Path:
    """``names`` files in directories of classes, as ``ImageFolder`` wants them."""
    originals: list[Path] = []
    for i in range(names):
        path = root / f"class{i % CLASSES}" / f"{i:06}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        if i < len(pictures):
            path.write_bytes(pictures[i])
            originals.append(path)
        else:
            os.link(originals[i % len(originals)], path)
    return root


def shards(directory: Path, names: int, pictures: Sequence[bytes]) -> list[Path]:
    """The same pictures in tar files, in WebDataset's layout."""
    directory.mkdir(parents=True)
    paths = [directory / f"{shard:02}.tar" for shard in range(SHARDS)]
    for shard, path in enumerate(paths):
        with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
            for i in range(shard, names, SHARDS):
                _add(tar, f"{i:06}.jpg", pictures[i % len(pictures)])
                _add(tar, f"{i:06}.cls", str(i % CLASSES).encode())
    return paths


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    tar.addfile(member, io.BytesIO(content))


def arrays(directory: Path, count: int, size: int) -> list[Path]:
    """``count`` arrays of ``size`` bytes, each with its number at both ends."""
    import numpy as np

    directory.mkdir(parents=True)
    random = np.random.default_rng(1).random(size // 4, dtype=np.float32)
    paths = [directory / f"{i:04}.npy" for i in range(count)]
    for i, path in enumerate(paths):
        random[0] = random[-1] = i
        np.save(path, random)
    return paths
