"""Lightning, Accelerate and the Trainer of Transformers find in our loader what they look for."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from children import HANG_SECONDS
from framework_cases import EPOCHS, SAMPLES

NEEDS = {"trainer": "transformers"}


def ranks(framework: str, kinds: list[str], directory: Path) -> list[dict[str, Any]]:
    """What each of two ranks saw, by kind of dataset."""
    world_size = 2
    package = NEEDS.get(framework, framework)
    if framework != "plain" and importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    for number in range(SAMPLES):
        np.save(directory / f"{number:02}.npy", np.array([float(number)], dtype=np.float32))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, str(Path(__file__).parent / "framework_cases.py")]
    with contextlib.ExitStack() as running:
        processes = []
        for rank in range(world_size):
            torchrun = {
                "RANK": rank,
                "LOCAL_RANK": rank,
                "GROUP_RANK": 0,
                "WORLD_SIZE": world_size,
                "LOCAL_WORLD_SIZE": world_size,
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": port,
                "TORCHELASTIC_RUN_ID": "test",
                "GLOO_SOCKET_IFNAME": "lo",
                "HF_HUB_OFFLINE": 1,
                "OMP_NUM_THREADS": 1,
            }
            process = subprocess.Popen(
                [*command, framework, str(directory), *kinds],
                env={**os.environ, **{name: str(value) for name, value in torchrun.items()}},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            processes.append(running.enter_context(process))
            running.callback(process.kill)
        done = [process.communicate(timeout=HANG_SECONDS) for process in processes]
    assert [process.returncode for process in processes] == [0] * world_size, done
    return [json.loads(out.splitlines()[-1]) for out, _ in done]


KINDS = {
    "lightning": ["python", "seeded", "processes", "ours"],
    "accelerate": ["python", "generator", "seeded", "ours"],
    "trainer": ["named"],
    "plain": ["python", "ours"],
}


@pytest.mark.parametrize("framework", KINDS)
def test_each_of_two_ranks_trains_on_its_half_of_every_epoch(
    framework: str, tmp_path: Path
) -> None:
    half = SAMPLES // 2
    first, second = ranks(framework, KINDS[framework], tmp_path)
    for kind in KINDS[framework]:
        ours, theirs = first[kind]["seen"], second[kind]["seen"]
        assert len(ours) == len(theirs) == half * EPOCHS, kind
        for epoch in range(EPOCHS):
            part = slice(epoch * half, (epoch + 1) * half)
            assert sorted(ours[part] + theirs[part]) == list(range(SAMPLES)), kind
        # Shuffled, and not twice in the same way.
        assert sorted(ours[:half]) != ours[:half] != ours[half:], kind
        # Who takes the loader apart keeps the transform.
        assert first[kind]["prepared"] == second[kind]["prepared"] == (kind == "ours")
