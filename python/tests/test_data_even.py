"""Ranks get as many batches as one another and as ``len`` says, whatever is bad."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from data_cases import Numbers
from torch.utils.data import Dataset

import tensorferry as ferry
from tensorferry._data.engine import OnError
from tensorferry.data import Files

ON_ERROR: tuple[OnError, ...] = ("skip", "substitute")

LENGTH = 5
SUBSETS = [
    frozenset(bad)
    for size in range(LENGTH + 1)
    for bad in itertools.combinations(range(LENGTH), size)
]


class Holed(Numbers):
    """Some samples can't be read."""

    def __init__(self, length: int, bad: frozenset[int]) -> None:
        super().__init__(length)
        self.bad = bad

    def __getitem__(self, index: int) -> int:
        if index in self.bad:
            raise OSError(f"no sample {index}")
        return index


class HoledMany(Holed):
    def __getitems__(self, indices: list[int]) -> list[int]:
        return [self[index] for index in indices]


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """File number i holds i."""
    directory = tmp_path_factory.mktemp("stored")
    for number in range(LENGTH):
        np.save(directory / f"{number}.npy", np.array(number))
    return directory


def files(directory: Path, bad: frozenset[int]) -> Files:
    """Of which some are not there."""
    return Files([directory / f"{i}{'.gone' if i in bad else ''}.npy" for i in range(LENGTH)])


def stacked(samples: list[int] | int) -> torch.Tensor:
    """A collate function of the user's; without batches it gets one sample."""
    return torch.tensor(samples)


ENGINES: dict[str, tuple[Callable[[Path, frozenset[int]], Any], dict[str, Any]]] = {
    "python": (lambda _, bad: Holed(LENGTH, bad), {"num_workers": 0}),
    "python, many at once": (lambda _, bad: HoledMany(LENGTH, bad), {"num_workers": 0}),
    "core": (files, {}),
    "core, collated by the user": (files, {"collate_fn": stacked}),
}


def cases() -> Iterator[tuple[int, dict[str, Any]]]:
    """World sizes, and ways to cut a share into batches."""
    for world_size in (1, 2, 3):
        yield world_size, {"batch_size": None}
        for size, drop_last in ((1, False), (2, False), (2, True), (3, True)):
            yield world_size, {"batch_size": size, "drop_last": drop_last}


def yielded(dataset: Dataset[Any], bad: frozenset[int], rank: int, **options: Any) -> int:
    """How many batches a rank gets, all of good samples; -1 where it is an error."""
    loader = ferry.DataLoader(dataset, rank=rank, **options)
    count = 0
    batches = iter(loader)
    while True:
        try:
            batch = torch.as_tensor(next(batches)).reshape(-1).tolist()
        except StopIteration:
            break
        except OSError:
            return -1
        assert batch
        assert not bad & set(batch)
        count += 1
    assert count == len(loader)
    return count


@pytest.mark.parametrize("on_error", ON_ERROR)
@pytest.mark.parametrize("engine", ENGINES)
def test_ranks_get_as_many_batches_whatever_is_bad(
    stored: Path, engine: str, on_error: OnError
) -> None:
    """Every set of bad samples among five, every rank: a rank is wrong only if all of it is bad."""
    make, options = ENGINES[engine]
    for bad in SUBSETS:
        dataset = make(stored, bad)
        for world_size, cut in cases():
            got = {
                yielded(
                    dataset, bad, rank, world_size=world_size, on_error=on_error, **cut, **options
                )
                for rank in range(world_size)
            }
            assert len(got) == 1
            assert (got == {-1}) == (len(bad) == LENGTH and got != {0})


@pytest.mark.parametrize("workers", [0, 2])
def test_what_stands_in_is_the_same_on_every_rank_and_for_any_number_of_workers(
    workers: int,
) -> None:
    """It follows from seed, epoch and index alone."""
    bad = frozenset(range(0, 40, 3))

    def stood_in(rank: int, world_size: int) -> dict[int | str, int | None]:
        loader = ferry.DataLoader(
            Holed(40, bad),
            1,
            rank=rank,
            world_size=world_size,
            on_error="skip",
            num_workers=workers,
            seed=4,
        )
        list(loader)
        return {each.index: each.substitute for each in loader.stats().bad}

    alone = stood_in(0, 1)
    assert set(alone) == bad
    parts = [stood_in(rank, 2) for rank in range(2)]
    assert alone == parts[0] | parts[1]


def test_the_core_and_python_take_the_same_samples_in_place_of_bad_ones(stored: Path) -> None:
    for bad in SUBSETS[:-1]:
        for on_error, seed in itertools.product(ON_ERROR, (0, 9, 2**40)):
            results = []
            for dataset in (Holed(LENGTH, bad), files(stored, bad)):
                loader = ferry.DataLoader(dataset, 2, on_error=on_error, seed=seed)
                results.append([batch.tolist() for _ in range(2) for batch in loader])
            assert results[0] == results[1]


def test_a_sampler_that_gives_a_batch_of_nothing_is_an_error(stored: Path) -> None:
    """It was passed over, so that ``len`` said more than came."""
    loader = ferry.DataLoader(files(stored, frozenset()), batch_sampler=[[0], [], [1]])
    batches = iter(loader)
    assert next(batches).tolist() == [0]
    with pytest.raises(ferry.InvalidInput, match="a batch without samples"):
        next(batches)
    assert next(batches).tolist() == [1]
