"""Memory that is kept for speed goes back: after some seconds, and before anybody is killed for it.

Each path runs in a process of its own, with everything alive that a user would keep alive.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from control_groups import memory_limited_to

import tensorferry as ferry

MIB = 1 << 20

PREPARE = """
import gc, mmap, os, sys, time
joins, limit = sys.argv[1], int(sys.argv[2])
if joins:
    with open(joins, "w") as file:
        file.write("0")
import numpy as np
import torch
import tensorferry as ferry
torch.set_num_threads(2)
MIB = 1 << 20
BYTES = 192 * MIB

def used():
    "Bytes of memory of this process that belong to no file."
    with open("/proc/self/status") as file:
        fields = dict(line.split(":", 1) for line in file)
    return int(fields["RssAnon"].split()[0]) << 10
"""

PATHS = {
    "save": """
    state = {"weight": torch.ones(BYTES // 4)}
    def work(size=1):
        ferry.save({"part": state["weight"][: max(1, int(size * len(state["weight"])))]}, "saved")
    """,
    "save_async": """
    state = {"weight": torch.ones(BYTES // 4)}
    def work(size=1):
        part = state["weight"][: max(1, int(size * len(state["weight"])))]
        ferry.save_async({"part": part}, "saved", staging=2 * BYTES).wait()
    """,
    "load": """
    ferry.save({"weight": torch.ones(BYTES // 4)}, "large")
    ferry.save({"weight": torch.ones(1000)}, "small")
    def work(size=1):
        ferry.load("large" if size == 1 else "small")
    """,
    "load in small tensors": """
    ferry.save({str(n): torch.ones(MIB // 2) for n in range(BYTES // (2 * MIB))}, "large")
    ferry.save({"weight": torch.ones(1000)}, "small")
    def work(size=1):
        ferry.load("large" if size == 1 else "small", tool="direct")
    """,
    "TensorIO": """
    io = ferry.TensorIO()
    state = torch.ones(BYTES // 4)
    def work(size=1):
        io.save(state[: max(1, int(size * len(state)))], "saved")
        io.load("saved")
    """,
    "DataLoader": """
    for number in range(64):
        np.save(f"{number:03}.npy", np.ones(MIB // 4, np.float32))
    names = sorted(name for name in os.listdir() if name.endswith(".npy"))
    from tensorferry.data import Files
    loader = ferry.DataLoader(Files(names), 32)
    def work(size=1):
        for _ in range(4 if size == 1 else 1):
            for batch in loader:
                pass
        del batch
    """,
    "optimizer": """
    weight = torch.nn.Parameter(torch.ones(BYTES // 16))
    optimizer = ferry.optim.AdamW([weight], state="ssd:" + os.getcwd())
    def work(size=1):
        weight.grad = torch.ones_like(weight)
        optimizer.step()
        weight.grad = None
    """,
    "ActivationOffload": """
    offload = ferry.ActivationOffload(os.getcwd(), budget="256MiB")
    layers = torch.nn.Sequential(*(torch.nn.Linear(512, 512) for _ in range(12)))
    def work(size=1):
        for _ in range(4):
            with offload:
                loss = layers(torch.ones(int(8192 * size), 512)).sum()
            loss.backward()
        layers.zero_grad()
    """,
    "Engine": """
    engine = ferry.Engine()
    file = engine.open("bytes", "w")
    memory = bytes(BYTES)
    def work(size=1):
        file.write(memory if size == 1 else memory[:5000], offset=1).wait()
    """,
}

GOES_BACK = """
work(0.001)
gc.collect()
before = used()
work()
gc.collect()
until = time.monotonic() + 120
while used() > before + 12 * MIB:
    assert time.monotonic() < until, f"{(used() - before) / MIB:.0f} MiB are kept"
    time.sleep(0.1)
"""

NOBODY_IS_KILLED = """
work()
gc.collect()
# All that the limit allows, as fast as a program that does something with it.
others = mmap.mmap(-1, limit - used() - KEEP_OFF)
page = bytes(MIB)
for start in range(0, len(others) - MIB, MIB):
    others[start : start + MIB] = page
    time.sleep(0.001)
work(0.001)
"""


def run(script: str, folder: Path, joins: str = "", limit: int = 0) -> None:
    done = subprocess.run(
        [sys.executable, "-c", script, joins, str(limit)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, f"exit code {done.returncode}\n{done.stderr}"


@pytest.mark.parametrize("path", PATHS)
def test_memory_that_a_path_has_used_goes_back_within_seconds(path: str, tmp_path: Path) -> None:
    run(PREPARE + textwrap.dedent(PATHS[path]) + GOES_BACK, tmp_path)


@pytest.mark.parametrize("path", PATHS)
def test_memory_that_a_path_keeps_goes_back_before_anybody_is_killed(
    path: str, tmp_path: Path
) -> None:
    limit = 1024 * MIB
    script = NOBODY_IS_KILLED.replace("KEEP_OFF", str(96 * MIB))
    with memory_limited_to(limit) as joins:
        run(PREPARE + textwrap.dedent(PATHS[path]) + script, tmp_path, str(joins), limit)


def test_a_load_behind_a_save_fits_where_both_would_not_fit_at_once(tmp_path: Path) -> None:
    """In a container of 1.5 GiB with 0.5 GiB of tensors, the staging memory of `save_async` was
    kept and the next load killed."""
    script = """
    state = {"weight": torch.ones(128 << 20)}
    job = ferry.save_async(state, "saved", staging="1GiB")
    job.wait()
    again = ferry.load("saved")
    assert torch.equal(again["weight"], state["weight"])
    """
    limit = 1536 * MIB
    with memory_limited_to(limit) as joins:
        run(PREPARE + textwrap.dedent(script), tmp_path, str(joins), limit)


def test_a_save_takes_no_more_staging_memory_than_its_container_has(tmp_path: Path) -> None:
    """However much it may take."""
    script = """
    state = {"weight": torch.ones(150 << 20)}
    ferry.save_async(state, "saved", staging="8GiB").wait()
    assert torch.equal(ferry.load("saved", mmap=True)["weight"], state["weight"])
    """
    limit = 1100 * MIB
    with memory_limited_to(limit) as joins:
        run(PREPARE + textwrap.dedent(script), tmp_path, str(joins), limit)


def test_a_container_says_how_much_memory_a_process_may_have(tmp_path: Path) -> None:
    script = """
    from tensorferry import _machine
    assert _machine.memory_bytes() == limit, _machine.memory_bytes()
    assert 0 < _machine.free_memory_bytes() < limit - used() // 2
    """
    with memory_limited_to(768 * MIB) as joins:
        run(PREPARE + textwrap.dedent(script), tmp_path, str(joins), 768 * MIB)
    assert ferry.__version__
