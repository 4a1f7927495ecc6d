"""The Python side of ``tensorferry bench tools``: whether choosing a tool beats any single one.

Private. Objects of 4 KiB to ``--largest`` are saved and loaded over a mixture of situations: on the
disk that ``--path`` lies on, durable and read cold, durable and read from the page cache, relaxed
and read from the page cache; and on a second file system (``--second``, a tmpfs by default). In
each round, the policies and every single tool save and load the same object through ``TensorIO``,
one after the other in an order of the round's own, and leave nothing behind. All sizes take about
as much time.

A share is a tool's seconds over the policy's. In a situation it is that of the tool that is best
there; over the mixture that of the tool that is best for all of it. ``--live`` keeps the rounds,
``--trace`` what the single tools took, which ``tensorferry simulate tools`` replays under any
policy.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from tensorferry import parse_size
from tensorferry.tensor_io import TensorIO

SIZES = (4 << 10, 64 << 10, 1 << 20, 16 << 20, 128 << 20, 1 << 30)
TOOLS = ("direct", "buffered", "mapped", "torch", "numpy")
POLICIES = {"adapting": "rule", "paper": "paper"}
NAMES = (*POLICIES, *TOOLS)
PHASE = "mixture"

Row: TypeAlias = dict[str, Any]
Key: TypeAlias = tuple[str, str, str, int]


@dataclass(frozen=True, slots=True)
class Situation:
    """A file system, and how is written and read there."""

    mount: str
    directory: str
    durable: bool
    cold: bool

    @property
    def told(self) -> list[str]:
        """As a trace has it."""
        return ["durable" if self.durable else "relaxed", "cold" if self.cold else "warm"]


def situations(disk: str, memory: str) -> list[Situation]:
    """Those of the mixture."""
    return [
        Situation("disk", disk, durable=True, cold=True),
        Situation("disk", disk, durable=True, cold=False),
        Situation("disk", disk, durable=False, cold=False),
        Situation("second", memory, durable=False, cold=False),
    ]


def chooser(name: str, goal: str) -> TensorIO:
    """A policy that knows nothing yet, or a single tool."""
    if name in POLICIES:
        return TensorIO("auto", goal, explore=POLICIES[name], persist=False)  # type: ignore[arg-type]
    if name == "mapped":
        best = {"1": "direct"}
        return TensorIO(
            goal=goal, dictionary={"WDic": best, "WRDic": best, "RDic": {"1": "mapped"}}
        )
    return TensorIO(name, goal)


class Bench:
    """Objects, and whoever saves and loads them."""

    def __init__(self, sizes: tuple[int, ...], goal: str, names: tuple[str, ...] = NAMES) -> None:
        self.sizes = sizes
        self.goal = goal
        self.objects = {size: torch.randint(0, 255, (size,), dtype=torch.uint8) for size in sizes}
        self.io = {name: chooser(name, goal) for name in names}

    def round(self, situation: Situation, size: int, seed: str) -> Row:
        """Seconds of everybody to write and to read."""
        row: Row = {
            "mount": situation.mount,
            "situation": situation.told,
            "size": size,
            "write": {},
            "read": {},
            "chosen": {},
        }
        for name in random.Random(seed).sample(list(self.io), len(self.io)):
            path = os.path.join(situation.directory, name)
            io = self.io[name]
            began = time.perf_counter()
            report = io.save(self.objects[size], path, durable=situation.durable)
            row["write"][name] = time.perf_counter() - began
            row["chosen"][name] = report.tool
            prepare(path, cold=situation.cold)
            began = time.perf_counter()
            loaded = io.load(path)
            row["read"][name] = time.perf_counter() - began
            assert loaded.numel() == size
            del loaded
            os.unlink(path)
        return row

    def run(self, mixture: list[Situation], scale: float, say: Callable[[str], None]) -> list[Row]:
        """All rounds, mixed as a training would meet them."""
        order = rounds(len(mixture), self.sizes, scale)
        rows = []
        for number, (at, size) in enumerate(order):
            say(f"round {number + 1} of {len(order)}")
            rows.append(self.round(mixture[at], size, f"round {number}"))
        return rows


def prepare(path: str, *, cold: bool) -> None:
    """Makes a file cold, or sees to it that all of it is in the page cache."""
    with open(path, "rb") as file:
        if cold:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            return
        block = bytearray(1 << 20)
        while file.readinto(block):
            pass


def steps_of(size: int, scale: float) -> int:
    """How often a size takes part in a situation: each costs about as much time, within bounds."""
    return max(4, round(scale * min(100, max(8, 600 * (1 << 20) / size))))


def rounds(places: int, sizes: tuple[int, ...], scale: float) -> list[tuple[int, int]]:
    """Situations and sizes in the order of rounds: mixed evenly."""
    placed = [
        ((index + 0.5) / steps_of(size, scale), at, size)
        for at in range(places)
        for size in sizes
        for index in range(steps_of(size, scale))
    ]
    return [(at, size) for _, at, size in sorted(placed)]


def trace(rows: list[Row]) -> dict[str, Any]:
    """What the single tools took, as ``tensorferry simulate tools`` reads it."""

    def step(row: Row) -> Row:
        write = {tool: row["write"][tool] for tool in TOOLS if tool != "mapped"}
        read = {tool: row["read"][tool] for tool in TOOLS}
        told = {key: row[key] for key in ("mount", "situation", "size")}
        return {"phase": PHASE, **told, "write": write, "read": read}

    return {"machine": machine(), "phases": [PHASE], "steps": [step(row) for row in rows]}


def cost(row: Row, name: str, goal: str) -> float:
    """The seconds that a goal counts."""
    write: float = row["write"][name]
    read: float = row["read"][name]
    return {"w": write, "r": read, "w+r": write + read}[goal]


def shares(rows: list[Row], goal: str, mean: Callable[[list[float]], float]) -> list[Row]:
    """For each situation the best single tool, and everybody's share of it."""
    alike: dict[Key, list[Row]] = defaultdict(list)
    for row in rows:
        alike[row["mount"], *row["situation"], row["size"]].append(row)
    found = []
    for key, here in sorted(alike.items()):
        seconds = {name: mean([cost(row, name, goal) for row in here]) for name in here[0]["write"]}
        best = min(TOOLS, key=seconds.__getitem__)
        share = {name: seconds[best] / own for name, own in seconds.items()}
        found.append({"situation": key, "best": best, "shares": share})
    return found


