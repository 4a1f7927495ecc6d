"""The same work by everybody: decode, RandomResizedCrop(224), flip, normalize, collate.

Each is written as its own users would write it, with two workers or threads where it has them.
Iterating over one is an epoch.
"""

from __future__ import annotations

import importlib
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)
SIDE = 224
WORKERS = 2
DALI_QUEUE = 2
SCALE = (0.08, 1.0)
RATIO = (3 / 4, 4 / 3)
CROP_ATTEMPTS = 10


class Loader(Protocol):
    """What a turn needs."""

    def __iter__(self) -> Iterator[Any]:
        """An epoch."""

    def close(self) -> None:
        """Ends processes and threads."""


class Ferry:
    """Ours."""

    def __init__(self, root: Path, batch: int) -> None:
        import tensorferry as ferry
        from tensorferry.data import ImageFolder
        from tensorferry.data import transforms as t

        chain = t.Compose(
            [
                t.Decode(),
                t.RandomResizedCrop(SIDE),
                t.RandomHorizontalFlip(),
                t.Normalize(MEAN, STD),
            ]
        )
        self._loader = ferry.DataLoader(
            ImageFolder(root),
            batch,
            shuffle=True,
            seed=0,
            num_workers=WORKERS,
            transform=chain,
            cache_limit=0,
        )

    def __iter__(self) -> Iterator[Any]:
        return iter(self._loader)

    def close(self) -> None:
        """Ends its threads."""
        self._loader.close()


def usual_transforms() -> Any:
    """torchvision's, on PIL's images."""
    v1 = importlib.import_module("torchvision.transforms")
    return v1.Compose(
        [
            v1.RandomResizedCrop(SIDE),
            v1.RandomHorizontalFlip(),
            v1.ToTensor(),
            v1.Normalize(MEAN, STD),
        ]
    )


class Torch:
    """torch's, with torchvision's datasets and transforms."""

    workers = WORKERS

    def __init__(self, root: Path, batch: int) -> None:
        from torch.utils.data import DataLoader

        datasets = importlib.import_module("torchvision.datasets")
        self._loader: DataLoader[Any] = DataLoader(
            datasets.ImageFolder(root, usual_transforms()),
            batch,
            shuffle=True,
            num_workers=self.workers,
            persistent_workers=self.workers > 0,
        )

    def __iter__(self) -> Iterator[Any]:
        return iter(self._loader)

    def close(self) -> None:
        """Workers end with the last reference."""
        del self._loader


class TorchAlone(Torch):
    """The same without workers."""

    workers = 0


class WebDataset:
    """WebDataset's tar shards, in torch's workers."""

    def __init__(self, root: Path, batch: int) -> None:
        wds = importlib.import_module("webdataset")
        shards = sorted(str(path) for path in root.with_name(root.name + "-shards").glob("*.tar"))
        dataset = (
            wds.WebDataset(shards, shardshuffle=len(shards))
            .shuffle(4 * batch)
            .decode("pil")
            .to_tuple("jpg", "cls")
            .map_tuple(usual_transforms(), int)
            .batched(batch)
        )
        self._loader: Any = wds.WebLoader(
            dataset, batch_size=None, num_workers=WORKERS, persistent_workers=True
        )

    def __iter__(self) -> Iterator[Any]:
        return iter(self._loader)

    def close(self) -> None:
        """Workers end with the last reference."""
        del self._loader


