"""What goes wrong, and what the loader says then."""

from __future__ import annotations

import contextlib
import multiprocessing
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from data_cases import Numbers, flat, seen, told
from torch.utils.data import DataLoader as TorchLoader
from torch.utils.data import IterableDataset

import tensorferry as ferry
from tensorferry._data.bad import NAMED_MAX, SUBSTITUTES_MAX, substitutes


class Broken(Numbers):
    """Some samples can't be read."""

    def __init__(self, length: int, *bad: object) -> None:
        super().__init__(length)
        self.bad = set(bad)

    def __getitem__(self, index: int) -> int:
        if index in self.bad:
            raise KeyError(f"no sample {index}")
        return index


class BrokenMany(Broken):
    def __getitems__(self, indices: list[int]) -> list[int]:
        return [self[index] for index in indices]


class Words(IterableDataset[str]):
    def __iter__(self) -> Iterator[str]:
        yield "a"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_workers": -1}, "num_workers .*non-negative.*-1"),
        ({"num_workers": 1.5}, "num_workers"),
        ({"timeout": -1}, "timeout option should be non-negative"),
        ({"timeout": 1, "num_workers": 0}, "timeout needs num_workers > 0"),
        ({"prefetch_factor": 4, "num_workers": 0}, "prefetch_factor=4 needs num_workers > 0"),
        ({"prefetch_factor": -1, "num_workers": 1}, "prefetch_factor option should be non-neg"),
        ({"prefetch_factor": 0, "num_workers": 1}, "prefetch_factor=0 leaves worker processes"),
        ({"prefetch_factor": 2}, "prefetch_factor=2 needs num_workers > 0"),
        ({"workers": "fibres"}, "workers should be one of None, 'processes', 'threads'"),
        ({"num_workers": 1, "multiprocessing_context": "thread"}, "valid start method"),
        ({"multiprocessing_context": "fork"}, "num_workers > 0"),
        ({"persistent_workers": True, "num_workers": 0}, "persistent_workers option needs"),
        ({"sampler": [0], "shuffle": True}, "sampler option is mutually exclusive with shuffle"),
        ({"batch_sampler": [[0]], "batch_size": 2}, "batch_sampler option is mutually exclusive"),
        ({"batch_sampler": [[0]], "shuffle": True}, "batch_sampler option is mutually exclusive"),
        ({"batch_sampler": [[0]], "sampler": [0]}, "batch_sampler option is mutually exclusive"),
        ({"batch_sampler": [[0]], "drop_last": True}, "batch_sampler option is mutually"),
        ({"batch_size": None, "drop_last": True}, "disables auto-batching"),
        ({"batch_size": 0}, "batch_size should be a positive integer value.*batch_size=0"),
        ({"batch_size": True}, "batch_size should be a positive integer"),
        ({"drop_last": "no"}, "drop_last should be one of"),
        ({"rank": 0}, "rank without world_size"),
        ({"world_size": 2}, "world_size without rank"),
        ({"rank": 2, "world_size": 2}, r"Invalid rank 2.*\[0, 1\]"),
        ({"rank": 0, "world_size": 0}, "world_size is at least 1"),
        ({"rank": 0, "world_size": 2, "sampler": [0]}, "give them to your sampler"),
        ({"seed": "x"}, "seed should be an integer"),
        ({"on_error": "ignore"}, "on_error should be one of 'raise', 'skip', 'substitute'"),
        ({"cache_policy": "fifo"}, "cache_policy should be one of 'lru'"),
        ({"cache_limit": "many"}, "many"),
        ({"cache": "boiled"}, "cache should be one of"),
        ({"threads": "some"}, "threads should be one of"),
        ({"progress": "yes"}, "progress should be one of"),
        ({"max_pixels": 0}, "max_pixels should be a positive"),
        ({"transform": abs}, "give a transform of its own to this Numbers"),
        ({"cache_limit": "1GiB"}, "cache_limit= is for ImageFolder.*nothing is kept near of"),
        ({"cache_policy": "lru"}, "cache_policy= is for ImageFolder"),
        ({"cache": "decoded"}, "cache= is for ImageFolder"),
        ({"cache_dir": "/tmp"}, "cache_dir= is for ImageFolder"),
        ({"threads": "static"}, "threads= is for ImageFolder"),
        ({"storage_options": {"a": "b"}}, "storage_options= is for ImageFolder"),
        ({"max_pixels": 9}, "max_pixels= is for ImageFolder"),
    ],
)
def test_a_mistake_in_an_argument_is_a_value_error_that_says_what_to_do(
    options: dict[str, Any], message: str
) -> None:
    # Which is what torch's loader raises; ours is one too.
    with pytest.raises(ValueError, match=message):
        ferry.DataLoader(Numbers(4), **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shuffle": True}, "expected unspecified shuffle option"),
        ({"sampler": [0]}, "expected unspecified sampler option"),
        ({"batch_sampler": [[0]]}, "expected unspecified batch_sampler option"),
        ({"on_error": "substitute"}, "no other samples to substitute"),
        ({"batch_size": -3}, "batch_size"),
    ],
)
def test_an_iterable_dataset_takes_no_order(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ferry.InvalidInput, match=message):
        ferry.DataLoader(Words(), **options)


