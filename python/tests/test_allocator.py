"""Memory of torch's tensors while there is an offload."""

from __future__ import annotations

import multiprocessing
import re
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest
import torch
from children import HANG_SECONDS

import tensorferry as ferry
from tensorferry import _lib

LARGE = 3 << 20
FLOATS = LARGE // 4


@pytest.fixture
def offload(tmp_path: Path) -> ferry.ActivationOffload:
    return ferry.ActivationOffload(tmp_path, "64MiB")


def resident() -> int:
    """Bytes of memory of this process alone: pages of mapped files go when others need memory."""
    (line,) = re.findall(r"RssAnon:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(line) << 10


@pytest.mark.usefixtures("offload")
def test_a_tensor_takes_the_memory_of_one_that_was_freed() -> None:
    first = torch.ones(FLOATS)
    place = first.data_ptr()
    assert place % 4096 == 0
    del first
    assert _lib.spare_bytes() >= LARGE
    again = torch.empty(FLOATS)
    assert again.data_ptr() == place
    assert torch.equal(again, torch.ones(FLOATS)), "its pages are still there"


def test_small_tensors_and_those_without_an_offload_come_from_the_c_library(
    tmp_path: Path,
) -> None:
    offload = ferry.ActivationOffload(tmp_path, "64MiB")
    kept = torch.full((FLOATS,), 5.0)
    small = torch.ones(100)
    assert _lib.spare_bytes() == 0 or small.data_ptr() % 4096
    del offload
    assert _lib.spare_bytes() == 0
    other = torch.empty(FLOATS)
    del other
    assert _lib.spare_bytes() == 0
    assert bool((kept == 5).all()), "memory that is in use stays"
    del kept
    assert _lib.spare_bytes() == 0


@pytest.mark.usefixtures("offload")
def test_no_more_is_kept_than_half_a_budget_or_32_mib() -> None:
    before = resident()
    tensors = [torch.ones(FLOATS) for _ in range(64)]
    assert resident() - before > 60 * LARGE
    tensors.clear()
    assert _lib.spare_bytes() <= 32 << 20
    assert resident() - before < 100 << 20


@pytest.mark.usefixtures("offload")
def test_threads_that_take_and_free_never_share_memory() -> None:
    wrong = []

    def work(number: int) -> None:
        for round_ in range(100):
            tensor = torch.full((FLOATS // (1 + round_ % 3),), float(number))
            if not bool((tensor == number).all()):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def child(queue: multiprocessing.Queue[float]) -> None:
    torch.set_num_threads(1)  # OpenMP's own threads are not in a forked child.
    tensors = [torch.ones(FLOATS) for _ in range(4)]
    queue.put(float(sum(tensor.sum() for tensor in tensors)))


@pytest.mark.usefixtures("offload")
def test_a_forked_child_takes_and_frees_while_its_parents_threads_do() -> None:
    over = threading.Event()

    def churn() -> None:
        while not over.is_set():
            torch.empty(FLOATS)

    threads = [threading.Thread(target=churn) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        context = multiprocessing.get_context("fork")
        for _ in range(5):
            queue: multiprocessing.Queue[float] = context.Queue()
            process = context.Process(target=child, args=(queue,))
            process.start()
            try:
                assert queue.get(timeout=HANG_SECONDS) == 4 * FLOATS
                process.join(HANG_SECONDS)
                assert process.exitcode == 0
            finally:
                process.kill()
    finally:
        over.set()
        for thread in threads:
            thread.join()


def test_memory_of_the_shelf_is_resized_shared_saved_and_outlives_the_offload(
    tmp_path: Path,
) -> None:
    offload = ferry.ActivationOffload(tmp_path, "64MiB")
    tensor = torch.arange(FLOATS, dtype=torch.float32)
    array = tensor.numpy()
    grown = tensor.clone().resize_(2 * FLOATS)
    shared = tensor.clone().share_memory_()  # type: ignore[no-untyped-call]
    torch.save(tensor, tmp_path / "a.pt")
    del offload
    wanted = torch.arange(FLOATS, dtype=torch.float32)
    assert torch.equal(torch.load(tmp_path / "a.pt"), wanted)
    assert torch.equal(grown[:FLOATS], wanted)
    assert torch.equal(shared, wanted)
    del tensor
    assert array[-1] == FLOATS - 1


def test_without_recycling_the_process_is_left_as_it_is(tmp_path: Path) -> None:
    program = f"""
        import torch, tensorferry as ferry
        from tensorferry import _lib
        offload = ferry.ActivationOffload({str(tmp_path)!r}, "64MiB", recycle_memory=False)
        torch.ones({FLOATS})
        assert _lib.spare_bytes() == 0
        with_ = ferry.ActivationOffload({str(tmp_path)!r}, "64MiB")
        torch.ones({FLOATS})
        assert _lib.spare_bytes() >= {LARGE}
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    subprocess.run(command, check=True, timeout=HANG_SECONDS)
