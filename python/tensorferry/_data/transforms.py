"""Transforms, with torchvision's names and meanings, carried out by the core.

A chain is plain data until a loader is made of it: ``Compose([Decode(), RandomResizedCrop(224)])``.
Without :class:`ToDtype`, pictures come out as torchvision's ``ToTensor`` gives them: float32 from 0
to 1 in the order channels, height, width. Random choices follow from the loader's seed, the epoch
and the sample's index.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tensorferry._errors import InvalidInput


class Transform:
    """A step of a chain."""

    def __init__(self, **arguments: Any) -> None:
        self._arguments = arguments

    def steps(self) -> list[str | Callable[[Any], Any]]:
        """As the core takes them: texts, and functions of the user's."""
        return [json.dumps({"name": type(self).__name__, **self._arguments})]

    def __repr__(self) -> str:
        arguments = ", ".join(f"{name}={value!r}" for name, value in self._arguments.items())
        return f"{type(self).__name__}({arguments})"


class Compose(Transform):
    """Steps, one after the other."""

    def __init__(self, transforms: Iterable[Transform]) -> None:
        super().__init__()
        self.transforms = list(transforms)
        for each in self.transforms:
            check(each)

    def steps(self) -> list[str | Callable[[Any], Any]]:
        return [step for each in self.transforms for step in each.steps()]

    def __repr__(self) -> str:
        return f"Compose({self.transforms!r})"


class Decode(Transform):
    """How pictures are decoded. A picture of more than ``max_pixels`` is refused unread.

    ``fast`` decodes large JPEG pictures that become small at a fraction of their size: faster, and
    not exactly what torchvision gives.
    """

    def __init__(
        self,
        mode: str = "RGB",
        *,
        apply_exif_orientation: bool = False,
        max_pixels: int | None = None,
        fast: bool = False,
    ) -> None:
        limit = {} if max_pixels is None else {"max_pixels": max_pixels}
        super().__init__(
            mode=mode, apply_exif_orientation=apply_exif_orientation, fast=fast, **limit
        )


class ToTensor(Transform):
    """What pictures come out as anyway: here so that chains for torchvision can be kept."""

    def steps(self) -> list[str | Callable[[Any], Any]]:
        return []


class RandomResizedCrop(Transform):
    """A random part of a picture, of random shape, resized."""

    def __init__(
        self,
        size: int | Sequence[int],
        scale: Sequence[float] = (0.08, 1.0),
        ratio: Sequence[float] = (3 / 4, 4 / 3),
        interpolation: Any = "bilinear",
        antialias: bool | None = True,
    ) -> None:
        super().__init__(
            size=_sides(size),
            scale=list(scale),
            ratio=list(ratio),
            interpolation=_interpolation(interpolation),
            antialias=antialias,
        )


class Resize(Transform):
    """A picture resized: to height and width, or its shorter side to one number."""

    def __init__(
        self,
        size: int | Sequence[int],
        interpolation: Any = "bilinear",
        max_size: int | None = None,
        antialias: bool | None = True,
    ) -> None:
        super().__init__(
            size=_sides(size),
            interpolation=_interpolation(interpolation),
            max_size=max_size,
            antialias=antialias,
        )


class CenterCrop(Transform):
    """The middle of a picture, in a black frame if that is smaller."""

    def __init__(self, size: int | Sequence[int]) -> None:
        super().__init__(size=_sides(size))


class RandomCrop(Transform):
    """A random part of a picture."""

    def __init__(
        self,
        size: int | Sequence[int],
        padding: int | Sequence[int] | None = None,
        pad_if_needed: bool = False,
        fill: int = 0,
        padding_mode: str = "constant",
    ) -> None:
        if padding_mode != "constant":
            raise InvalidInput(f"padding_mode={padding_mode!r}: only 'constant' is known")
        padding = None if padding is None else _sides(padding)
        super().__init__(size=_sides(size), padding=padding, pad_if_needed=pad_if_needed, fill=fill)


class RandomHorizontalFlip(Transform):
    """Left and right exchanged, with probability ``p``."""

    def __init__(self, p: float = 0.5) -> None:
        super().__init__(p=p)


class RandomVerticalFlip(Transform):
    """Top and bottom exchanged, with probability ``p``."""

    def __init__(self, p: float = 0.5) -> None:
        super().__init__(p=p)


class Normalize(Transform):
    """Less the mean, divided by the deviation, for each channel."""

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__(mean=[float(each) for each in mean], std=[float(each) for each in std])


class ToDtype(Transform):
    """The type of the result: float32, float16, bfloat16 or uint8, by name or as torch's.

    With ``scale``, bytes become 0 to 1 if it is a float.
    """

    def __init__(self, dtype: Any, scale: bool = False) -> None:
        super().__init__(dtype=str(dtype).removeprefix("torch."), scale=scale)


class ToLayout(Transform):
    """The order of a picture's dimensions: ``"CHW"`` or ``"HWC"``."""

    def __init__(self, layout: str) -> None:
        super().__init__(layout=layout)


class RandomCrop3D(Transform):
    """A random part of a volume, along its last three dimensions."""

    def __init__(self, size: int | Sequence[int]) -> None:
        super().__init__(size=_sides(size))


class RandomFlip3D(Transform):
    """Each of a volume's last three dimensions reversed, with probability ``p``."""

    def __init__(self, p: float = 0.5) -> None:
        super().__init__(p=p)


class Log(Transform):
    """The logarithm of every element plus ``offset``."""

    def __init__(self, offset: float = 1.0) -> None:
        super().__init__(offset=offset)


class AsStored(Transform):
    """Sound of 16 bits as it is in the file: int16 of shape [frames, channels], read straight into
    the batch. Without it, sound comes out as float32 from -1 to 1 of shape [channels, frames]."""


class Lambda(Transform):
    """A function of yours. It gets a tensor and gives one, on any of several threads."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        if not callable(function):
            raise InvalidInput(f"Lambda needs a function, not {function!r}")
        super().__init__(function=function)

    def steps(self) -> list[str | Callable[[Any], Any]]:
        return [self._arguments["function"]]


def check(transform: object) -> Transform:
    """The transform, if it is one of ours."""
    if isinstance(transform, Transform):
        return transform
    raise InvalidInput(
        f"{transform!r} is no transform of tensorferry.data.transforms; wrap a function of tensors "
        "in transforms.Lambda"
    )


def _sides(size: int | Sequence[int]) -> int | list[int]:
    return size if isinstance(size, int) else [int(side) for side in size]


def _interpolation(name: Any) -> str:
    """By name, or as torchvision's enumeration."""
    return str(getattr(name, "value", name))
