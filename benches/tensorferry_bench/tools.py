"""The Python side of ``tensorferry bench tools``: how well the dictionary of tools chooses.

Private. Two measurements, on the disk that ``--path`` lies on:

*trace*: every tool, at every step, beside one another, while the machine changes: idle, a busy
disk, busy processors, idle again. ``tensorferry simulate tools`` replays such a trace under any
policy.

*live*: the policies themselves at work, each with a file of its own, and every fixed tool beside
them in the same round.

In both, all write, then all read, in an order of the round's own. The oracle always uses the tool
that was the best for the size, on average; a policy's share is the oracle's seconds over its own.
On a noisy disk the oracle is the luckiest tool rather than the best, and a policy may have bad
luck; so a mean share comes with the interval in which nine of ten such measurements find it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import platform
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeAlias

import torch

from tensorferry._checkpoint import run, tools
from tensorferry._structure import flatten
from tensorferry.tensor_io import TensorIO

WRITERS = ("direct", "buffered", "torch", "numpy")
READERS = {
    "direct": ("direct", "buffered", "mapped"),
    "torch": ("torch",),
    "numpy": ("numpy",),
}
SIZES = (4 << 10, 64 << 10, 1 << 20, 16 << 20, 128 << 20, 1 << 30)
PHASES = ("idle", "busy disk", "busy processors", "idle again")
POLICIES = ("bandit", "paper")
GOALS = ("w", "r", "w+r")

RESAMPLED = 200
"""How often rounds are drawn anew to see how sure a share is."""

BURN = "while True: pass"
WRITE = """
import os, sys
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
block = os.urandom(1 << 20)
while True:
    for i in range(256):
        os.pwrite(fd, block, i << 20)
    os.fsync(fd)
