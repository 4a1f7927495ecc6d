"""A process apart: own mounts and own shared memory, so that what others do is not taken for ours,
and what we leave behind goes with us."""

from __future__ import annotations

import os
import subprocess
import sys

INSIDE = "SOAK_IS_APART"
SHARED_BYTES = 1 << 30


def go_apart() -> None:
    """Starts this program again in a mount namespace, if it is not in one and the kernel allows."""
    if INSIDE in os.environ:
        if os.environ[INSIDE] == "yes":
            subprocess.run(
                ["mount", "-t", "tmpfs", "-o", f"size={SHARED_BYTES}", "tmpfs", "/dev/shm"],
                check=True,
            )
        return
    # Some virtual machines announce AMX and trap on it: torch's own products die there.
    os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
    program = [sys.executable, "-m", "soak", *sys.argv[1:]]
    for way in _ways():
        if subprocess.run([*way, "true"], capture_output=True, check=False).returncode == 0:
            os.environ[INSIDE] = "yes"
            os.execvp(way[0], [*way, *program])
    os.environ[INSIDE] = "no"
    os.execv(sys.executable, program)


def _ways() -> list[list[str]]:
    namespace = ["unshare", "--mount", "--propagation", "private"]
    return [namespace] if os.geteuid() == 0 else [[*namespace, "--user", "--map-root-user"]]
