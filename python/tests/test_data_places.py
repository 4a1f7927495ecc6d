"""Datasets that keep a place of their own: resuming, and what can't be resumed."""

from __future__ import annotations

import dataclasses
import itertools
import json
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from data_cases import Numbers, flat, seen
from torch.utils.data import IterableDataset, get_worker_info

import tensorferry as ferry
from tensorferry._data import order


def share(length: int) -> range:
    """A worker's part."""
    info = get_worker_info()
    return range(length) if info is None else range(info.id, length, info.num_workers)


class Plain(IterableDataset[int]):
    """Begins anew whenever it is asked."""

    def __iter__(self) -> Iterator[int]:
        return iter(share(23))


class Keeping(IterableDataset[int]):
    """Goes on where it was: the dataset says where that is."""

    def __init__(self) -> None:
        self.at = 0

    def __iter__(self) -> Iterator[int]:
        items = share(23)
        while self.at < len(items):
            self.at += 1
            yield items[self.at - 1]
        self.at = 0

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at = state["at"]


class Knowing(IterableDataset[int]):
    """Its iterator says where it is."""

    def __iter__(self) -> Iterator[int]:
        return KnowingIterator(share(23))


class KnowingIterator:
    def __init__(self, items: range) -> None:
        self.items, self.at = items, 0

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        if self.at == len(self.items):
            raise StopIteration
        self.at += 1
        return self.items[self.at - 1]

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at = state["at"]


class Itself(IterableDataset[int], KnowingIterator):
    """Is its own iterator."""

    def __init__(self) -> None:
        KnowingIterator.__init__(self, range(23))

    def __iter__(self) -> Iterator[int]:
        self.items = share(23)
        return self


class Tallying(Numbers):
    """A map-style dataset whose samples depend on how many were asked for."""

    asked = 0

    def __getitem__(self, index: int) -> int:
        self.asked += 1
        return 100 * index + self.asked

    def state_dict(self) -> dict[str, int]:
        return {"asked": self.asked}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.asked = state["asked"]


DATASETS: dict[str, Callable[[], Any]] = {
    "plain": Plain,
    "keeping": Keeping,
    "knowing": Knowing,
    "itself": Itself,
    "tallying": lambda: Tallying(23),
}


def stored(state: dict[str, Any]) -> Any:
    return json.loads(json.dumps(state))


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", DATASETS)
def test_each_worker_goes_on_at_its_place(kind: str, workers: int) -> None:
    whole = seen(ferry.DataLoader(DATASETS[kind](), 3, num_workers=workers))
    for taken in (0, 1, 4, 7) if workers else range(len(whole) + 1):
        loader = ferry.DataLoader(DATASETS[kind](), 3, num_workers=workers)
        iteration = iter(loader)
        assert seen(itertools.islice(iteration, taken)) == whole[:taken]
        resumed = ferry.DataLoader(DATASETS[kind](), 3, num_workers=workers)
        resumed.load_state_dict(stored(loader.state_dict()))
        assert seen(resumed) == whole[taken:], taken


@pytest.mark.parametrize("kind", ["plain", "keeping", "knowing", "itself", "tallying"])
def test_the_same_dataset_object_goes_back_to_the_place_of_the_state(kind: str) -> None:
    dataset = DATASETS[kind]()
    whole = seen(ferry.DataLoader(DATASETS[kind](), 3))
    loader = ferry.DataLoader(dataset, 3)
    before = stored(loader.state_dict())
    iteration = iter(loader)
    assert seen(itertools.islice(iteration, 2)) == whole[:2]
    state = stored(loader.state_dict())
    assert seen(itertools.islice(iteration, 3)) == whole[2:5]
    resumed = ferry.DataLoader(dataset, 3)
    resumed.load_state_dict(state)
    assert seen(resumed) == whole[2:]
    resumed.load_state_dict(before)
    assert seen(resumed) == whole


