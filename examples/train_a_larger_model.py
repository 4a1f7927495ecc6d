"""A model that does not fit on the device, trained all the same.

A small GPT with Adam needs several times the memory of the (emulated) device for its parameters,
gradients and moments. With `ferry.ShadowModel` they are in host memory, and a plan says what of
them is copied to the device when; the loop stays as it is. Plain training beside it gives the same
losses, bit for bit.

    python examples/train_a_larger_model.py
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional

import tensorferry as ferry

WORDS, WIDTH, DEPTH, LENGTH, BATCH = 512, 256, 6, 32, 2
STEPS = 12
DEVICE = "emulated:capacity=16MiB,bandwidth=2GB/s,latency=10us"
ADAM_BYTES = 16
"""Of each float32 parameter: itself, its gradient, two moments."""


class Block(nn.Module):
    """Attention and a small network, both beside the way straight through."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.attention = nn.MultiheadAttention(WIDTH, 4, batch_first=True)
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Each position sees those before it."""
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        normed = self.norms[0](x)
        found, _ = self.attention(normed, normed, normed, attn_mask=mask, need_weights=False)
        x = x + found
        inner: torch.Tensor = self.narrow(functional.gelu(self.wide(self.norms[1](x))))
        return x + inner


class Gpt(nn.Module):
    """Embedding and head are one parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(DEPTH)))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS, bias=False)
        self.head.weight = self.words.weight
        nn.init.normal_(self.words.weight, std=0.02)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """What may come next."""
        x = self.words(x) + self.places(torch.arange(x.shape[1]))
        logits: torch.Tensor = self.head(self.norm(self.blocks(x)))
        return logits


def batches() -> Callable[[int], torch.Tensor]:
    """Sentences in which every word depends on the last one."""
    draw = torch.Generator().manual_seed(0)
    following = torch.randint(WORDS, (WORDS, 2), generator=draw)

    def batch(step: int) -> torch.Tensor:
        draw = torch.Generator().manual_seed(1 + step)
        text = [torch.randint(WORDS, (BATCH,), generator=draw)]
        for _ in range(LENGTH):
            turn = torch.randint(2, (BATCH,), generator=draw)
            text.append(following[text[-1], turn])
        return torch.stack(text, dim=1)

    return batch


def train(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[float]:
    """The loop that everybody writes."""
    losses, batch = [], batches()
    for step in range(STEPS):
        text = batch(step)
        logits = model(text[:, :-1])
        loss = functional.cross_entropy(logits.flatten(0, 1), text[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(loss.item())
    return losses


def made() -> tuple[Gpt, torch.optim.Optimizer]:
    """The same model each time."""
    torch.manual_seed(0)
    model = Gpt()
    return model, ferry.optim.AdamW(model.parameters(), lr=1e-3)


def main() -> None:
    """Both ways, one after the other."""
    model, optimizer = made()
    needed = ADAM_BYTES * sum(parameter.numel() for parameter in model.parameters())
    shadow = ferry.ShadowModel(model, optimizer, DEVICE, gradient_reserve=0.0)
    capacity = shadow.report().budget
    print(f"Parameters, gradients and Adam's state: {needed / 2**20:.0f} MiB.")
    print(f"The device has {capacity / 2**20:.0f} MiB: {needed / capacity:.1f} times too few.\n")
    losses = train(shadow, optimizer)
    print(shadow.report())
    if losses != train(*made()):
        sys.exit("error: the losses are not those of plain training")
    print(f"\nTrained: loss {losses[0]:.4f} to {losses[-1]:.4f}, as plain training, bit for bit.")


if __name__ == "__main__":
    main()
