"""What is trained. Each network comes with the batches that it takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import nn

CLASSES = 10
WORDS = 256

Batch: TypeAlias = tuple[torch.Tensor, torch.Tensor]
Sizes: TypeAlias = dict[str, Any]


class Residual(nn.Module):
    """``x + f(x)``, in which ``x`` may get another shape on its way."""

    def __init__(self, body: nn.Module, way: nn.Module | None = None) -> None:
        super().__init__()
        self.body = body
        self.way = way or nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Both."""
        total: torch.Tensor = self.way(x) + self.body(x)
        return total


def mlp(sizes: Sizes) -> nn.Module:
    """A deep residual perceptron."""
    width = sizes["width"]
    blocks = [
        Residual(nn.Sequential(nn.LayerNorm(width), nn.ReLU(), nn.Linear(width, width)))
        for _ in range(sizes["depth"])
    ]
    return nn.Sequential(*blocks, nn.Linear(width, CLASSES))


def cnn(sizes: Sizes) -> nn.Module:
    """ResNet's shape: three stages, each with twice the channels on half the side."""
    width = sizes["width"]
    layers: list[nn.Module] = [*convolution(3, width)]
    for stage in range(3):
        wide = width << stage
        for block in range(sizes["blocks"]):
            halves = stage > 0 and block == 0
            before = wide // 2 if halves else wide
            step = 2 if halves else 1
            body = nn.Sequential(*convolution(before, wide, step), *convolution(wide, wide)[:2])
            way = nn.Conv2d(before, wide, 1, step) if halves else None
            layers += [Residual(body, way), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers, *head(width << 2))


def deep(sizes: Sizes) -> nn.Module:
    """As many layers as memory would not hold: one stage."""
    width = sizes["width"]
    blocks: list[nn.Module] = [
        Residual(nn.Sequential(nn.BatchNorm2d(width), nn.ReLU(), conv(width, width)))
        for _ in range(sizes["depth"])
    ]
    return nn.Sequential(conv(3, width), *blocks, *head(width))


class Transformer(nn.Module):
    """Words to the next words."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        width = sizes["width"]
        self.words = nn.Embedding(WORDS, width)
        layer = nn.TransformerEncoderLayer(width, max(1, width // 64), 4 * width, batch_first=True)
        self.body = nn.TransformerEncoder(layer, sizes["depth"], enable_nested_tensor=False)
        self.head = nn.Linear(width, WORDS)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """A guess for each place."""
        guesses: torch.Tensor = self.head(self.body(self.words(x)))
        return guesses.flatten(0, 1)


def conv(before: int, after: int, step: int = 1) -> nn.Module:
    """A convolution of 3 x 3."""
    return nn.Conv2d(before, after, 3, step, padding=1, bias=False)


def convolution(before: int, after: int, step: int = 1) -> list[nn.Module]:
    """Such a one with what follows it."""
    return [conv(before, after, step), nn.BatchNorm2d(after), nn.ReLU(inplace=True)]


def head(width: int) -> list[nn.Module]:
    """From pixels to classes."""
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, CLASSES)]


def rows(sizes: Sizes, count: int) -> Batch:
    """Rows of numbers."""
    return torch.randn(count, sizes["width"]), torch.randint(CLASSES, (count,))


def pictures(sizes: Sizes, count: int) -> Batch:
    """Noise of the shape of pictures."""
    return torch.randn(count, 3, sizes["side"], sizes["side"]), torch.randint(CLASSES, (count,))


def texts(sizes: Sizes, count: int) -> Batch:
    """Words."""
    words = torch.randint(WORDS, (count, sizes["length"]))
    return words, words.roll(-1, 1).flatten()


@dataclass(frozen=True)
class Network:
    """A model of some sizes, and its batches."""

    make: Callable[[Sizes], nn.Module]
    batch: Callable[[Sizes, int], Batch]


NETWORKS = {
    "mlp": Network(mlp, rows),
    "cnn": Network(cnn, pictures),
    "transformer": Network(Transformer, texts),
    "deep": Network(deep, pictures),
}
"""By the name by which a child is asked for one."""