def test_what_is_no_dataset_is_refused() -> None:
    with pytest.raises(ferry.InvalidInput, match=r"__getitem__.*IterableDataset"):
        ferry.DataLoader(iter([1]), sampler=[0])


def test_datapipes_are_refused() -> None:
    from torch.utils.data.datapipes.iter import IterableWrapper

    with pytest.raises(ferry.InvalidInput, match="torch's own DataLoader"):
        ferry.DataLoader(IterableWrapper([1]))


def test_a_multiprocessing_context_is_ignored_by_threads_with_a_warning() -> None:
    with pytest.warns(UserWarning, match="workers are threads"):
        loader = ferry.DataLoader(Numbers(2), workers="threads", multiprocessing_context="spawn")
    assert flat(loader) == [0, 1]


def test_attributes_are_torchs_and_as_fixed() -> None:
    generator = torch.Generator()
    options: Any = {"batch_size": 3, "shuffle": True, "generator": generator, "num_workers": 1}
    loader, reference = ferry.DataLoader(Numbers(8), **options), TorchLoader(Numbers(8), **options)
    for name in ("batch_size", "drop_last", "num_workers", "generator", "collate_fn", "timeout"):
        assert getattr(loader, name) == getattr(reference, name), name
    for name in ("prefetch_factor", "pin_memory", "persistent_workers", "in_order"):
        assert getattr(loader, name) == getattr(reference, name), name
    assert type(loader.sampler) is type(reference.sampler)
    assert type(loader.batch_sampler) is type(reference.batch_sampler)
    for name in ("batch_size", "sampler", "batch_sampler", "drop_last", "dataset"):
        with pytest.raises(ValueError, match="should not be set after"):
            setattr(loader, name, None)


@pytest.mark.parametrize("workers", [0, 1, 3])
@pytest.mark.parametrize("dataset", [Broken, BrokenMany])
def test_an_exception_keeps_its_type_and_names_the_sample(
    dataset: type[Broken], workers: int
) -> None:
    iteration = iter(ferry.DataLoader(dataset(12, 5, 6, 7), 4, num_workers=workers))
    assert next(iteration).tolist() == [0, 1, 2, 3]
    with pytest.raises(KeyError, match="no sample 5") as caught:
        next(iteration)
    said = told(caught.value)
    assert ("sample 5 " in said) if dataset is Broken else ("[4, 5, 6, 7]" in said)
    assert ("Original Traceback" in said) == (workers > 0)
    assert next(iteration).tolist() == [8, 9, 10, 11]  # As torch: the user may go on.
    with pytest.raises(StopIteration):
        next(iteration)


def test_a_state_taken_at_a_failed_batch_comes_back_to_it_and_a_later_one_does_not() -> None:
    loader = ferry.DataLoader(Broken(12, 5), 4)
    iteration = iter(loader)
    next(iteration)
    with pytest.raises(KeyError):
        next(iteration)
    assert loader.state_dict()["batches"] == 1
    next(iteration)
    assert loader.state_dict()["batches"] == 3


