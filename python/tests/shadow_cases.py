"""Models, loops and plans that the tests of shadow models share."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional

import tensorferry as ferry

DEVICE = "emulated:capacity=64MiB,bandwidth=8GB/s,latency=1us"
STEPS = 50

Make = Callable[[], nn.Module]
Batches = Callable[[int], tuple[torch.Tensor, torch.Tensor]]


def mlp() -> nn.Module:
    return nn.Sequential(
        nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 32), nn.LayerNorm(32), nn.Linear(32, 4)
    )


def cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(inplace=True),
        nn.Dropout(0.2),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(32, 4),
    )


class Block(nn.Module):
    """A transformer's block, with attention whose projection is never called."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True)
        self.inner = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        normed = self.norm(x)
        length = x.shape[1]
        mask = torch.triu(torch.ones(length, length, dtype=torch.bool), diagonal=1)
        found, _ = self.attention(normed, normed, normed, attn_mask=mask, need_weights=False)
        x = x + found
        inner: torch.Tensor = self.inner(x)
        return x + inner


class Gpt(nn.Module):
    """Tied embedding and head, a parameter of its own, and blocks."""

    def __init__(self, words: int = 24, width: int = 16, depth: int = 2) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.places = nn.Parameter(torch.randn(8, width) * 0.02)
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, words, bias=False)
        self.head.weight = self.words.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.words(x) + self.places[: x.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits: torch.Tensor = self.head(self.norm(x))
        return logits.flatten(0, 1)


def vectors(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(step)
    return torch.randn(8, 16, generator=draw), torch.randint(4, (8,), generator=draw)


def pictures(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(step)
    return torch.randn(8, 3, 8, 8, generator=draw), torch.randint(4, (8,), generator=draw)


def sentences(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(step)
    text = torch.randint(24, (4, 9), generator=draw)
    return text[:, :-1], text[:, 1:].flatten()


MODELS: dict[str, tuple[Make, Batches]] = {
    "mlp": (mlp, vectors),
    "cnn": (cnn, pictures),
    "gpt": (Gpt, sentences),
}


@dataclass
class Trained:
    """Everything that must be the same."""

    losses: list[float]
    parameters: dict[str, torch.Tensor]
    model: nn.Module
    optimizer: torch.optim.Optimizer


Wrap = Callable[[nn.Module, torch.optim.Optimizer], nn.Module]
Loop = Callable[[nn.Module, torch.optim.Optimizer, Batches, int], list[float]]
Optimizing = Callable[[nn.Module], torch.optim.Optimizer]


def ours(model: nn.Module) -> torch.optim.Optimizer:
    return ferry.optim.AdamW(model.parameters(), lr=1e-2)


def loop(
    model: nn.Module, optimizer: torch.optim.Optimizer, batch: Batches, steps: int
) -> list[float]:
    """The loop that everybody writes."""
    losses = []
    for step in range(steps):
        x, y = batch(step)
        loss = functional.cross_entropy(model(x).float(), y)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(loss.item())
    return losses


def trained(
    make: Make,
    batch: Batches,
    wrap: Wrap | None = None,
    *,
    run: Loop = loop,
    optimizing: Optimizing = ours,
    steps: int = STEPS,
) -> Trained:
    """A model after so many steps, wrapped or plain."""
    torch.manual_seed(0)
    plain = make()
    optimizer = optimizing(plain)
    model = plain if wrap is None else wrap(plain, optimizer)
    torch.manual_seed(1)
    losses = run(model, optimizer, batch, steps)
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    return Trained(losses, state, model, optimizer)


def assert_same(mine: Trained, other: Trained) -> None:
    assert mine.losses == other.losses
    assert list(mine.parameters) == list(other.parameters)
    for name, tensor in mine.parameters.items():
        assert torch.equal(tensor, other.parameters[name]), name


def shadowed(**options: Any) -> Wrap:
    """A wrap with these options."""

    def wrap(model: nn.Module, optimizer: torch.optim.Optimizer) -> nn.Module:
        given: dict[str, Any] = {"device": DEVICE, "profile_steps": 1} | options
        return ferry.ShadowModel(model, optimizer, **given)

    return wrap


def forced(modes: Sequence[str], gradient: str) -> Callable[[str], str]:
    """A planner that gives layers these modes in turn, and every gradient this place."""

    def plan(profile: str) -> str:
        layers = json.loads(profile)["layers"]
        chosen = list(itertools.islice(itertools.cycle(modes), len(layers)))
        copied = [i for i, layer in enumerate(layers) if layer["parameter_bytes"]]
        forward = [i for i in copied if chosen[i] == "gfgb"]
        backward = [i for i in reversed(copied) if chosen[i] == "dfgb"]
        return json.dumps(
            {
                "version": 1,
                "planner": "exact",
                "budget": 0,
                "gradient_reserve": 0,
                "choices": [
                    {
                        "mode": mode,
                        "gradient": gradient if layer["gradient_bytes"] else "none",
                        "why": "forced",
                    }
                    for mode, layer in zip(chosen, layers, strict=True)
                ],
                "copy_order": forward + backward,
                "predicted": dict.fromkeys(
                    ["seconds", "compute_seconds", "forward_wait", "backward_wait", "tail_seconds"],
                    0.0,
                )
                | dict.fromkeys(["device_bytes", "copied_bytes", "direct_bytes"], 0),
            }
        )

    return plan


MIXES = {
    "copied": ["gfgb"],
    "in place": ["dha"],
    "both": ["dfgb"],
    "mixed": ["gfgb", "dha", "dfgb"],
    "otherwise mixed": ["dfgb", "gfgb", "dha", "dha"],
}
