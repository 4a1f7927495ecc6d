"""Activations: training with most of what autograd saves on disk, beside plain training.

A deep network is trained plainly and with `ferry.ActivationOffload`, each in a process of its own,
and must come to the same gradients, bit for bit.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import nn

import tensorferry as ferry
from parts.common import say

DEPTH, WIDTH, BATCH = 24, 256, 4096
# The first is measured, and planned for again after the second.
FIRST, STEPS = 2, 7
BUDGET = "24MiB"


def network() -> nn.Module:
    """A deep perceptron."""
    layers = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU()) for _ in range(DEPTH)]
    return nn.Sequential(*layers)


def memory(field: str) -> int:
    """Bytes of this process, as the kernel counts them."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise LookupError(field)


def train(around: AbstractContextManager[object]) -> dict[str, Any]:
    """Some steps; a step's seconds, the memory above the model's, the gradients."""
    torch.manual_seed(0)
    model = network()
    model(torch.randn(2, WIDTH)).sum().backward()
    x, before = torch.randn(BATCH, WIDTH), memory("VmRSS")
    seconds = []
    for _ in range(STEPS):
        start = time.perf_counter()
        model.zero_grad(set_to_none=False)
        with around:
            loss = model(x).square().mean()
        loss.backward()
        seconds.append(time.perf_counter() - start)
    sums = [p.grad.view(torch.int32).sum().item() for p in model.parameters() if p.grad is not None]
    typical = statistics.median(seconds[FIRST:])
    return {"seconds": typical, "bytes": memory("VmHWM") - before, "gradients": sums}


def in_a_process(way: str, scratch: Path) -> dict[str, Any]:
    """Memory is told by a process that did nothing else."""
    command = [sys.executable, "-m", "parts.activations", way, str(scratch)]
    place = Path(__file__).resolve().parent.parent
    done = subprocess.run(command, cwd=place, check=True, capture_output=True)
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def run(scratch: Path) -> str:
    """Does the part; what was measured."""
    say(f"{STEPS} steps of {DEPTH} layers with a batch of {BATCH}, plainly and with a budget")
    plain, ours = (in_a_process(way, scratch) for way in ("plain", "ours"))
    assert plain["gradients"] == ours["gradients"], "gradients must be the same, bit for bit"
    rows = [f"  {'':44} {'seconds':>8} {'MiB':>7}"]
    names = {f"ferry.ActivationOffload, budget {BUDGET}": ours, "plain training": plain}
    for name, told in names.items():
        rows.append(f"  {name:44} {told['seconds']:8.3f} {told['bytes'] / 2**20:7.0f}")
    checked = "A step, and memory above the model's own. Gradients were the same, bit for bit."
    return "\n".join([*rows, "", f"  {checked}"])


def main() -> None:
    """One of the two processes."""
    way, scratch = sys.argv[1:]
    around: AbstractContextManager[object] = nullcontext()
    if way == "ours":
        around = ferry.ActivationOffload(scratch, BUDGET)
    print(json.dumps(train(around)))


if __name__ == "__main__":
    main()
