"""A batch that does not fit into memory, trained all the same.

Two processes get the same limit on their memory, as a container or a smaller machine would have it,
and train the same residual network on the same batch. Plain training runs out of memory. With
`ferry.ActivationOffload` the same code succeeds: what autograd saves goes to files in the meantime.

    python examples/train_a_larger_batch.py [directory on a fast disk]
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import torch
from torch import nn

import tensorferry as ferry

BATCH = 48
BLOCKS = 16
CHANNELS = 32
SIDE = 64
STEPS = 2
BUDGET = "96MiB"
LIMIT_BYTES = 400 << 20
"""Above what a process has taken once it has a model: half of what plain training wants."""
OUT_OF_MEMORY = 3


class Block(nn.Module):
    """A residual block."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(CHANNELS)
        self.conv = nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """What came in, and what was found in it."""
        found: torch.Tensor = self.conv(torch.relu(self.norm(x)))
        return x + found


def network() -> nn.Module:
    """Many layers of the same size: every one of them saves what backward needs."""
    return nn.Sequential(
        nn.Conv2d(3, CHANNELS, 3, padding=1),
        *(Block() for _ in range(BLOCKS)),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(CHANNELS, 10),
    )


def train(around: AbstractContextManager[object], pictures: torch.Tensor) -> None:
    """The only difference is what the forward pass is put into."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    labels = torch.randint(10, (len(pictures),))
    for step in range(STEPS):
        start = time.perf_counter()
        optimizer.zero_grad()
        with around:
            loss = nn.functional.cross_entropy(model(pictures), labels)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        took = time.perf_counter() - start
        print(f"    step {step + 1}: loss {loss.item():.4f}, {took:.1f} s", flush=True)


def limit_memory() -> None:
    """So much private memory is allowed from now on, as `ulimit -d` does it."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmData:"):
            most = int(line.split()[1]) * 1024 + LIMIT_BYTES
            resource.setrlimit(resource.RLIMIT_DATA, (most, most))


def child(directory: str | None) -> int:
    """One of the two processes."""
    torch.manual_seed(0)
    # Everything runs once, so that the limit is about the batch and not about libraries.
    network()(torch.randn(2, 3, SIDE, SIDE)).sum().backward()
    around: AbstractContextManager[object] = nullcontext()
    if directory is not None:
        around = ferry.ActivationOffload(directory, BUDGET)
    limit_memory()
    try:
        train(around, torch.randn(BATCH, 3, SIDE, SIDE))
    except (RuntimeError, MemoryError) as error:
        print(f"    failed: {str(error).splitlines()[0]}")
        return OUT_OF_MEMORY
    if isinstance(around, ferry.ActivationOffload):
        print("    " + str(around.report()).replace("\n", "\n    "))
    return 0


def run(title: str, *arguments: str) -> int:
    """Starts this file again."""
    print(title, flush=True)
    command = [sys.executable, __file__, "--child", *arguments]
    return subprocess.run(command, check=False).returncode


def main() -> None:
    """Both ways, one after the other."""
    place = sys.argv[1] if len(sys.argv) > 1 else str(Path(__file__).resolve().parent)
    saved = BATCH * SIDE * SIDE * CHANNELS * 4 * 2 * BLOCKS
    print(f"A network of {BLOCKS} blocks saves {saved / 2**30:.1f} GiB for a batch of {BATCH}.")
    print(f"Each process may take {LIMIT_BYTES >> 20} MiB beyond its model.\n")
    plain = run("  plain training:")
    with tempfile.TemporaryDirectory(dir=place) as directory:
        ours = run(f"\n  with ferry.ActivationOffload, budget {BUDGET}:", directory)
    if (plain, ours) != (OUT_OF_MEMORY, 0):
        sys.exit("error: plain training should have failed, and the other should not")
    print("\nThe batch that did not fit was trained.")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        sys.exit(child(sys.argv[2] if len(sys.argv) > 2 else None))
    main()
