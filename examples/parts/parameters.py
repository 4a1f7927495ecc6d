"""Parameters: a model and Adam's state that do not fit on the device, beside copying every layer.

A small GPT is trained with `ferry.ShadowModel` on an emulated device behind a slow link: once as
the exact planner says, once with every layer copied in, as ZeRO-Offload does. Both must come to the
losses of plain training, bit for bit.
"""

from __future__ import annotations

import statistics
from functools import partial
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

import tensorferry as ferry
from parts.common import say, seconds

WORDS, WIDTH, BLOCKS, LENGTH = 8192, 128, 2, 16
STEPS, PLANNED = 14, 6
"""Steps, and the last of them, which follow a plan."""
DEVICE = "emulated:capacity=14MiB,bandwidth=50MB/s,latency=20us"
ADAM_BYTES = 16
"""Of each float32 parameter: itself, its gradient, two moments."""


class Gpt(nn.Module):
    """Words, blocks of attention, a head."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        block = partial(nn.TransformerEncoderLayer, WIDTH, 4, 4 * WIDTH, 0.0, batch_first=True)
        self.blocks = nn.ModuleList(block() for _ in range(BLOCKS))
        self.head = nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """What may come next."""
        mask = nn.Transformer.generate_square_subsequent_mask(LENGTH)
        x = self.words(x) + self.places(torch.arange(LENGTH))
        for block in self.blocks:
            x = block(x, mask, is_causal=True)
        logits: torch.Tensor = self.head(x)
        return logits


class Training:
    """The loop that everybody writes, step by step, with a planner or without."""

    def __init__(self, planner: str | None) -> None:
        torch.manual_seed(0)
        self.model: nn.Module = Gpt()
        self.optimizer = ferry.optim.AdamW(self.model.parameters(), lr=1e-3)
        if planner is not None:
            self.model = ferry.ShadowModel(
                self.model,
                self.optimizer,
                DEVICE,
                planner=planner,  # type: ignore[arg-type]
                gradient_reserve=0.0,
            )
        self.random = torch.Generator().manual_seed(0)
        self.losses: list[float] = []
        self.times: list[float] = []

    def step(self) -> None:
        """One batch, on the clock."""
        self.times.append(seconds(self.train))

    def train(self) -> None:
        """The loop's body."""
        text = torch.randint(WORDS, (1, LENGTH + 1), generator=self.random)
        logits = self.model(text[:, :-1])
        loss = functional.cross_entropy(logits.flatten(0, 1), text[:, 1:].flatten())
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        self.losses.append(loss.item())


def run(_scratch: Path) -> str:
    """Does the part; what was measured."""
    needed = ADAM_BYTES * sum(parameter.numel() for parameter in Gpt().parameters())
    capacity = ferry.parse_size(DEVICE.partition("=")[2].partition(",")[0])
    say(f"{STEPS} steps of a GPT: {needed / 2**20:.0f} MiB with Adam's state, on a device with")
    say(f"{capacity / 2**20:.0f} MiB, {needed / capacity:.1f} times too few")
    names = {
        "ferry.ShadowModel": Training("exact"),
        "ferry.ShadowModel, every layer copied": Training("copy"),
        "plain training, all on the device": Training(None),
    }
    threads = torch.get_num_threads()
    # A core is left to copies and updates, as beside a real device.
    torch.set_num_threads(1)
    for _ in range(STEPS):
        for training in names.values():
            training.step()
    torch.set_num_threads(threads)
    exact, copy, plain = (training.losses for training in names.values())
    assert exact == copy == plain, "losses must be the same, bit for bit"
    return table(names)


def table(trainings: dict[str, Training]) -> str:
    """What was measured, as medians of the steps that follow a plan."""
    rows = [f"  {'':44} {'seconds':>8} {'MiB':>7}"]
    for name, training in trainings.items():
        used = ""
        if isinstance(training.model, ferry.ShadowModel):
            used = f"{training.model.report().peak_bytes / 2**20:.1f}"
        middle = statistics.median(training.times[-PLANNED:])
        rows.append(f"  {name:44} {middle:8.3f} {used:>7}")
    checked = "A step, and memory of the device. Losses were the same, bit for bit."
    return "\n".join([*rows, "", f"  {checked}"])