def test_stop_iteration_in_a_dataset_does_not_end_the_epoch() -> None:
    class Ending(Numbers):
        def __getitem__(self, index: int) -> int:
            raise StopIteration

    for workers in (0, 2):
        with pytest.raises(RuntimeError, match="StopIteration while getting sample 0"):
            flat(ferry.DataLoader(Ending(3), num_workers=workers))


def test_an_error_in_collating_names_the_batch() -> None:
    def refuse(samples: list[int]) -> int:
        raise TypeError("can't")

    for workers in (0, 2):
        loader = ferry.DataLoader(Numbers(3), 2, collate_fn=refuse, num_workers=workers)
        with pytest.raises(TypeError, match="can't") as caught:
            next(iter(loader))
        assert "collating samples [0, 1]" in told(caught.value)


def test_an_error_in_worker_init_fn_is_raised_to_the_user() -> None:
    def refuse(worker: int) -> None:
        raise OSError("no scratch disk")

    for workers in ("processes", "threads"):
        loader = ferry.DataLoader(Numbers(3), num_workers=2, workers=workers, worker_init_fn=refuse)
        iteration = iter(loader)
        for _ in range(2):
            with pytest.raises((OSError, RuntimeError), match="no scratch disk") as caught:
                next(iteration)
            assert "init_fn" in told(caught.value)


def test_an_error_of_a_sampler_comes_after_the_batches_before_it() -> None:
    def failing() -> Iterator[int]:
        yield from (0, 1, 2)
        raise LookupError("lost")

    for workers in (0, 2):
        iteration = iter(ferry.DataLoader(Numbers(3), sampler=failing(), num_workers=workers))
        assert [int(next(iteration)) for _ in range(3)] == [0, 1, 2]
        with pytest.raises(LookupError, match="lost"):
            next(iteration)


class Stuck(Numbers):
    """Samples that come when they are let through."""

    def __init__(self, gate: Any) -> None:
        super().__init__(4)
        self.gate = gate

    def __getitem__(self, index: int) -> int:
        assert self.gate.wait(60)
        return index


@pytest.mark.parametrize("workers", ["processes", "threads"])
def test_a_timeout_names_the_samples_and_is_a_runtime_error_as_torchs(workers: Any) -> None:
    gate = multiprocessing.Event() if workers == "processes" else threading.Event()
    loader = ferry.DataLoader(Stuck(gate), 2, num_workers=1, timeout=0.5, workers=workers)
    iteration = iter(loader)
    for _ in range(2):
        says = r"DataLoader timed out after 0.5 seconds; waiting for samples \[0, 1\]"
        with pytest.raises(ferry.Timeout, match=says) as caught:
            next(iteration)
        assert isinstance(caught.value, RuntimeError)
    gate.set()
    # Late, not lost.
    assert patient(iteration) == [0, 1]
    assert patient(iteration) == [2, 3]


def patient(iteration: Iterator[Any]) -> Any:
    """The next batch, on a machine that may be slow."""
    for _ in range(200):
        with contextlib.suppress(ferry.Timeout):
            return next(iteration).tolist()
    raise AssertionError("it never came")


@pytest.mark.parametrize("workers", [0, 1, 3])
@pytest.mark.parametrize("dataset", [Broken, BrokenMany])
def test_skipped_samples_are_left_out_counted_and_named(
    dataset: type[Broken], workers: int
) -> None:
    loader = ferry.DataLoader(dataset(12, 1, 4, 5, 11), 4, on_error="skip", num_workers=workers)
    assert seen(loader) == [[0, 2, 3], [6, 7], [8, 9, 10]]
    stats = loader.stats()
    assert stats.bad_samples == 4
    assert [each.index for each in stats.bad] == [1, 4, 5, 11]
    assert (stats.batches, stats.samples) == (3, 8)
    assert "bad samples: 4" in str(stats)
    assert "sample 1 in epoch 0: KeyError: 'no sample 1'" in str(stats)
    assert loader.state_dict()["bad"]["count"] == 4


