"""Memory of torch's tensors while there is an offload."""

from __future__ import annotations

import multiprocessing
import os
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


def test_spare_blocks_are_resized_shared_saved_and_outlives_the_offload(
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


def run(program: str, *arguments: str, **environment: str) -> None:
    """In a process whose allocator nothing else has touched."""
    command = [sys.executable, "-c", textwrap.dedent(program), *arguments]
    variables = os.environ | environment
    subprocess.run(command, check=True, timeout=HANG_SECONDS, env=variables)


def test_torch_calls_what_it_called_before_when_the_last_offload_is_gone(tmp_path: Path) -> None:
    program = """
        import sys, torch, tensorferry as ferry
        from tensorferry import _lib

        large = int(sys.argv[2])
        torch.ones(large)  # The linker fills imports when they are first called.
        before = _lib.torch_imports()
        assert before["posix_memalign"] and before["free"]
        for _ in range(2):
            first = ferry.ActivationOffload(sys.argv[1], "64MiB")
            second = ferry.ActivationOffload(sys.argv[1], "64MiB")
            kept = torch.full((large,), 5.0)
            place = kept.data_ptr()
            del first
            now = _lib.torch_imports()
            assert all(now[name] != before[name] for name in before), "one is left"
            assert second.report().unrecycled is None
            del second
            now = _lib.torch_imports()
            assert now["posix_memalign"] == before["posix_memalign"]
            assert now["free"] != before["free"], "who frees the block must know it"
            assert bool((kept == 5).all())
            del kept
            assert _lib.spare_bytes() == 0
            assert _lib.torch_imports() == before
            torch.ones(large)
        third = ferry.ActivationOffload(sys.argv[1], "64MiB")
        assert torch.ones(large).data_ptr() == place, "the block was given back, and is taken again"
    """
    run(program, str(tmp_path), str(FLOATS))


def test_what_an_offload_has_saved_keeps_its_memory_in_use(tmp_path: Path) -> None:
    program = """
        import sys, torch, tensorferry as ferry
        from tensorferry import _lib

        torch.ones(int(sys.argv[2]))
        before = _lib.torch_imports()

        def forward(x):
            with ferry.ActivationOffload(sys.argv[1], "64MiB"):
                return x.exp().square().sum()

        x = torch.randn(int(sys.argv[2]), requires_grad=True)
        loss = forward(x)
        assert _lib.torch_imports() != before, "backward is still to come"
        loss.backward()
        wanted, = torch.autograd.grad(x.exp().square().sum(), x)
        assert torch.equal(x.grad, wanted)
        del loss, wanted
        x.grad = None
        assert _lib.torch_imports() == before
    """
    run(program, str(tmp_path), str(FLOATS))


PRELOADED = """
#include <errno.h>
#include <stddef.h>

extern void *__libc_memalign(size_t alignment, size_t size);
extern void __libc_free(void *block);

size_t taken_blocks;

int posix_memalign(void **into, size_t alignment, size_t size) {
    __atomic_add_fetch(&taken_blocks, 1, __ATOMIC_RELAXED);
    *into = __libc_memalign(alignment, size);
    return *into ? 0 : ENOMEM;
}

void free(void *block) { __libc_free(block); }
"""


@pytest.fixture(scope="module")
def preloaded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another allocator, as jemalloc is one."""
    folder = tmp_path_factory.mktemp("preloaded")
    source, library = folder / "allocator.c", folder / "liballocator.so"
    source.write_text(PRELOADED)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    return library


@pytest.mark.parametrize("recycle", ["True", "False"])
def test_an_allocator_that_the_process_was_started_with_is_respected(
    recycle: str, preloaded: Path, tmp_path: Path
) -> None:
    program = """
        import ctypes, sys, torch, tensorferry as ferry
        from tensorferry import _lib

        recycle = sys.argv[3] == "True"
        taken = ctypes.c_size_t.in_dll(ctypes.CDLL(sys.argv[4]), "taken_blocks")
        torch.ones(int(sys.argv[2]))
        before = _lib.torch_imports()
        offload = ferry.ActivationOffload(sys.argv[1], "64MiB", recycle_memory=recycle)
        x = torch.randn(int(sys.argv[2]), requires_grad=True)
        wanted, = torch.autograd.grad(x.exp().square().sum(), x)
        for _ in range(3):
            x.grad = None
            count = taken.value
            with offload:
                y = x.exp()
                loss = y.square().sum()
            y.untyped_storage().resize_(0)
            loss.backward()
            assert taken.value > count, "torch takes its memory there"
            assert torch.equal(x.grad, wanted)
        assert _lib.torch_imports() == before
        report = offload.report()
        if recycle:
            assert report.unrecycled == (
                f"the process has another allocator, {sys.argv[4]}, which is respected"
            )
            assert f"freed memory is not used again: {report.unrecycled}" in str(report)
        else:
            assert report.unrecycled is None
    """
    library = str(preloaded)
    run(program, str(tmp_path), str(FLOATS), recycle, library, LD_PRELOAD=library)
