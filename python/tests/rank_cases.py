"""Ranks, each a process of its own."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys

from children import HANG_SECONDS, started


def run_two_ranks(script: str) -> None:
    """Runs it twice."""
    run_ranks(script, 2)


def run_ranks(script: str, count: int) -> None:
    """Runs it with each ``RANK`` in the environment; all have to say ``same``."""
    with contextlib.ExitStack() as stack:
        ranks = [
            stack.enter_context(
                started(
                    *(sys.executable, "-c", script),
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    env={**os.environ, "RANK": str(rank)},
                )
            )
            for rank in range(count)
        ]
        told = [rank.communicate(timeout=HANG_SECONDS) for rank in ranks]
    assert [out for out, _ in told] == ["same\n"] * count, "\n".join(error for _, error in told)
