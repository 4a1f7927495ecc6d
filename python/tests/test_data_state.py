"""Resuming: exactly the batches that were not yielded, whoever resumes."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from data_cases import Numbers, flat, seen
from torch.utils.data import (
    BatchSampler,
    IterableDataset,
    RandomSampler,
    Sampler,
    WeightedRandomSampler,
)

import tensorferry as ferry
from tensorferry._data import order

LENGTH = 23


def shuffled(length: int, seed: int, epoch: int) -> torch.Tensor:
    """What ``DistributedSampler`` does."""
    return order.shuffled(length, seed + epoch)


def generator(seed: int = 4) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


class Counting(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(LENGTH))


MADE: dict[str, Callable[..., ferry.DataLoader]] = {
    "seeded": lambda **o: ferry.DataLoader(Numbers(LENGTH), 4, True, seed=5, **o),
    "sequential": lambda **o: ferry.DataLoader(Numbers(LENGTH), 4, **o),
    "generator": lambda **o: ferry.DataLoader(Numbers(LENGTH), 4, True, generator=generator(), **o),
    "dropping": lambda **o: ferry.DataLoader(Numbers(LENGTH), 4, True, drop_last=True, **o),
    "ranked": lambda **o: ferry.DataLoader(Numbers(LENGTH), 2, True, rank=1, world_size=3, **o),
    "unbatched": lambda **o: ferry.DataLoader(Numbers(6), None, True, collate_fn=torch.tensor, **o),
    "sampler": lambda **o: ferry.DataLoader(
        Numbers(LENGTH), 4, sampler=RandomSampler(Numbers(LENGTH)), **o
    ),
    "own generator": lambda **o: ferry.DataLoader(
        Numbers(LENGTH), 4, sampler=RandomSampler(Numbers(LENGTH), generator=generator()), **o
    ),
    "shared generator": lambda **o: (
        lambda g: ferry.DataLoader(
            Numbers(LENGTH),
            4,
            sampler=RandomSampler(Numbers(LENGTH), generator=g),
            generator=g,
            **o,
        )
    )(generator()),
    "weighted": lambda **o: ferry.DataLoader(
        Numbers(LENGTH), 4, sampler=WeightedRandomSampler([1.0] * LENGTH, LENGTH), **o
    ),
    "batch_sampler": lambda **o: ferry.DataLoader(
        Numbers(LENGTH),
        batch_sampler=BatchSampler(RandomSampler(Numbers(LENGTH), generator=generator()), 4, False),
        **o,
    ),
    "iterable": lambda **o: ferry.DataLoader(Counting(), 4, **o),
}


def uninterrupted(kind: str, epochs: int, **options: Any) -> list[list[Any]]:
    torch.manual_seed(1)
    loader = MADE[kind](**options)
    return [seen(loader) for _ in range(epochs)]


def stored(state: dict[str, Any]) -> Any:
    """As it comes back from a file."""
    return json.loads(json.dumps(state))


WORKERS: dict[str, dict[str, Any]] = {
    "caller": {},
    "threads": {"workers": "threads", "num_workers": 2},
    "processes": {"num_workers": 2},
}


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("kind", MADE)
def test_a_resumed_loader_yields_exactly_the_remaining_batches(kind: str, workers: str) -> None:
    options = WORKERS[workers]
    whole = uninterrupted(kind, 3, **options)
    # Processes take a while to start.
    for taken in (1, len(whole[1])) if workers == "processes" else range(len(whole[1]) + 1):
        torch.manual_seed(1)
        loader = MADE[kind](**options)
        assert seen(loader) == whole[0]
        iteration = iter(loader)
        assert seen(itertools.islice(iteration, taken)) == whole[1][:taken]
        state, global_state = stored(loader.state_dict()), torch.random.get_rng_state()

        torch.manual_seed(99)
        resumed = MADE[kind](**options)
        resumed.load_state_dict(state)
        torch.random.set_rng_state(global_state)  # As a checkpoint of a training run does.
        assert seen(resumed) == whole[1][taken:], taken
        assert seen(resumed) == whole[2], taken


@pytest.mark.parametrize("kind", MADE)
def test_a_state_before_the_first_batch_and_after_an_epoch_begin_epochs(kind: str) -> None:
    whole = uninterrupted(kind, 2)
    torch.manual_seed(1)
    loader = MADE[kind]()
    for epoch in range(2):
        state = stored(loader.state_dict())
        assert state["epoch"] == epoch
        resumed = MADE[kind]()
        with torch.random.fork_rng():
            resumed.load_state_dict(state)
            assert seen(resumed) == whole[epoch]
        assert seen(loader) == whole[epoch]


@pytest.mark.parametrize("kind", MADE)
def test_one_epoch_may_be_saved_and_resumed_many_times(kind: str) -> None:
    whole = uninterrupted(kind, 1)[0]
    torch.manual_seed(1)
    state, collected = MADE[kind]().state_dict(), []
    for taken in (1, 0, 2, 1, 100):
        loader = MADE[kind]()
        loader.load_state_dict(stored(state))
        assert stored(loader.state_dict()) == stored(state)  # Nothing has happened yet.
        with torch.random.fork_rng():
            collected += seen(itertools.islice(iter(loader), taken))
        state = loader.state_dict()
    assert collected == whole


def test_the_generator_ends_as_if_nothing_had_been_interrupted() -> None:
    for workers, taken in itertools.product((0, 2), range(1, 7)):
        plain, resumed = generator(), generator()
        loader = ferry.DataLoader(Numbers(11), 2, True, generator=plain, num_workers=workers)
        iteration = iter(loader)
        for _ in range(taken):
            next(iteration)
        state = loader.state_dict()
        seen(iteration)
        again = ferry.DataLoader(Numbers(11), 2, True, generator=resumed, num_workers=workers)
        again.load_state_dict(state)
        seen(again)
        assert torch.equal(plain.get_state(), resumed.get_state()), (workers, taken)


def test_a_resumed_epoch_does_not_draw_from_the_global_generator_again() -> None:
    loader = ferry.DataLoader(Numbers(9), 2, True)
    iteration = iter(loader)
    next(iteration)
    state = loader.state_dict()
    resumed = ferry.DataLoader(Numbers(9), 2, True)
    resumed.load_state_dict(state)
    before = torch.random.get_rng_state()
    seen(resumed)
    assert torch.equal(before, torch.random.get_rng_state())


def ranks(world_size: int, size: int, state: Any, **options: Any) -> list[ferry.DataLoader]:
    loaders = [
        ferry.DataLoader(
            Numbers(LENGTH), size, True, seed=2, rank=rank, world_size=world_size, **options
        )
        for rank in range(world_size)
    ]
    for loader in loaders:
        if state is not None:
            loader.load_state_dict(stored(state))
    return loaders


def step(loaders: list[ferry.DataLoader], steps: int) -> list[int]:
    """All ranks go on for so many batches."""
    samples = []
    for loader in loaders:
        samples += flat(itertools.islice(iter(loader), steps))
    return samples


def rest_of(loaders: list[ferry.DataLoader]) -> list[int]:
    """What is left for all ranks, who get as many batches: where samples don't come out even, some
    come again, fewer than there are ranks."""
    batches = [seen(loader) for loader in loaders]
    assert len({len(each) for each in batches}) == 1
    samples = [sample for each in batches for batch in each for sample in batch]
    assert len(samples) - len(set(samples)) < len(loaders)
    return samples


def test_another_world_size_reads_each_remaining_sample() -> None:
    sizes = ((1, 2), (2, 1), (2, 3), (3, 2), (4, 4), (5, 2), (1, 7))
    for (before, after), size, steps in itertools.product(sizes, (1, 2, 3), (1, 2)):
        first = ranks(before, size, None, num_workers=0)
        taken = step(first, steps)
        states = [loader.state_dict() for loader in first]
        for state in states:
            assert {**state, "base_seed": 0} == {**states[0], "base_seed": 0}
        rest = rest_of(ranks(after, size, states[0], num_workers=0))
        if before == after or before * size * steps >= LENGTH:
            continue
        assert sorted({*taken, *rest}) == list(range(LENGTH)), (before, after, size, steps)
        assert sorted(taken) == sorted(shuffled(LENGTH, 2, 0)[: len(taken)].tolist())


def test_each_remaining_sample_comes_once_where_ranks_are_even_so() -> None:
    state = ranks(1, 3, None, num_workers=0)[0]
    step([state], 1)
    for world_size, size in ((2, 3), (4, 2), (5, 2), (3, 7)):
        rest = rest_of(ranks(world_size, size, state.state_dict(), num_workers=0))
        assert len(rest) == LENGTH - 3, (world_size, size)


@pytest.mark.parametrize("size", [1, 2, 3, None])
def test_ranks_get_as_many_batches_whatever_the_world_was(size: int | None) -> None:
    for length, before, after, steps in itertools.product(range(1, 12), (1, 2, 3), (2, 4), (1, 2)):
        first = [
            ferry.DataLoader(Numbers(length), size, True, seed=2, rank=rank, world_size=before)
            for rank in range(before)
        ]
        for loader in first:
            list(itertools.islice(iter(loader), steps))
        counts = []
        for rank in range(after):
            other = ferry.DataLoader(
                Numbers(length), size, True, seed=2, rank=rank, world_size=after
            )
            other.load_state_dict(first[0].state_dict())
            counts.append(len(list(other)))
        assert len(set(counts)) == 1, (length, before, after, steps, counts)


def test_the_world_may_change_twice_in_one_epoch() -> None:
    cases = random.Random(1)
    for _ in range(40):
        taken: list[int] = []
        state = None
        for _ in range(2):
            world_size, size = cases.randint(1, 4), cases.randint(1, 2)  # At most 8 a step.
            loaders = ranks(world_size, size, state, num_workers=0)
            taken += step(loaders, 1)
            state = loaders[0].state_dict()
        taken += rest_of(ranks(5, 1, state, num_workers=0))
        assert sorted(set(taken)) == list(range(LENGTH))


def test_the_next_epoch_after_a_change_is_whole_again() -> None:
    first = ranks(2, 3, None)
    step(first, 2)
    loaders = ranks(3, 3, first[0].state_dict())
    step(loaders, 1000)
    following = [flat(loader) for loader in loaders]
    assert {len(share) for share in following} == {8}
    whole = shuffled(LENGTH, 2, 1)
    assert following[1] == order.share(whole, 1, 3).tolist()


def test_with_drop_last_ranks_get_as_many_batches_after_a_change() -> None:
    first = ranks(1, 3, None, drop_last=True)
    step(first, 1)
    counts = [len(seen(loader)) for loader in ranks(3, 2, first[0].state_dict(), drop_last=True)]
    assert counts == [3, 3, 3]


def test_another_batch_size_reads_each_remaining_sample_once() -> None:
    for kind in ("seeded", "generator", "sampler", "own generator", "shared generator"):
        torch.manual_seed(3)
        loader = MADE[kind]()
        taken = flat(itertools.islice(iter(loader), 2))
        state = loader.state_dict()
        torch.manual_seed(77)
        own = MADE[kind]()
        sampler = own.sampler if "sampler" in state["order"] else None
        resumed = ferry.DataLoader(
            Numbers(LENGTH),
            7,
            sampler is None,
            seed=state["seed"],
            sampler=sampler,
            generator=own.generator,
        )
        resumed.load_state_dict(state)
        rest = flat(resumed)
        assert len(rest) == LENGTH - 8
        assert sorted(taken + rest) == list(range(LENGTH)), kind


class Careful(Sampler[int]):
    """A sampler that knows its place."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.at = 0
        self.loads = 0

    def __iter__(self) -> Iterator[int]:
        while self.at < self.length:
            self.at += 1
            yield self.length - self.at
        self.at = 0

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at = state["at"]
        self.loads += 1