def test_a_resumed_epoch_may_be_saved_and_resumed_again_with_persistent_workers() -> None:
    options: Any = {"num_workers": 2, "persistent_workers": True}
    whole = seen(ferry.DataLoader(Keeping(), 3, **options))
    collected, state = [], None
    for taken in (1, 3, 2, 100):
        loader = ferry.DataLoader(Keeping(), 3, **options)
        if state is not None:
            loader.load_state_dict(state)
        collected += seen(itertools.islice(iter(loader), taken))
        state = stored(loader.state_dict())
    assert collected == whole
    assert seen(loader) == whole  # The next epoch, by the same processes.


class Hidden(IterableDataset[int]):
    """Keeps a place and does not tell it."""

    def __init__(self) -> None:
        self.at = 0

    def __iter__(self) -> Iterator[int]:
        while self.at < 23:
            self.at += 1
            yield self.at - 1


class HiddenItself(IterableDataset[int]):
    def __init__(self) -> None:
        self.at = -1

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        self.at += 1
        if self.at == 23:
            raise StopIteration
        return self.at


def test_a_dataset_that_can_not_be_gone_back_to_is_refused_and_never_empty_in_silence() -> None:
    for kind, why in ((Hidden, "it ended after"), (HiddenItself, "its own iterator")):
        dataset: Any = kind()
        loader = ferry.DataLoader(dataset, 3)
        iteration = iter(loader)
        next(iteration)
        state = loader.state_dict()
        assert len(flat(iteration)) == 20
        resumed = ferry.DataLoader(dataset, 3)
        resumed.load_state_dict(state)
        with pytest.raises(ferry.InvalidInput, match=f"{why}.*state_dict"):
            list(resumed)
        # A new one begins at its beginning, and is passed over to the place.
        resumed = ferry.DataLoader(kind(), 3)
        resumed.load_state_dict(state)
        assert flat(resumed) == list(range(3, 23))


def test_another_number_of_workers_is_refused_where_each_has_a_place() -> None:
    loader = ferry.DataLoader(Plain(), 3, num_workers=2)
    next(iter(loader))
    for workers in (0, 1):
        other = ferry.DataLoader(Plain(), 3, num_workers=workers)
        with pytest.raises(ferry.InvalidInput, match=r"places of 2 workers.*as many"):
            other.load_state_dict(loader.state_dict())
    # Of numbers without a place it makes no difference.
    plain = ferry.DataLoader(Numbers(9), 2, num_workers=2)
    next(iter(plain))
    other = ferry.DataLoader(Numbers(9), 2)
    other.load_state_dict(plain.state_dict())
    assert flat(other) == list(range(2, 9))


def test_a_state_with_a_place_and_a_dataset_that_keeps_none_do_not_fit() -> None:
    loader = ferry.DataLoader(Keeping(), 3)
    next(iter(loader))
    other = ferry.DataLoader(Plain(), 3)
    other.load_state_dict(loader.state_dict())
    with pytest.raises(ferry.InvalidInput, match="Plain has no state_dict"):
        iter(other)


def test_threads_say_that_they_can_not_keep_the_place_of_a_dataset() -> None:
    with pytest.warns(UserWarning, match="place of a Tallying is not in state_dict"):
        ferry.DataLoader(Tallying(3), workers="threads")


def test_manual_seed_governs_our_own_datasets_and_their_epochs_stay_known(tmp_path: Any) -> None:
    import numpy as np

    from tensorferry.data import Files

    for number in range(30):
        np.save(tmp_path / f"{number:02}.npy", np.array(number))
    orders = []
    for seed in (0, 1, 0):
        torch.manual_seed(seed)
        loader = ferry.DataLoader(Files(str(tmp_path / "*.npy")), 4, True)
        orders.append([flat(loader) for _ in range(2)])
    assert orders[0] == orders[2] != orders[1]
    assert orders[0][0] != orders[0][1]
    torch.manual_seed(0)
    first = ferry.DataLoader(Files(str(tmp_path / "*.npy")), 4, True)
    next(iter(first))
    torch.manual_seed(99)
    resumed = ferry.DataLoader(Files(str(tmp_path / "*.npy")), 4, True)
    resumed.load_state_dict(stored(first.state_dict()))
    assert flat(resumed) == orders[0][0][4:]
    assert flat(resumed) == orders[0][1]


