"""What all tests share."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from multiprocessing.context import ForkServerContext
from pathlib import Path

import children
import pytest

# A run in the background of a shell is started with interrupts ignored, and so would be every
# process that tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Some virtual machines announce AMX and trap on it: torch's own products in bfloat16 die there.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """What one test learns about this disk must not decide another."""
    cache: Path = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))


@pytest.fixture(autouse=True)
def _no_loaders_thread_is_left() -> Iterator[None]:
    """Every loader that a test has dropped has taken its threads with it."""
    yield
    wait_for_threads()
    assert threads_of_loaders() == []


@pytest.fixture(autouse=True)
def _no_process_is_left() -> Iterator[None]:
    """A child that a test leaves behind would work beside the next ones, and be counted by them."""
    before = children.living()
    yield
    assert children.end_those_left(before) == [], "processes outlived their test"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system with room for 16 MiB."""
    place = tmp_path / "small"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True).returncode != 0:
        pytest.skip("mounting a small file system needs root")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.fixture(scope="module")
def processes(request: pytest.FixtureRequest) -> ForkServerContext:
    """Processes that have torch already, and what the module of a test imports."""
    context = multiprocessing.get_context("forkserver")
    name = request.module.__name__
    context.set_forkserver_preload(["torch", "tensorferry._checkpoint.ranks.save", name])
    return context


def wait_for_threads() -> None:
    """Until threads of loaders that only the collector finds have left; it does not wait."""
    until = time.monotonic() + 60
    while threads_of_loaders() and time.monotonic() < until:
        gc.collect()
        time.sleep(0.01)


def threads_of_loaders() -> list[str]:
    """Those that are there."""
    names = [thread.name for thread in threading.enumerate()]
    return [name for name in names if name.startswith("ferry-data")]