@pytest.mark.parametrize("dataset", [Broken, BrokenMany])
def test_a_batch_of_nothing_but_bad_samples_is_made_of_others(dataset: type[Broken]) -> None:
    """It was left out: a rank that had one came to its end before the others."""
    results = []
    for workers in (0, 1, 3):
        loader = ferry.DataLoader(dataset(12, 4, 5, 6), 3, on_error="skip", num_workers=workers)
        results.append(seen(loader))
        assert len(results[-1]) == len(loader)
    loader = ferry.DataLoader(dataset(12, 3, 4, 5), 3, on_error="skip")
    batches = seen(loader)
    assert [batches[0], *batches[2:]] == [[0, 1, 2], [6, 7, 8], [9, 10, 11]]
    stood_in = [each.substitute for each in loader.stats().bad]
    assert batches[1] == stood_in
    assert not {3, 4, 5} & set(batches[1])
    assert all(result == results[0] for result in results)


def test_without_batches_a_bad_sample_is_substituted_as_there_is_nothing_to_make_smaller() -> None:
    for workers in (0, 2):
        loader = ferry.DataLoader(Broken(5, 0, 3), None, on_error="skip", num_workers=workers)
        samples = list(loader)
        assert len(samples) == len(loader) == 5
        assert [samples[1], samples[2], samples[4]] == [1, 2, 4]
        assert {samples[0], samples[3]} <= {1, 2, 4}


def test_a_batch_without_any_sample_that_can_be_read_is_an_error_that_names_one() -> None:
    loader = ferry.DataLoader(Broken(40, *range(40)), 4, on_error="skip")
    with pytest.raises(KeyError, match="no sample 0") as caught:
        next(iter(loader))
    assert f"{SUBSTITUTES_MAX} substitutes" in caught.value.__notes__[0]
    assert "sample 0 from the dataset" in caught.value.__notes__[1]
    unknown = ferry.DataLoader(Broken(4, "b"), 1, sampler=["a", "b"], on_error="skip")
    batches = iter(unknown)
    next(batches)
    with pytest.raises(KeyError, match="no sample b") as caught:
        next(batches)
    assert "whole numbers for indices" in caught.value.__notes__[0]


def test_skipping_counts_batches_of_the_order_so_that_resuming_is_exact() -> None:
    whole = seen(ferry.DataLoader(Broken(9, 1, 2, 3, 4, 5), 2, on_error="skip"))
    assert [whole[0], *whole[3:]] == [[0], [6, 7], [8]]
    for taken in range(len(whole) + 1):
        loader = ferry.DataLoader(Broken(9, 1, 2, 3, 4, 5), 2, on_error="skip")
        iteration = iter(loader)
        assert [next(iteration).tolist() for _ in range(taken)] == whole[:taken]
        state = loader.state_dict()
        resumed = ferry.DataLoader(Broken(9, 1, 2, 3, 4, 5), 2, on_error="skip")
        resumed.load_state_dict(state)
        assert seen(resumed) == whole[taken:]
        assert [each.index for each in resumed.stats().bad] == [1, 2, 3, 4, 5]
        assert resumed.stats().bad_samples == 5


def test_substitutes_depend_on_seed_epoch_and_index_only() -> None:
    bad = (2, 3, 17)
    results = []
    for workers, size in ((0, 4), (1, 4), (4, 4), (4, 1)):
        loader = ferry.DataLoader(
            Broken(20, *bad), size, True, seed=5, on_error="substitute", num_workers=workers
        )
        results.append([flat(loader) for _ in range(2)])
        named = {each.index: each.substitute for each in loader.stats().bad if each.epoch == 1}
    assert all(result == results[0] for result in results)
    whole = flat(ferry.DataLoader(Numbers(20), 4, True, seed=5))
    for good, index in zip(results[0][0], whole, strict=True):
        assert (good == index) == (index not in bad)
    for index in bad:
        tries = substitutes(5, 1, index, 20)
        assert named[index] == next(each for each in tries if each not in bad)


