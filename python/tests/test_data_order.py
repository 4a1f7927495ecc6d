"""The loader's order is torch's: compared with torch itself, draw for draw."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from data_cases import Numbers, flat, seen
from torch.utils.data import (
    BatchSampler,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from torch.utils.data import DataLoader as TorchLoader

import tensorferry as ferry
from tensorferry._data import order
from tensorferry._data.engine import FRESH, Batch, EngineStats, Options, Resume

LENGTHS = (1, 2, 5, 12, 13)
SIZES = (1, 3, 4, 20)


def shuffled(length: int, seed: int, epoch: int) -> torch.Tensor:
    """What ``DistributedSampler`` does."""
    return order.shuffled(length, seed + epoch)


def pair(seed: int) -> tuple[torch.Generator, torch.Generator]:
    return torch.Generator().manual_seed(seed), torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("workers", [None, 0, 2])
def test_a_generator_gives_torchs_batches_and_is_left_as_torch_leaves_it(
    drop_last: bool, workers: int | None
) -> None:
    cases = itertools.product(LENGTHS, SIZES) if not workers else ((2, 1), (12, 4), (13, 4))
    for length, size in cases:
        ours, theirs = pair(length * 100 + size)
        loader = ferry.DataLoader(
            Numbers(length),
            size,
            True,
            generator=ours,
            drop_last=drop_last,
            num_workers=workers,
        )
        reference: Any = TorchLoader(
            Numbers(length), size, True, generator=theirs, drop_last=drop_last, num_workers=0
        )
        for _ in range(3):
            assert seen(loader) == seen(reference)
            assert torch.equal(ours.get_state(), theirs.get_state())


@pytest.mark.parametrize("workers", [0, 2])
def test_a_generator_is_drawn_from_when_torch_draws(workers: int) -> None:
    """Step by step, also past iterators that were left, with workers and without."""
    ours, theirs = pair(5)
    loaders: Any = [
        kind(Numbers(11), batch_size=2, shuffle=True, generator=generator, num_workers=workers)
        for kind, generator in ((ferry.DataLoader, ours), (TorchLoader, theirs))
    ]
    first = [iter(loader) for loader in loaders]
    second = [iter(loader) for loader in loaders]
    assert torch.equal(ours.get_state(), theirs.get_state())
    for mine, other in (second, first, second, first, first, first, first, first):
        assert next(mine).tolist() == next(other).tolist()
        assert torch.equal(ours.get_state(), theirs.get_state())
    for mine, other in (first, second):
        assert seen(mine) == seen(other)
        assert torch.equal(ours.get_state(), theirs.get_state())


def test_a_break_leaves_the_generator_as_torch_does() -> None:
    for workers, taken in itertools.product((0, 2), range(1, 6)):
        ours, theirs = pair(taken)
        kinds: Any = ((ferry.DataLoader, ours), (TorchLoader, theirs))
        for kind, generator in kinds:
            loader = kind(
                Numbers(9), batch_size=2, shuffle=True, generator=generator, num_workers=workers
            )
            for number, _ in enumerate(loader, 1):
                if number == taken:
                    break
        assert torch.equal(ours.get_state(), theirs.get_state()), (workers, taken)


def test_persistent_workers_draw_one_base_seed_as_torchs_do() -> None:
    ours, theirs = pair(8)
    options: Any = {"batch_size": 2, "shuffle": True, "num_workers": 1, "persistent_workers": True}
    loader = ferry.DataLoader(Numbers(7), generator=ours, **options)
    reference: Any = TorchLoader(Numbers(7), generator=theirs, **options)
    for _ in range(3):
        assert seen(loader) == seen(reference)
    assert torch.equal(ours.get_state(), theirs.get_state())


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("drop_last", [False, True])
def test_without_a_generator_it_is_the_order_of_the_distributed_sampler(
    shuffle: bool, drop_last: bool
) -> None:
    for length, size, world_size in itertools.product(LENGTHS, SIZES, (1, 2, 3, 8, 30)):
        for rank in {0, world_size // 2, world_size - 1}:
            dataset = Numbers(length)
            sampler: DistributedSampler[int] = DistributedSampler(
                dataset,
                world_size,
                rank,
                shuffle,
                seed=7,
            )
            reference: Any = TorchLoader(dataset, size, sampler=sampler, drop_last=drop_last)
            loader = ferry.DataLoader(
                dataset,
                size,
                shuffle,
                seed=7,
                rank=rank,
                world_size=world_size,
                drop_last=drop_last,
                num_workers=0,
            )
            assert len(loader) == len(reference)
            for epoch in range(2):
                sampler.set_epoch(epoch)
                assert seen(loader) == seen(reference), (length, size, world_size, rank, epoch)


def test_epochs_advance_by_themselves_also_after_a_break_and_set_epoch_sets_them() -> None:
    loader = ferry.DataLoader(Numbers(20), 4, True, seed=3)
    epochs = [shuffled(20, 3, epoch).tolist() for epoch in range(6)]
    assert flat(loader) == epochs[0]
    for batch in loader:
        assert batch.tolist() == epochs[1][:4]
        break
    assert flat(loader) == epochs[2]
    loader.set_epoch(1)
    assert flat(loader) == epochs[1]
    assert flat(loader) == epochs[2]
    loader.set_epoch(5)
    assert flat(loader) == epochs[5]
    assert list(loader.sampler) == epochs[5]


def test_without_shuffle_it_is_sequential_and_batch_size_none_yields_samples() -> None:
    assert seen(ferry.DataLoader(Numbers(5), 2)) == [[0, 1], [2, 3], [4]]
    assert list(ferry.DataLoader(Numbers(3), None)) == [0, 1, 2]
    loader = ferry.DataLoader(Numbers(6), None, True, seed=1)
    assert list(loader) == shuffled(6, 1, 0).tolist()
    assert len(loader) == 6
    assert seen(ferry.DataLoader(Numbers(0), 2)) == []


class Reversed(Sampler[int]):
    def __init__(self, length: int) -> None:
        self.length = length

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.length - 1, -1, -1))

    def __len__(self) -> int:
        return self.length


@pytest.mark.parametrize("workers", [None, 0, 2])
@pytest.mark.parametrize("size", [1, 4, None])
def test_a_samplers_order_is_torchs_also_from_the_global_generator(
    workers: int | None, size: int | None
) -> None:
    made: list[Any] = [
        lambda g: Reversed(13),
        lambda g: RandomSampler(Numbers(13)),
        lambda g: RandomSampler(Numbers(13), replacement=True, num_samples=40),
        lambda g: RandomSampler(Numbers(13), generator=g),
        lambda g: SubsetRandomSampler(range(5, 12), generator=g),
        lambda g: WeightedRandomSampler([0.1, 0.9, 0.5], 7),
        lambda g: [4, 4, 2],
    ]
    for number, make in enumerate(made):
        results = []
        kinds: Any = ((ferry.DataLoader, workers), (TorchLoader, 0))
        for kind, count in kinds:
            torch.manual_seed(11)
            generator = torch.Generator().manual_seed(number)
            loader = kind(
                Numbers(13),
                batch_size=size,
                sampler=make(generator),
                generator=generator,
                num_workers=count,
            )
            results.append([[torch.as_tensor(b).tolist() for b in loader] for _ in range(2)])
            results[-1].append(torch.random.get_rng_state().tolist())
        assert results[0] == results[1], number


def test_a_batch_samplers_batches_are_its_own() -> None:
    batches = [[3, 1], [2], [0, 0, 0]]
    loader = ferry.DataLoader(Numbers(4), batch_sampler=batches)
    assert seen(loader) == batches
    assert seen(loader) == batches
    assert len(loader) == 3
    assert loader.batch_size is None
    wrapped = BatchSampler(SequentialSampler(Numbers(5)), 2, True)
    assert seen(ferry.DataLoader(Numbers(5), batch_sampler=wrapped)) == [[0, 1], [2, 3]]


def test_an_endless_sampler_is_read_only_a_little_ahead() -> None:
    drawn = []

    def endless() -> Iterator[int]:
        for number in itertools.count():
            drawn.append(number)
            yield number % 7

    loader = ferry.DataLoader(Numbers(7), 2, sampler=endless(), num_workers=2, prefetch_factor=2)
    taken = [batch.tolist() for batch, _ in zip(loader, range(10), strict=False)]
    assert list(itertools.chain.from_iterable(taken)) == [number % 7 for number in range(20)]
    assert len(drawn) <= 2 * (10 + 1 + 4)


def test_set_epoch_reaches_the_users_sampler() -> None:
    sampler: DistributedSampler[int] = DistributedSampler(Numbers(9), 1, 0)
    loader = ferry.DataLoader(Numbers(9), 3, sampler=sampler)
    loader.set_epoch(4)
    assert flat(loader) == shuffled(9, 0, 4).tolist()
    assert flat(loader) == shuffled(9, 0, 4).tolist()  # As torch: not by itself.


def test_other_random_numbers_of_a_program_stay_the_same() -> None:
    """One draw from the global generator for each iterator, as torch's loader makes."""
    results = []
    kinds: Any = (ferry.DataLoader, TorchLoader)
    for kind in kinds:
        torch.manual_seed(2)
        loader = kind(Numbers(4), batch_size=2)
        results.append([torch.rand(()).item() for _ in range(3) for _ in loader])
    assert results[0] == results[1]