def over_all(rows: list[Row], goal: str) -> dict[str, float]:
    """Everybody's share over the mixture, of the single tool that is best for all of it."""
    seconds = {name: sum(cost(row, name, goal) for row in rows) for name in rows[0]["write"]}
    best = min(seconds[tool] for tool in TOOLS)
    return {name: best / own for name, own in seconds.items()}


def machine() -> str:
    """What this was measured on."""
    return f"{platform.machine()}, {os.cpu_count()} processors, Linux {platform.release()}"


def table(rows: list[Row], goal: str) -> str:
    """Shares, for people."""
    names = list(rows[0]["write"])
    heads = "".join(f"{name:>10}" for name in names)
    lines = [f"goal {goal}: seconds of the best tool over one's own"]
    means = (("means, which pay for every look", statistics.fmean), ("medians", statistics.median))
    for title, mean in means:
        found = shares(rows, goal, mean)
        lines += ["", f"{title:34}{'best':>10}{heads}"]
        for one in found:
            *words, size = one["situation"]
            values = "".join(f"{one['shares'][name]:10.3f}" for name in names)
            lines.append(f"{' '.join([*words, label(size)]):34}{one['best']:>10}{values}")
        logs = {name: [math.log(one["shares"][name]) for one in found] for name in names}
        values = "".join(f"{math.exp(statistics.fmean(logs[name])):10.3f}" for name in names)
        lines.append(f"{'geometric mean over situations':44}{values}")
        values = "".join(f"{math.exp(min(logs[name])):10.3f}" for name in names)
        lines.append(f"{'worst situation':44}{values}")
    every = over_all(rows, goal)
    values = "".join(f"{every[name]:10.3f}" for name in names)
    lines += ["", f"{'all seconds of the mixture':44}{values}"]
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
    parser.add_argument("--second", default="/dev/shm")
    parser.add_argument("--goal", default="w+r", choices=("w", "r", "w+r"))
    parser.add_argument("--largest", default="128MiB")
    parser.add_argument("--trace")
    parser.add_argument("--live")
    parser.add_argument("--scale", type=float, default=1.0)
    args = parser.parse_args()
    largest = parse_size(args.largest)
    sizes = tuple(size for size in SIZES if size <= largest) or SIZES[:1]

    def say(text: str) -> None:
        if sys.stderr.isatty():
            print(f"\r{text:60}", end="", file=sys.stderr, flush=True)

    directories = [
        tempfile.mkdtemp(prefix="ferry-tools-", dir=at) for at in (args.path, args.second)
    ]
    try:
        bench = Bench(sizes, args.goal, NAMES if args.live else TOOLS)
        rows = bench.run(situations(*directories), args.scale, say)
    finally:
        for directory in directories:
            with suppress(OSError):
                shutil.rmtree(directory)
    if args.trace:
        write_json(args.trace, trace(rows))
    if args.live:
        write_json(args.live, {"machine": machine(), "goal": args.goal, "rows": rows})
    print(table(rows, args.goal))


def write_json(path: str, document: object) -> None:
    """Writes a document."""
    with open(path, "w", encoding="utf-8") as file:
        json.dump(document, file)
        file.write("\n")


if __name__ == "__main__":
    main()
