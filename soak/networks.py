"""Small networks that save what real ones do, and batches for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import nn

WIDTH, WORDS = 64, 16
INTEGERS = {2: torch.int16, 4: torch.int32, 8: torch.int64}
"""By bytes."""


class Residual(nn.Module):
    """A block whose input is used twice."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Beside the way straight through."""
        added: torch.Tensor = x + self.inner(x)
        return added


def wide(depth: int) -> nn.Module:
    """Layers on vectors."""
    width = 4 * WIDTH
    layers = [
        nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.LayerNorm(width)) for _ in range(depth)
    ]
    return nn.Sequential(*layers)


def pictures(depth: int) -> nn.Module:
    """Convolutions, with operations in place and chance."""
    blocks = [
        Residual(nn.Sequential(nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16), nn.GELU()))
        for _ in range(depth)
    ]
    ends = [nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Dropout(0.1), nn.Linear(256, 10)]
    return nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(inplace=True), *blocks, *ends)


def sentences(depth: int) -> nn.Module:
    """Attention."""
    layer = nn.TransformerEncoderLayer(
        WIDTH, 4, 2 * WIDTH, dropout=0.1, activation="gelu", batch_first=True, norm_first=True
    )
    return nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)


Make = Callable[[int], nn.Module]
NETWORKS: dict[str, tuple[Make, tuple[int, ...]]] = {
    "wide": (wide, (512, 4 * WIDTH)),
    "pictures": (pictures, (16, 3, 24, 24)),
    "sentences": (sentences, (24, WORDS, WIDTH)),
}
"""What makes each, for a depth, and the shape of a batch."""


def network(name: str, depth: int, seed: int) -> nn.Module:
    """The same for the same seed."""
    torch.manual_seed(seed)
    return NETWORKS[name][0](depth)


def batch(name: str, seed: int, step: int, share: float = 1.0) -> torch.Tensor:
    """Of one step; ``share`` of the usual number of samples."""
    count, *shape = NETWORKS[name][1]
    generator = torch.Generator().manual_seed(seed * 1000 + step)
    return torch.randn(max(2, int(count * share)), *shape, generator=generator)


def alike(mine: Sequence[torch.Tensor], theirs: Sequence[torch.Tensor], what: str) -> None:
    """``ValueError`` if they are not the same, bit for bit."""
    if len(mine) != len(theirs):
        raise ValueError(f"{what}: {len(mine)} tensors, not {len(theirs)}")
    for number, (one, other) in enumerate(zip(mine, theirs, strict=True)):
        # As integers: what is no number is equal to nothing.
        bits = INTEGERS[one.element_size()]
        if not torch.equal(one.detach().view(bits), other.detach().view(bits)):
            raise ValueError(f"{what}: tensor {number} of {len(mine)} is not as without")