def test_substitutes_are_others_each_once_and_spread_evenly() -> None:
    """The core computes the same; runs are resumed by later versions."""
    assert list(substitutes(0, 0, 0, 1000))[:3] == [581, 519, 458]
    for length in range(1, 40):
        for index in range(length):
            tries = list(substitutes(3, 1, index, length))
            assert len({*tries, index}) == len(tries) + 1 == min(length, SUBSTITUTES_MAX + 1)
            assert set(tries) <= set(range(length))
    assert all(0 <= each < 7 for each in substitutes(-1, 0, 2**70, 7))
    drawn = [next(substitutes(0, 0, index, 10)) for index in range(10_000)]
    assert all(800 < drawn.count(digit) < 1200 for digit in range(10))


def test_without_a_good_substitute_the_sample_is_an_error() -> None:
    for workers in (0, 2):
        loader = ferry.DataLoader(Broken(4, *range(4)), on_error="substitute", num_workers=workers)
        with pytest.raises(KeyError, match="no sample 0") as caught:
            next(iter(loader))
        assert "3 substitutes" in told(caught.value)  # All others that there are.


def test_bad_samples_that_come_again_after_a_resume_are_counted_once() -> None:
    def collate(samples: list[int]) -> list[int]:
        if samples == [8, 9, 10, 11] and not is_mended:
            raise ValueError("not yet")
        return samples

    def make() -> ferry.DataLoader:
        return ferry.DataLoader(
            Broken(12, 1, 4, 5, 6, 7), 4, on_error="skip", collate_fn=collate, num_workers=0
        )

    is_mended = False
    loader = make()
    batches = iter(loader)
    assert next(batches) == [0, 2, 3]
    assert len(next(batches)) == 4  # They stand in for a batch of nothing but bad samples.
    with pytest.raises(ValueError, match="not yet"):
        next(batches)
    assert loader.stats().bad_samples == 5
    state = loader.state_dict()
    is_mended = True
    resumed = make()
    resumed.load_state_dict(state)
    assert list(resumed) == [[8, 9, 10, 11]]
    assert resumed.stats().bad_samples == 5
    assert [each.index for each in resumed.stats().bad] == [1, 4, 5, 6, 7]
    assert resumed.state_dict()["bad"]["count"] == 5


def test_all_bad_samples_are_counted_and_the_first_are_named() -> None:
    loader = ferry.DataLoader(Broken(300, *range(250)), 10, on_error="skip")
    flat(loader)
    assert loader.stats().bad_samples == 250
    assert [each.index for each in loader.stats().bad] == list(range(NAMED_MAX))


class Bumpy(IterableDataset[int]):
    """An iterator that goes on after an error."""

    def __iter__(self) -> Iterator[int]:
        return BumpyIterator()


class BumpyIterator:
    at = -1

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        self.at += 1
        if self.at == 6:
            raise StopIteration
        if self.at % 3 == 1:
            raise OSError(f"item {self.at}")
        return self.at


class Dying(IterableDataset[int]):
    """A generator: over, once it has raised."""

    def __iter__(self) -> Iterator[int]:
        yield 0
        raise OSError("the connection is lost")


@pytest.mark.parametrize("workers", [0, 2])
def test_an_iterable_goes_on_after_a_bad_item_if_it_can_and_never_ends_silently(
    workers: int,
) -> None:
    # Each worker reads the whole of it.
    times = max(1, workers)
    loader = ferry.DataLoader(Bumpy(), 2, on_error="skip", num_workers=workers)
    assert seen(loader) == [[0, 2]] * times + [[3, 5]] * times
    assert [each.index for each in loader.stats().bad] == [1] * times + [4] * times
    with pytest.raises(OSError, match="item 1") as caught:
        flat(ferry.DataLoader(Bumpy(), 2, num_workers=workers))
    assert "item 1 of the dataset" in told(caught.value)
    dying = ferry.DataLoader(Dying(), on_error="skip", num_workers=workers)
    with pytest.raises(OSError, match="connection is lost"):
        flat(dying)
