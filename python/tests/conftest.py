"""What all tests share."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """What one test learns about this disk must not decide another."""
    cache: Path = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))


@pytest.fixture(autouse=True)
def _no_loaders_thread_is_left() -> Iterator[None]:
    """Every loader that a test has dropped has taken its threads with it."""
    yield
    if _threads_of_loaders():
        gc.collect()
    assert _threads_of_loaders() == []


def _threads_of_loaders() -> list[str]:
    names = [thread.name for thread in threading.enumerate()]
    return [name for name in names if name.startswith("ferry-data")]