class Drawing(IterableDataset[int]):
    """Shuffles with a global generator."""

    def __init__(self, shuffle: Callable[[list[int]], list[int]]) -> None:
        self.shuffle = shuffle

    def __iter__(self) -> Iterator[int]:
        yield from self.shuffle(list(range(23)))


SHUFFLES: dict[str, Callable[[list[int]], list[int]]] = {
    "random": lambda items: random.sample(items, len(items)),
    "torch": lambda items: [items[at] for at in torch.randperm(len(items)).tolist()],
    "numpy": lambda items: np.random.permutation(items).tolist(),
}


@pytest.mark.parametrize("options", [{}, {"num_workers": 1, "persistent_workers": True}])
@pytest.mark.parametrize("kind", SHUFFLES)
def test_an_iterable_that_draws_from_a_global_generator_gives_exactly_the_other_samples(
    kind: str, options: Any
) -> None:
    loader = ferry.DataLoader(Drawing(SHUFFLES[kind]), 3, **options)
    flat(loader)
    iteration = iter(loader)
    flat(itertools.islice(iteration, 2))
    state = stored(loader.state_dict())
    rest = flat(iteration)
    for draw in (random.random, torch.rand, np.random.rand):
        draw(1) if draw is torch.rand else draw()
    resumed = ferry.DataLoader(Drawing(SHUFFLES[kind]), 3, **options)
    resumed.load_state_dict(state)
    before = random.getstate(), torch.get_rng_state().tolist(), str(np.random.get_state())
    assert flat(resumed) == rest
    if not options:
        # It has drawn what it drew before the state was saved, and nobody else notices.
        now = random.getstate(), torch.get_rng_state().tolist(), str(np.random.get_state())
        assert now == before


class Epochs(IterableDataset[Any]):
    """Another order in each epoch, and does not tell which."""

    def __init__(self, sample: Callable[[int], Any]) -> None:
        self.epoch = 0
        self.sample = sample

    def __iter__(self) -> Iterator[Any]:
        self.epoch += 1
        for number in order.shuffled(23, self.epoch).tolist():
            yield self.sample(number)


class Stored(IterableDataset[int]):
    """Returns one iterator whenever it is asked."""

    def __init__(self) -> None:
        self.items = iter(range(100))

    def __iter__(self) -> Iterator[int]:
        return self.items


class Endless(Hidden):
    def __iter__(self) -> Iterator[int]:
        while True:
            self.at += 1
            yield self.at


@dataclasses.dataclass
class Labelled:
    name: str
    picture: torch.Tensor


SAMPLES: dict[str, Callable[[int], Any]] = {
    "number": int,
    "text": str,
    "bytes": lambda number: bytes([number]),
    "tensor": lambda number: torch.full((3, 8), number),
    "half": lambda number: torch.full((3, 8), number, dtype=torch.bfloat16),
    "large": lambda number: torch.eye(64)[torch.arange(64).roll(number)],
    "permuted": lambda number: torch.full((8, 8, 3), number).permute(2, 0, 1),
    "array": lambda number: np.full((3, 8), number),
    "nested": lambda number: {"x": [("a", torch.tensor(number))], "y": None},
    "dataclass": lambda number: Labelled("one", torch.full((2,), number)),
}


@pytest.mark.parametrize("options", [{}, {"num_workers": 1}, {"workers": "threads"}])
@pytest.mark.parametrize("kind", SAMPLES)
def test_an_iterable_that_does_not_repeat_itself_is_refused_whatever_its_items_are(
    kind: str, options: Any
) -> None:
    if options and kind not in ("number", "nested"):
        pytest.skip("the same code")
    loaders = [
        ferry.DataLoader(Epochs(SAMPLES[kind]), 4, collate_fn=list, **options) for _ in range(3)
    ]
    iteration = iter(loaders[0])
    next(iteration)
    loaders[1].load_state_dict(loaders[0].state_dict())
    assert len(list(loaders[1])) == 5
    # Another epoch of it, without workers that begin anew.
    dataset: Any = loaders[0].dataset
    dataset.epoch = 1
    iteration = iter(loaders[0])
    next(iteration)
    loaders[2].load_state_dict(stored(loaders[0].state_dict()))
    with pytest.raises(ferry.InvalidInput, match=r"others than before.*state_dict\(\)"):
        list(loaders[2])


