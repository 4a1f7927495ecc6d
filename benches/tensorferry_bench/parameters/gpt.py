"""A small GPT, its batches, and a process that trains it with or without a shadow."""

from __future__ import annotations

import hashlib
import time
from typing import Any

import torch
from torch import nn
from torch.nn import functional

import tensorferry as ferry
from tensorferry_bench.parameters.scale import Shape

HEADS = 4
THREADS = 1
SETTINGS: dict[str, Any] = {"lr": 1e-3, "weight_decay": 1e-2}


class Block(nn.Module):
    """Attention and a small network, both beside the way straight through."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.ask, self.answer = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Each position sees those before it."""
        heads = self.ask(self.before(x)).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        query, key, value = heads.unbind()
        found = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.answer(found.transpose(1, 2).flatten(2))
        inner: torch.Tensor = self.narrow(functional.gelu(self.wide(self.between(x))))
        return x + inner


class Gpt(nn.Module):
    """Embedding and head have parameters of their own."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.words = nn.Embedding(shape.words, shape.width)
        self.places = nn.Embedding(shape.length, shape.width)
        self.blocks = nn.Sequential(*(Block(shape.width) for _ in range(shape.blocks)))
        self.norm = nn.LayerNorm(shape.width)
        self.head = nn.Linear(shape.width, shape.words, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """What may come next."""
        x = self.words(x) + self.places(torch.arange(x.shape[1]))
        logits: torch.Tensor = self.head(self.norm(self.blocks(x)))
        return logits


class Training:
    """A model with its optimizer; the same for everybody, apart from where parameters are."""

    def __init__(self, shape: Shape, shadow: dict[str, Any] | None) -> None:
        torch.set_num_threads(THREADS)
        torch.manual_seed(0)
        self._shape = shape
        self._random = torch.Generator().manual_seed(0)
        plain = Gpt(shape)
        self.parameters = list(plain.parameters())
        self._optimizer = ferry.optim.AdamW(self.parameters, **SETTINGS)
        self.shadow: ferry.ShadowModel | None = None
        if shadow is not None:
            self.shadow = ferry.ShadowModel(plain, self._optimizer, **shadow)
        self._model = plain if self.shadow is None else self.shadow
        self.losses: list[float] = []

    @property
    def parameter_bytes(self) -> int:
        """Of the model."""
        return sum(parameter.nbytes for parameter in self.parameters)

    def step(self) -> float:
        """One iteration; its seconds."""
        size = (self._shape.batch, self._shape.length + 1)
        text = torch.randint(self._shape.words, size, generator=self._random)
        began = time.perf_counter()
        logits = self._model(text[:, :-1])
        loss = functional.cross_entropy(logits.flatten(0, 1), text[:, 1:].flatten())
        self._optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()
        seconds = time.perf_counter() - began
        self.losses.append(loss.item())
        return seconds

    def fingerprint(self) -> str:
        """Of every loss so far and of every parameter."""
        found = hashlib.sha256(repr(self.losses).encode())
        for parameter in self.parameters:
            found.update(parameter.detach().numpy().data)
        return found.hexdigest()
