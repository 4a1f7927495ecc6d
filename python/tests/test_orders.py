"""The orders that the core is held to are those of the torch at hand.

`python tests/test_orders.py` writes them anew.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DistributedSampler

RECORDED = Path(__file__).parents[2] / "crates/tensorferry/tests/data/orders.json"

# Orders up to this length are written out; of longer ones the beginning and a checksum.
WHOLE = 12
FIRST = 6


def checksum(order: Iterable[int]) -> int:
    total = 0
    for number in order:
        total = (total * 6364136223846793005 + number + 1) % 2**64
    return total


def beginning(order: list[int]) -> list[int]:
    return order if len(order) <= WHOLE else order[:FIRST]


def words() -> Iterator[dict[str, Any]]:
    for seed in (0, 1, 5489, 2**32 - 1, 2**32 + 1, 2**63):
        generator = torch.Generator().manual_seed(seed)
        # One draw for each, of which 31 bits are kept; 700 of them cross the first renewal.
        narrow: list[int] = (
            torch.empty(700, dtype=torch.int32).random_(generator=generator).tolist()
        )
        # Two draws for each, of which 63 bits are kept.
        wide: list[int] = torch.empty(3, dtype=torch.int64).random_(generator=generator).tolist()
        yield {
            "seed": seed,
            "first": beginning(narrow),
            "count": len(narrow),
            "checksum": checksum(narrow),
            "wide": wide,
        }


def permutations() -> Iterator[dict[str, Any]]:
    for n in (0, 1, 2, 3, 7, 12, 100, 623, 625, 10_000, 100_003):
        for seed in (0, 1, 42, 2**32 + 5, 2**63 + 11):
            generator = torch.Generator().manual_seed(seed)
            order: list[int] = torch.randperm(n, generator=generator).tolist()
            following: list[int] = torch.randperm(n, generator=generator).tolist()
            yield {
                "n": n,
                "seed": seed,
                "first": beginning(order),
                "checksum": checksum(order),
                "next_checksum": checksum(following),
            }


def shares() -> Iterator[dict[str, Any]]:
    for length in (1, 2, 3, 10, 97, 1000):
        for world_size in (1, 2, 3, 8, 64):
            for rank in sorted({0, world_size // 2, world_size - 1}):
                for shuffle, drop_last, seed, epoch in (
                    (True, False, 0, 0),
                    (True, False, 3, 5),
                    (True, True, 2**32 - 1, 1),
                    (False, False, 0, 2),
                    (False, True, 0, 0),
                ):
                    sampler: DistributedSampler[int] = DistributedSampler(
                        range(length),  # type: ignore[arg-type]
                        num_replicas=world_size,
                        rank=rank,
                        shuffle=shuffle,
                        seed=seed,
                        drop_last=drop_last,
                    )
                    sampler.set_epoch(epoch)
                    order = list(sampler)
                    yield {
                        "len": length,
                        "world_size": world_size,
                        "rank": rank,
                        "seed": seed,
                        "shuffle": shuffle,
                        "drop_last": drop_last,
                        "epoch": epoch,
                        "first": beginning(order),
                        "count": len(order),
                        "checksum": checksum(order),
                    }


def record() -> dict[str, Any]:
    return {
        "words": list(words()),
        "permutations": list(permutations()),
        "shares": list(shares()),
    }


def test_recorded_orders_are_those_of_torch() -> None:
    assert json.loads(RECORDED.read_text()) == record()


if __name__ == "__main__":
    lists = (
        f' "{name}": [\n' + ",\n".join(f"  {json.dumps(item)}" for item in items) + "\n ]"
        for name, items in record().items()
    )
    RECORDED.write_text("{\n" + ",\n".join(lists) + "\n}\n")