def test_a_sampler_with_a_state_is_asked_for_it_where_the_user_is_not_where_it_is_read() -> None:
    for workers, taken in itertools.product((0, 2), range(5)):
        loader = ferry.DataLoader(Numbers(10), 3, sampler=Careful(10), num_workers=workers)
        seen(itertools.islice(iter(loader), taken))
        state = stored(loader.state_dict())
        if taken < 4:
            assert state["sampler"] == {"own": {"at": 3 * taken}}
        sampler = Careful(10)
        resumed = ferry.DataLoader(Numbers(10), 3, sampler=sampler, num_workers=workers)
        resumed.load_state_dict(state)
        assert flat(resumed) == list(range(9, -1, -1))[3 * taken :]
        assert flat(resumed) == list(range(9, -1, -1))
        assert sampler.loads == 1


class Moody(Sampler[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(random.SystemRandom().sample(range(100), 100))


def test_a_sampler_that_does_not_repeat_itself_is_found_out() -> None:
    loader = ferry.DataLoader(Numbers(100), 10, sampler=Moody())
    next(iter(loader))
    resumed = ferry.DataLoader(Numbers(100), 10, sampler=Moody())
    resumed.load_state_dict(loader.state_dict())
    with pytest.raises(ferry.InvalidInput, match=r"did not repeat the order.*state_dict"):
        iter(resumed)


def test_set_epoch_keeps_the_place_in_the_epoch_of_the_state_and_begins_any_other() -> None:
    loader = ferry.DataLoader(Numbers(10), 4, True, seed=0)
    loader.set_epoch(3)
    next(iter(loader))
    state = loader.state_dict()
    assert state["epoch"] == 3
    resumed = ferry.DataLoader(Numbers(10), 4, True, seed=0)
    resumed.load_state_dict(state)
    resumed.set_epoch(3)
    assert flat(resumed) == shuffled(10, 0, 3).tolist()[4:]
    resumed.load_state_dict(state)
    resumed.set_epoch(4)
    assert flat(resumed) == shuffled(10, 0, 4).tolist()


def test_batches_that_came_before_their_turn_do_not_come_again() -> None:
    import threading

    opened = threading.Event()

    class Stuck(Numbers):
        def __getitem__(self, index: int) -> int:
            if index == 0:
                assert opened.wait(60)
            return index

    loader = ferry.DataLoader(Stuck(12), 1, in_order=False, num_workers=2, prefetch_factor=2)
    iteration = iter(loader)
    first = [int(next(iteration)) for _ in range(3)]
    assert 0 not in first
    state = stored(loader.state_dict())
    assert state["batches"] == 0
    assert sorted(state["beyond"]) == sorted(first)
    opened.set()
    resumed = ferry.DataLoader(Numbers(12), 1, in_order=False, num_workers=2)
    resumed.load_state_dict(state)
    assert sorted(first + flat(resumed)) == list(range(12))
    other = ferry.DataLoader(Numbers(12), 2, num_workers=2)
    with pytest.raises(ferry.InvalidInput, match="in_order=False"):
        other.load_state_dict(state)


@pytest.mark.parametrize("workers", [0, 2])
def test_failed_batches_one_after_the_other_can_be_gone_back_to(workers: int) -> None:
    def fail(samples: list[int]) -> list[int]:
        if samples[0] in (2, 4, 6):
            raise ValueError("not today")
        return samples

    def make(collate_fn: Any) -> ferry.DataLoader:
        return ferry.DataLoader(
            Numbers(12), 2, sampler=range(12), collate_fn=collate_fn, num_workers=workers
        )

    loader = make(fail)
    batches = iter(loader)
    assert next(batches) == [0, 1]
    for _ in range(3):
        with pytest.raises(ValueError, match="not today"):
            next(batches)
        resumed = make(list)
        resumed.load_state_dict(stored(loader.state_dict()))
        assert next(iter(resumed)) == [2, 3]


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (lambda: ferry.DataLoader(Numbers(22), 4, True, seed=5), "another length.*was 23.*is 22"),
        (lambda: ferry.DataLoader(Numbers(23), 4, True, seed=6), "another seed.*was 5.*is 6"),
        (lambda: ferry.DataLoader(Numbers(23), 4, seed=5), "another kind of order"),
        (
            lambda: ferry.DataLoader(Numbers(23), 4, True, seed=5, generator=generator()),
            "was 'seeded', here it is 'generator'",
        ),
        (lambda: ferry.DataLoader(Numbers(23), 4, sampler=[1], seed=5), "'sampler'"),
    ],
)
def test_a_state_of_another_loader_is_refused(
    other: Callable[[], ferry.DataLoader], message: str
) -> None:
    state = MADE["seeded"]().state_dict()
    with pytest.raises(ferry.InvalidInput, match=message):
        other().load_state_dict(state)


@pytest.mark.parametrize(
    "change",
    [
        {"version": 1},
        {"places": 1},
        {"drawn": "x"},
        {"chance": None},
        {"epoch": -1},
        {"batches": "many"},
        {"base": None},
        {"world_size": 0},
        {"batch_size": 0},
        {"beyond": 3},
        {"generator": 7},
        {"generator": "00"},
        {"sampler": []},
        {"bad": {"count": 1}},
        {"surprise": 1},
    ],
)
def test_what_is_no_state_is_refused(change: dict[str, Any]) -> None:
    state = {**MADE["seeded"]().state_dict(), **change}
    with pytest.raises(ferry.InvalidInput, match="state"):
        MADE["seeded"]().load_state_dict(state)


def test_nonsense_is_no_state() -> None:
    for nonsense in ({}, {"version": 1}, None, [1]):
        with pytest.raises(ferry.InvalidInput, match="no state of a DataLoader"):
            MADE["seeded"]().load_state_dict(nonsense)  # type: ignore[arg-type]