@pytest.mark.parametrize("kind", [Hidden, Stored, Endless])
def test_an_iterable_that_goes_on_from_a_hidden_place_is_refused_and_loses_no_sample(
    kind: Callable[[], Any],
) -> None:
    dataset = kind()
    loader = ferry.DataLoader(dataset, 2)
    flat(itertools.islice(loader, 2))
    state = loader.state_dict()
    resumed = ferry.DataLoader(dataset, 2)
    resumed.load_state_dict(state)
    with pytest.raises(ferry.InvalidInput, match=r"others than before.*state_dict\(\)"):
        iter(resumed)


def test_a_state_saved_before_the_first_epoch_leaves_the_seed_to_manual_seed(
    tmp_path: Any,
) -> None:
    for number in range(30):
        np.save(tmp_path / f"{number:02}.npy", np.array(number))

    def make() -> ferry.DataLoader:
        return ferry.DataLoader(ferry.data.Files(str(tmp_path / "*.npy")), 4, True)

    found = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        loader = make()
        state = stored(loader.state_dict())
        whole = [flat(loader) for _ in range(2)]
        torch.manual_seed(seed)
        resumed = make()
        resumed.load_state_dict(state)
        iteration = iter(resumed)
        first = flat(itertools.islice(iteration, 2))
        again = make()
        again.load_state_dict(stored(resumed.state_dict()))
        assert [first + flat(again), flat(again)] == whole
        found.append(whole)
    assert found[0] != found[1]


class Counted(Keeping):
    """Another order in each epoch, and tells its place."""

    epoch = 0

    def __iter__(self) -> Iterator[int]:
        for item in super().__iter__():
            yield 100 * self.epoch + item
        self.epoch += 1

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at, "epoch": self.epoch}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at, self.epoch = state["at"], state["epoch"]


PERSISTENT: Any = {"num_workers": 2, "persistent_workers": True}


@pytest.mark.parametrize(
    "options", [{}, {"num_workers": 1, "workers": "threads"}, PERSISTENT], ids=repr
)
@pytest.mark.parametrize("kind", [Counted, lambda: Tallying(23)])
def test_datasets_that_go_on_from_epoch_to_epoch_are_resumed_between_them_too(
    kind: Callable[[], Any], options: Any
) -> None:
    if options.get("workers") == "threads" and kind is not Counted:
        pytest.skip("the place of a map-style dataset is not kept by threads")
    loader = ferry.DataLoader(kind(), 3, **options)
    for _ in range(2):
        flat(loader)
    state = stored(loader.state_dict())
    whole = [seen(loader) for _ in range(2)]
    for taken in (0, 1, 5):
        resumed = ferry.DataLoader(kind(), 3, **options)
        resumed.load_state_dict(state)
        iteration = iter(resumed)
        assert seen(itertools.islice(iteration, taken)) == whole[0][:taken]
        again = ferry.DataLoader(kind(), 3, **options)
        again.load_state_dict(stored(resumed.state_dict()))
        assert [seen(again), seen(again)] == [whole[0][taken:], whole[1]]


@pytest.mark.parametrize(
    "options", [{}, {"num_workers": 1, "workers": "threads"}, PERSISTENT], ids=repr
)
@pytest.mark.parametrize("kind", [Counted, Plain])
def test_a_loader_that_gave_up_an_iteration_goes_back_to_the_beginning_of_an_epoch(
    kind: Callable[[], Any], options: Any
) -> None:
    loader = ferry.DataLoader(kind(), 3, **options)
    fresh = stored(loader.state_dict())
    whole = seen(ferry.DataLoader(kind(), 3, **options))
    for taken in (1, 3):
        assert seen(itertools.islice(loader, taken)) == whole[:taken]
        loader.load_state_dict(fresh)
    assert seen(loader) == whole


def test_after_a_break_persistent_workers_go_on_behind_what_was_yielded() -> None:
    loader = ferry.DataLoader(Counted(), 3, **PERSISTENT)
    whole = seen(ferry.DataLoader(Counted(), 3, **PERSISTENT))
    assert seen(itertools.islice(loader, 2)) == whole[:2]
    assert seen(loader) == whole[2:]
