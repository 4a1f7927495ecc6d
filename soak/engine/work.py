"""What children of the engine scenarios do."""

from __future__ import annotations

import itertools
import resource
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

import tensorferry as ferry
from soak.engine.rounds import Bytes, Rounds
from soak.tell import Tell
from tensorferry.io import Backend, File, Pending, Priority

ROUNDS_MAX = 1_000_000
PRIORITIES: tuple[Priority, ...] = ("waiting", "prefetch", "offload", "background")
MOVED_SHARE = 4
"""One of so many rounds is followed by a look at all of the file."""


def write_rounds(
    tell: Tell,
    path: str,
    seed: int,
    length: int,
    backend: Backend,
    direct: bool,
    first: int = 0,
    rounds: int = ROUNDS_MAX,
) -> list[dict[str, int]]:
    """Writes round after round, and reads back what must be there; what it held after each."""
    plan, held = Rounds(seed, length), []
    whole = plan.after(first)
    with ferry.Engine(backend) as engine:
        file = engine.open(path, "a", direct=direct)
        file.set_len(length)
        for number in range(first, first + rounds):
            tell("writing", number)
            wait_all(write(file, plan.pieces(number)))
            plan.apply(whole, number)
            tell("written", number)
            if number % MOVED_SHARE == 0:
                file.sync().wait()
                check(file, whole, seed + number)
            held.append(tell.held())
    return held


def write(file: File, pieces: Iterable[tuple[int, Bytes]]) -> list[Pending]:
    """Starts writing pieces, with all priorities."""
    return [
        file.write(piece, at, priority=PRIORITIES[number % len(PRIORITIES)])
        for number, (at, piece) in enumerate(pieces)
    ]


def wait_all(pending: list[Pending]) -> None:
    """Waits for all, also behind one that failed; then raises what the first of those raised."""
    failed: list[ferry.Error] = []
    for each in pending:
        try:
            each.wait()
        except ferry.Error as error:
            failed.append(error)
    if failed:
        raise failed[0]


def check(file: File, whole: Bytes, seed: int) -> None:
    """Reads all of a file in pieces that begin and end anywhere, side by side, in two ways."""
    chance = np.random.default_rng(seed)
    cuts = np.unique([0, len(whole), *chance.integers(0, len(whole), 12)])
    reads = []
    for number, (start, end) in enumerate(itertools.pairwise(cuts)):
        priority = PRIORITIES[number % len(PRIORITIES)]
        into = np.empty(end - start, np.uint8)
        reads.append((start, end, file.read(int(end - start), int(start), priority=priority)))
        reads.append((start, end, file.read(offset=int(start), into=into, priority=priority)))
    for start, end, pending in reads:
        same(np.frombuffer(pending.wait(), np.uint8), whole[start:end], int(start))


def same(found: Bytes, wanted: Bytes, offset: int) -> None:
    """``ValueError`` where they differ."""
    wrong = np.flatnonzero(found != wanted)
    if len(wrong):
        at = offset + int(wrong[0])
        raise ValueError(f"{len(wrong)} of {len(wanted)} bytes are wrong, from byte {at} on")


def look(tell: Tell, path: str, seed: int, length: int, written: int, begun: int) -> None:
    """All rounds that were waited for are there; of one that was not, each byte is old or new."""
    plan = Rounds(seed, length)
    old = plan.after(written)
    found = np.fromfile(path, np.uint8)
    if len(found) != length:
        raise ValueError(f"the file has {len(found)} bytes, not {length}")
    if begun == written:
        return same(found, old, 0)
    new = old.copy()
    plan.apply(new, written)
    return same(np.where(found == new, old, found), old, 0)


def write_until_there_is_room(
    tell: Tell, path: str, seed: int, length: int, backend: Backend, direct: bool
) -> int:
    """Every write that was not refused is there, and a refused one can be repeated; refusals."""
    plan, refusals = Rounds(seed, length), 0
    with ferry.Engine(backend) as engine:
        file = engine.open(path, "x", direct=direct)
        for number in range(ROUNDS_MAX):
            refused = _round_on_a_full_disk(tell, file, plan, number)
            refusals += refused
            tell("round", refused)
            if (Path(path).parent.parent / "enough").exists():
                break
        wait_all(write(file, plan.pieces(number)))
        whole = np.zeros(length, np.uint8)
        plan.apply(whole, number)
        check(file, whole[: len(file)], seed)
        file.sync().wait()
    return refusals


def _round_on_a_full_disk(tell: Tell, file: File, plan: Rounds, number: int) -> int:
    """Writes a file from nothing; how many of its pieces were refused."""
    file.set_len(0)
    refused, written = 0, []
    for at, piece in list(plan.pieces(number)):
        written.append((at, piece, file.write(piece, at)))
    for at, piece, pending in written:
        try:
            pending.wait()
        except ferry.OutOfSpace:
            refused += 1
        else:
            same(np.frombuffer(file.read(len(piece), at).wait(), np.uint8), piece, at)
    return refused


def write_beyond_a_limit(
    tell: Tell, path: str, seed: int, length: int, backend: Backend, direct: bool
) -> dict[str, Any]:
    """With a bound on the size of files: what fits is written, the rest is said to be too large."""
    limit = length // 2
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    counts = {"written": 0, "refused": 0}
    with ferry.Engine(backend) as engine:
        file = engine.open(path, "x", direct=direct)
        for at, piece in list(Rounds(seed, length).pieces(0)):
            try:
                file.write(piece, at).wait()
            except (ferry.FileTooLarge, ferry.OutOfSpace) as error:
                if at + len(piece) <= limit:
                    raise ValueError(f"{at} + {len(piece)} is within {limit}") from error
                counts["refused"] += 1
            else:
                if at + len(piece) > limit:
                    raise ValueError(f"{at} + {len(piece)} was written beyond {limit}")
                same(np.frombuffer(file.read(len(piece), at).wait(), np.uint8), piece, at)
                counts["written"] += 1
    return counts