class Dali:
    """DALI's pipeline on the processor; a batch is memory that the one after next overwrites."""

    def __init__(self, root: Path, batch: int) -> None:
        from torch.utils.dlpack import from_dlpack

        self._tensor = from_dlpack
        dali = importlib.import_module("nvidia.dali")
        fn, types = dali.fn, dali.types
        self._batch = batch
        self._pipe: Any = dali.Pipeline(
            batch, WORKERS, None, seed=0, prefetch_queue_depth=DALI_QUEUE
        )
        with self._pipe:
            raw, labels = fn.readers.file(
                file_root=str(root), random_shuffle=True, name="files", pad_last_batch=True
            )
            images = fn.decoders.image_random_crop(raw, output_type=types.RGB)
            images = fn.resize(images, size=(SIDE, SIDE), antialias=True)
            images = fn.crop_mirror_normalize(
                images,
                mirror=fn.random.coin_flip(),
                output_layout="CHW",
                mean=[255 * each for each in MEAN],
                std=[255 * each for each in STD],
            )
            self._pipe.set_outputs(images, labels)
        self._pipe.build()

    def __iter__(self) -> Iterator[Any]:
        samples = self._pipe.reader_meta("files")["epoch_size"]
        for _ in range(-(-samples // self._batch)):
            images, labels = self._pipe.run()
            yield (
                self._tensor(images.as_tensor()),
                self._tensor(labels.as_tensor()).view(-1),
            )

    def close(self) -> None:
        """Its threads end with the last reference."""
        del self._pipe


class Spdl:
    """SPDL's pipeline of threads; FFmpeg crops, scales and flips while it decodes."""

    def __init__(self, root: Path, batch: int) -> None:
        import torch

        self._io = importlib.import_module("spdl.io")
        self._builder = importlib.import_module("spdl.pipeline").PipelineBuilder
        self._batch = batch
        self._random = random.Random(0)
        classes = sorted(path for path in root.iterdir() if path.is_dir())
        self._files = [
            (str(file), label) for label, path in enumerate(classes) for file in path.iterdir()
        ]
        self._mean = torch.tensor(MEAN).view(1, 3, 1, 1) * 255
        self._std = torch.tensor(STD).view(1, 3, 1, 1) * 255
        # A pipeline passes over what fails; without FFmpeg's libraries that is everything.
        self._decode(self._files[0])

    def _decode(self, sample: tuple[str, int]) -> tuple[Any, int]:
        path, label = sample
        packets = self._io.demux_image(path)
        x, y, width, height = random_crop(self._random, packets.codec.width, packets.codec.height)
        chain = f"crop=w={width}:h={height}:x={x}:y={y}:exact=1,"
        chain += f"scale=w={SIDE}:h={SIDE}:flags=bilinear,"
        chain += "hflip," if self._random.random() < 0.5 else ""
        frames = self._io.decode_packets(packets, filter_desc=chain + "format=pix_fmts=rgb24")
        return frames, label

    def _collate(self, samples: list[tuple[Any, int]]) -> tuple[Any, Any]:
        import torch

        batch = self._io.to_torch(self._io.convert_frames([frames for frames, _ in samples]))
        images = batch.permute(0, 3, 1, 2).to(torch.float32, memory_format=torch.contiguous_format)
        labels = torch.tensor([label for _, label in samples])
        return images.sub_(self._mean).div_(self._std), labels

    def __iter__(self) -> Iterator[Any]:
        order = self._random.sample(self._files, len(self._files))
        pipeline = (
            self._builder()
            .add_source(order)
            .pipe(self._decode, concurrency=WORKERS)
            .aggregate(self._batch)
            .pipe(self._collate)
            .add_sink(2)
            .build(num_threads=WORKERS)
        )
        with pipeline.auto_stop():
            yield from pipeline

    def close(self) -> None:
        """Its threads end with an epoch."""


def random_crop(draw: random.Random, width: int, height: int) -> tuple[int, int, int, int]:
    """torchvision's RandomResizedCrop: left, top, width, height."""
    for _ in range(CROP_ATTEMPTS):
        area = width * height * draw.uniform(*SCALE)
        ratio = RATIO[0] * (RATIO[1] / RATIO[0]) ** draw.random()
        w, h = round((area * ratio) ** 0.5), round((area / ratio) ** 0.5)
        if 0 < w <= width and 0 < h <= height:
            return draw.randint(0, width - w), draw.randint(0, height - h), w, h
    return 0, 0, width, height


LOADERS: dict[str, Callable[[Path, int], Loader]] = {
    "ferry": Ferry,
    "torch": Torch,
    "torch alone": TorchAlone,
    "dali": Dali,
    "spdl": Spdl,
    "webdataset": WebDataset,
}
"""By the name by which a child is asked for one."""