"""


Takes: TypeAlias = dict[str, Callable[[], float]]


class Bench:
    """A directory, and files of tools in it."""

    def __init__(self, directory: str, durable: bool) -> None:
        self.directory = directory
        self.options = tools.SaveOptions(durable, True)
        self.objects = {size: torch.randint(0, 255, (size,), dtype=torch.uint8) for size in SIZES}

    def path(self, name: str, size: int) -> str:
        """Where a tool's file of this size lies."""
        return os.path.join(self.directory, f"{name}-{size}")

    def write(self, tool: str, size: int) -> float:
        """Seconds to save with one tool."""
        obj = self.objects[size]
        began = time.perf_counter()
        run.save_with(
            tools.tool_named(tool), obj, flatten(obj), self.path(tool, size), self.options
        )
        return time.perf_counter() - began

    def read(self, tool: str, path: str) -> float:
        """Seconds to load with one tool."""
        self.chill(path)
        began = time.perf_counter()
        tools.tool_named(tool).load(path, tools.LoadOptions())
        return time.perf_counter() - began

    def chill(self, path: str) -> None:
        """Makes a durable file cold; one that is not durable stays as it is."""
        if self.options.durable:
            with open(path, "rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def takes(self, size: int) -> tuple[Takes, Takes]:
        """Every tool's way to write a size, and to read it."""
        writers: Takes = {tool: partial(self.write, tool, size) for tool in WRITERS}
        readers: Takes = {
            reader: partial(self.read, reader, self.path(writer, size))
            for writer, readers in READERS.items()
            for reader in readers
        }
        return writers, readers


def steps_of(size: int, scale: float) -> int:
    """How often a size takes part: each size costs about as much time, within bounds."""
    return max(4, round(scale * min(150, max(8, 600 * (1 << 20) / size))))


def rounds(scale: float) -> list[int]:
    """Sizes in the order of steps: mixed evenly, as a run would meet them."""
    placed = [
        ((index + 0.5) / steps_of(size, scale), size)
        for size in SIZES
        for index in range(steps_of(size, scale))
    ]
    return [size for _, size in sorted(placed)]


def record(bench: Bench, scale: float, say: Callable[[str], None]) -> dict[str, Any]:
    """A trace of every tool, through all phases."""
    situation = ["durable", "cold"] if bench.options.durable else ["relaxed", "warm"]
    steps: list[dict[str, Any]] = []
    for phase in PHASES:
        with burdened(phase, bench.directory):
            order = rounds(scale)
            for index, size in enumerate(order):
                say(f"trace, {phase}: step {index + 1} of {len(order)}")
                writers, readers = bench.takes(size)
                seed = f"{phase} {index}"
                steps.append(
                    {
                        "phase": phase,
                        "size": size,
                        "write": in_turn(writers, seed),
                        "read": in_turn(readers, seed),
                        "situation": situation,
                    }
                )
    return {"machine": machine(), "phases": list(PHASES), "steps": steps}


@contextlib.contextmanager
def burdened(phase: str, directory: str) -> Iterator[None]:
    """Other work on the machine, for as long as a phase lasts."""
    commands: list[list[str]] = []
    if phase == "busy disk":
        commands = [[sys.executable, "-c", WRITE, os.path.join(directory, "burden")]]
    elif phase == "busy processors":
        commands = [[sys.executable, "-c", BURN]] * (os.cpu_count() or 1)
    others = [subprocess.Popen(command) for command in commands]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


class Policy:
    """What chooses a tool, and how often it has chosen each."""

    def __init__(self, io: TensorIO) -> None:
        self.io = io
        self.used: Counter[str] = Counter()

    def write(self, bench: Bench, path: str, size: int, chosen: dict[str, str]) -> float:
        """Seconds to save; the report tells the tool."""
        began = time.perf_counter()
        report = self.io.save(bench.objects[size], path, durable=bench.options.durable)
        seconds = time.perf_counter() - began
        chosen["write"] = report.tool
        self.used[report.tool] += 1
        return seconds

    def read(self, bench: Bench, path: str, chosen: dict[str, str]) -> float:
        """Seconds to load; the tool is the one that was used once more than before.

        Who has used what is asked after the load only: a table made before it would take the
        processor's caches from it."""
        bench.chill(path)
        began = time.perf_counter()
        self.io.load(path)
        seconds = time.perf_counter() - began
        used: Counter[str] = Counter()
        for row in self.io.report().rows:
            used.update({tool: count["operations"] for tool, count in row["tools"].items()})
        (chosen["read"],) = used - self.used
        self.used = used
        return seconds


def live(bench: Bench, scale: float, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """What policies and tools took, for each goal and size."""
    rows = []
    for goal in GOALS:
        policies = {
            name: Policy(TensorIO("auto", goal, explore=name, persist=False))  # type: ignore[arg-type]
            for name in POLICIES
        }
        order = rounds(scale)
        for index, size in enumerate(order):
            say(f"live, goal {goal}: step {index + 1} of {len(order)}")
            told = one_round(bench, policies, size, f"{goal} {index}")
            rows.append({"goal": goal, "size": size, **told})
    return rows


def one_round(bench: Bench, policies: dict[str, Policy], size: int, seed: str) -> dict[str, Any]:
    """Seconds of everybody to write, and then to read; what the policies chose."""
    writers, readers = bench.takes(size)
    chosen: dict[str, dict[str, str]] = {name: {} for name in policies}
    for name, policy in policies.items():
        noted = chosen[name]
        writers[name] = partial(policy.write, bench, bench.path(name, size), size, noted)
        readers[name] = partial(policy.read, bench, bench.path(name, size), noted)
    return {"write": in_turn(writers, seed), "read": in_turn(readers, seed), "chosen": chosen}


def in_turn(takes: Takes, seed: str) -> dict[str, float]:
    """Seconds of all, one after the other, in an order of the round's own: who reads first comes
    after all writes, and finds the disk and the memory as they left them."""
    return {name: takes[name]() for name in random.Random(seed).sample(list(takes), len(takes))}


def shares(rows: list[dict[str, Any]]) -> dict[str, dict[str, dict[str, float]]]:
    """For each goal, and each policy and fixed tool: the share of the oracle, by size and mean."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for goal in GOALS:
        by_name: dict[str, dict[str, float]] = {}
        for size in SIZES:
            here = [row for row in rows if row["goal"] == goal and row["size"] == size]
            oracle, fixed = best_tool(here, goal)
            for name in POLICIES:
                spent = sum(cost(row["write"][name], row["read"][name], goal) for row in here)
                by_name.setdefault(name, {})[str(size)] = oracle * len(here) / spent
            for name, seconds in fixed.items():
                by_name.setdefault(name, {})[str(size)] = oracle / seconds
        for by_size in by_name.values():
            logs = [math.log(share) for share in by_size.values()]
            by_size["mean"] = math.exp(statistics.fmean(logs))
        found[goal] = by_name
    return found


def intervals(rows: list[dict[str, Any]]) -> dict[str, dict[str, tuple[float, float]]]:
    """How sure the mean shares of policies are: nine of ten, of rounds drawn anew from those of the
    same goal and size."""
    alike: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for row in rows:
        alike.setdefault((row["goal"], row["size"]), []).append(row)
    chance = random.Random(0)
    draws = [
        shares([row for group in alike.values() for row in chance.choices(group, k=len(group))])
        for _ in range(RESAMPLED)
    ]

    def interval(goal: str, name: str) -> tuple[float, float]:
        means = sorted(draw[goal][name]["mean"] for draw in draws)
        return means[RESAMPLED // 20], means[-1 - RESAMPLED // 20]

    return {goal: {name: interval(goal, name) for name in POLICIES} for goal in GOALS}


def best_tool(rows: list[dict[str, Any]], goal: str) -> tuple[float, dict[str, float]]:
    """The oracle's mean seconds, and those of each writing tool with the best reader for it.

    Means of what the tools really took, outliers included, as for the policies."""
    fixed = {}
    for tool in WRITERS:
        readers = READERS["direct" if tool in ("direct", "buffered") else tool]
        read = min(statistics.fmean(row["read"][reader] for row in rows) for reader in readers)
        fixed[tool] = cost(statistics.fmean(row["write"][tool] for row in rows), read, goal)
    return min(fixed.values()), fixed


def cost(write: float, read: float, goal: str) -> float:
    """The seconds that a goal counts."""
    return {"w": write, "r": read, "w+r": write + read}[goal]


def machine() -> str:
    """What this was measured on."""
    return f"{platform.machine()}, {os.cpu_count()} processors, Linux {platform.release()}"


def table(
    found: dict[str, dict[str, dict[str, float]]],
    sure: dict[str, dict[str, tuple[float, float]]],
) -> str:
    """Shares, for people."""
    head = "".join(f"{label(size):>9}" for size in SIZES)
    lines = [f"{'goal':6}{'policy':12}{head}{'mean':>9}  nine of ten"]
    for goal, by_name in found.items():
        for name, by_size in by_name.items():
            values = "".join(f"{by_size[str(size)]:9.3f}" for size in SIZES)
            line = f"{goal:6}{name:12}{values}{by_size['mean']:9.3f}"
            if name in sure[goal]:
                line += "  {:.3f} to {:.3f}".format(*sure[goal][name])
            lines.append(line)
    return "\n".join(lines)


def label(size: int) -> str:
    """A size for people."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size // unit} {name}"
    return f"{size} B"


def main() -> None:
    """Measures, and prints a table; all numbers go to files."""
    parser = argparse.ArgumentParser(prog="tensorferry bench tools")
    parser.add_argument("--path", default=".")
    parser.add_argument("--trace")
    parser.add_argument("--live")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--relaxed", action="store_true")
    args = parser.parse_args()
    directory = tempfile.mkdtemp(prefix="ferry-tools-", dir=args.path)

    def say(text: str) -> None:
        if sys.stderr.isatty():
            print(f"\r{text:60}", end="", file=sys.stderr, flush=True)

    try:
        bench = Bench(directory, durable=not args.relaxed)
        if args.trace:
            write_json(args.trace, record(bench, args.scale, say))
        if args.live:
            rows = live(bench, args.scale, say)
            found, sure = shares(rows), intervals(rows)
            document = {"machine": machine(), "shares": found, "intervals": sure, "rows": rows}
            write_json(args.live, document)
            print(table(found, sure))
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def write_json(path: str, document: object) -> None:
    """Writes a document."""
    with open(path, "w", encoding="utf-8") as file:
        json.dump(document, file)
        file.write("\n")


if __name__ == "__main__":
    main()
