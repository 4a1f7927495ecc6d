"""Two ranks, each a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys


def run_two_ranks(script: str) -> None:
    """Runs it twice, with ``RANK`` in the environment; both have to say ``same``."""
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", script],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "RANK": str(rank)},
        )
        for rank in range(2)
    ]
    told = [rank.communicate(timeout=120) for rank in ranks]
    assert [out for out, _ in told] == ["same\n"] * 2, "\n".join(error for _, error in told)