class Endless(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return itertools.count()


class Five(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(5))

    def __len__(self) -> int:
        return 5


@pytest.mark.parametrize("options", [{}, {"num_workers": 3, "workers": "threads"}])
def test_an_iterable_dataset_yields_torchs_items(options: dict[str, Any]) -> None:
    for size, drop_last in ((1, False), (2, False), (2, True), (5, True), (None, False)):
        loader = ferry.DataLoader(Five(), size, drop_last=drop_last, **options)
        reference: Any = TorchLoader(Five(), size, drop_last=drop_last)
        assert len(loader) == len(reference)
        for _ in range(2):
            ours, theirs = list(loader), list(reference)
            assert [torch.as_tensor(b).tolist() for b in ours] == [
                torch.as_tensor(b).tolist() for b in theirs
            ]
    taken = itertools.islice(ferry.DataLoader(Endless(), 3, **options), 3)
    assert seen(taken) == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]


class Planning:
    """A dataset with an engine of its own, which writes down what it is told."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.foreseen: list[list[list[int]]] = []
        self.begun: list[tuple[int, int]] = []
        self.options: Options | None = None
        self.ahead = 1
        self.foresees = True

    def __len__(self) -> int:
        return self.length

    def _engine(self, options: Options) -> Planning:
        self.options = options
        return self

    def foresee(self, orders: list[torch.Tensor]) -> None:
        assert all(each.dtype == torch.int64 for each in orders)
        self.foreseen.append([each.tolist() for each in orders])

    def begin(
        self, epoch: int, *, seed: int, base_seed: int, resume: Resume = FRESH
    ) -> PlanningRun:
        self.begun.append((epoch, seed))
        return PlanningRun()

    def stats(self) -> EngineStats:
        return EngineStats(cache_hits={"memory": 3}, predicted={"seconds": 2.0})

    def close(self) -> None:
        pass


class PlanningRun:
    def __init__(self) -> None:
        self.submitted: list[list[int]] = []
        self.taken = 0

    def submit(self, indices: list[int]) -> None:
        self.submitted.append(indices)

    def next(self, timeout: float | None) -> Batch:
        self.taken += 1
        indices = self.submitted[self.taken - 1]
        return Batch(self.taken - 1, torch.tensor(indices), len(indices))

    def close(self) -> None:
        pass


@pytest.mark.parametrize("workers", [None, 2])
@pytest.mark.parametrize("kind", ["seeded", "sequential", "generator"])
def test_an_engine_that_plans_is_told_what_really_comes(kind: str, workers: int | None) -> None:
    for length, drop_last, world_size in itertools.product((5, 12), (False, True), (1, 2)):
        dataset = Planning(length)
        loader = ferry.DataLoader(
            dataset,
            4,
            kind != "sequential",
            generator=torch.Generator().manual_seed(9) if kind == "generator" else None,
            drop_last=drop_last,
            rank=0,
            world_size=world_size,
            num_workers=workers,
            seed=5,
            transform="as the engine likes",
        )
        epochs = [flat(loader) for _ in range(3)]
        assert dataset.options is not None
        assert dataset.options.transform == "as the engine likes"
        assert dataset.begun == [(0, 5), (1, 5), (2, 5)]
        assert [told[0] for told in dataset.foreseen] == epochs
        assert [told[1] for told in dataset.foreseen[:2]] == epochs[1:]
        assert "memory 3" in str(loader.stats())


@pytest.mark.parametrize(("world_size", "epochs"), [(1, 2), (3, 6), (50, 64)])
def test_what_is_told_of_seeded_orders_reaches_as_far_as_a_rank_needs(
    world_size: int, epochs: int
) -> None:
    dataset = Planning(100)
    loader = ferry.DataLoader(dataset, 4, True, rank=0, world_size=world_size)
    came = [flat(loader) for _ in range(6)]
    assert [len(told) for told in dataset.foreseen] == [epochs] * 6
    for epoch, told in enumerate(dataset.foreseen):
        assert all(a == b for a, b in zip(told, came[epoch:], strict=False))


def test_an_engine_that_plans_nothing_is_told_nothing_and_one_that_wants_more_gets_it() -> None:
    dataset = Planning(40)
    dataset.foresees, dataset.ahead = False, 17
    batches: Any = iter(ferry.DataLoader(dataset, 2, True))
    assert dataset.foreseen == []
    assert len(batches._run.submitted) == 17


def test_random_cases_agree_with_torch() -> None:
    cases = random.Random(0)
    for _ in range(60):
        length, size, world_size = (cases.randint(1, high) for high in (60, 9, 5))
        rank, seed, epoch = (cases.randrange(high) for high in (world_size, 100, 50))
        drop_last = cases.random() < 0.5
        sampler: DistributedSampler[int] = DistributedSampler(
            Numbers(length),
            world_size,
            rank,
            seed=seed,
        )
        sampler.set_epoch(epoch)
        loader = ferry.DataLoader(
            Numbers(length),
            size,
            True,
            seed=seed,
            rank=rank,
            world_size=world_size,
            drop_last=drop_last,
            num_workers=cases.choice([0, 1, 3]),
            workers="threads",
        )
        loader.set_epoch(epoch)
        assert seen(loader) == seen(
            TorchLoader(Numbers(length), size, sampler=sampler, drop_last=drop_last)
        )


def test_ranks_come_from_torch_distributed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 1)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    assert seen(ferry.DataLoader(Numbers(5), 2)) == [[1, 3], [0]]
    # Orders that are torch's or the user's are not divided behind his back.
    assert seen(ferry.DataLoader(Numbers(3), 3, sampler=[2, 1, 0])) == [[2, 1, 0]]
    ours, theirs = pair(1)
    assert seen(ferry.DataLoader(Numbers(9), 2, True, generator=ours)) == seen(
        TorchLoader(Numbers(9), 2, True, generator=theirs)
    )


def test_on_several_ranks_whoever_takes_a_loader_apart_finds_an_order_of_manual_seed() -> None:
    def orders(**options: Any) -> list[list[int]]:
        found = []
        for seed in (1, 1, 2):
            torch.manual_seed(seed)
            loader = ferry.DataLoader(Numbers(37), 4, True, rank=0, world_size=2, **options)
            found.append(list(loader.sampler))
            # The loader's own order is that of DistributedSampler(seed=0), or of the seed.
            whole = order.shuffled(37, options.get("seed", 0))
            assert flat(loader) == order.share(whole, 0, 2).tolist()
        return found

    first, again, other = orders()
    assert first == again != other
    first, again, other = orders(seed=3)
    assert first == again == other
