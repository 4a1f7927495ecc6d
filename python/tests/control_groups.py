"""Control groups that limit the memory of processes which tests start."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path("/sys/fs/cgroup")


@contextmanager
def memory_limited_to(limit: int) -> Iterator[Path]:
    """A group whose processes are killed beyond so many bytes: a process joins it by writing 0 to
    the file that is given. Skips where no such group can be made."""
    try:
        group = _make(limit)
    except OSError as error:
        pytest.skip(f"no control group with a memory limit can be made here: {error}")
    try:
        yield group / "cgroup.procs"
    finally:
        group.rmdir()


def _make(limit: int) -> Path:
    """Version 2 where the memory controller is there, otherwise version 1."""
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    own = {controllers: path for _, controllers, path in (line.split(":", 2) for line in lines)}
    controllers = ROOT / "cgroup.controllers"
    if controllers.exists() and "memory" in controllers.read_text().split():
        # At the root: a group that has processes may have none with controllers below it.
        (ROOT / "cgroup.subtree_control").write_text("+memory")
        group, limits = ROOT / _name(), {"memory.max": limit, "memory.swap.max": 0}
    elif "memory" in own:
        parent = ROOT / "memory" / own["memory"].lstrip("/")
        parent = parent if parent.is_dir() else ROOT / "memory"
        group, limits = parent / _name(), {"memory.limit_in_bytes": limit}
    else:
        raise OSError("the kernel offers no memory controller")
    group.mkdir()
    try:
        for name, value in limits.items():
            file = group / name
            if file.exists():
                file.write_text(str(value))
    except OSError:
        group.rmdir()
        raise
    return group


def _name() -> str:
    return f"ferry-test-{os.getpid()}"
